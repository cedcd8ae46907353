"""Snapshots: a runtime as bytes, and a runtime from bytes."""
