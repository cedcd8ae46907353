"""The figures of growth: throughput and bytes against one thing that grows."""

from __future__ import annotations

from bench.growth.data import KEYS, RESULTS, SELECTIVITY
from bench.growth.sizes import JOINS, PUSHES, WINDOWS
from bench.harness.figure import Figure

FIGURES: tuple[Figure, ...] = (JOINS, WINDOWS, KEYS, SELECTIVITY, PUSHES, RESULTS)
