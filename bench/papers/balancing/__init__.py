"""Figures 7 to 13 of Zhu, Rundensteiner, "Adapting partitioned continuous query processing in distributed systems", on
simulated nodes. docs/internals/papers.md discusses what reproduces."""

from __future__ import annotations

from bench.papers.balancing.figures import FIGURES

__all__ = ["FIGURES"]
