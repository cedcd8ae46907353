"""Structured Streaming: one join as one job that survives crashes."""
