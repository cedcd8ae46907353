"""Streams: their names, types, windows, event times and lateness."""
