"""Joins in hops, batch and streaming: their plan, their windows, and the legs that tuples take through these."""
