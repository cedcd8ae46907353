"""Fault injection for streaming joins: a driver program that is broken in every way, and its expected results."""
