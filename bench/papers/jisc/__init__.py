"""Figures 7 to 12 of Aly, Aref, Ouzzani, Mahmoud, "JISC: Adaptive stream processing using just-in-time state
completion", EDBT 2014, section 6, and its propositions. docs/internals/papers.md discusses what reproduces."""

from __future__ import annotations

from bench.harness.figure import Figure
from bench.papers.jisc import latency, propositions, throughput

PLOTTED: tuple[Figure, ...] = (*throughput.FIGURES[:3], *latency.FIGURES, *throughput.FIGURES[3:])
"""The figures of the paper."""
FIGURES: tuple[Figure, ...] = (*PLOTTED, *propositions.FIGURES)
