"""Figures 9 to 16 of Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams",
SIGMOD 2004, and its equations 5 to 7. docs/internals/papers.md discusses what reproduces."""

from __future__ import annotations

from bench.harness.figure import Figure
from bench.papers.migration import length, over_time, track_costs

PLOTTED: tuple[Figure, ...] = (*length.FIGURES, *over_time.FIGURES)
"""The figures of the paper."""
FIGURES: tuple[Figure, ...] = (*PLOTTED, *track_costs.FIGURES)
