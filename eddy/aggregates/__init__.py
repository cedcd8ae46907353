"""Aggregates over the results of a join: groups, their state, windows of event time."""
