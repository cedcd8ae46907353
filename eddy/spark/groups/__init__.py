"""Aggregates over the results of joins on Spark."""
