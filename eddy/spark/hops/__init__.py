"""Joins in hops, batch and streaming: their plan, their windows, and the legs of tuples through the windows."""
