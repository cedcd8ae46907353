"""Conditions on rows, and filters that adapt the order of their conditions."""
