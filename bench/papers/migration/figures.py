"""All figures of the plan migration paper."""

from __future__ import annotations

from bench.harness.figure import Figure
from bench.papers.migration import length, over_time

FIGURES: tuple[Figure, ...] = (*length.FIGURES, *over_time.FIGURES)
"""Figures 9 to 16, in their order."""
