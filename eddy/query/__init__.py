"""Queries: streams, windows, predicates, key types, and their validation."""
