"""Faults for streaming joins: a driver program that is broken in every way, and what its results must be."""
