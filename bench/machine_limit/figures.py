"""The figures of what the machine could do at best."""

from __future__ import annotations

from bench.harness.figure import Figure
from bench.machine_limit.floor import FLOOR
from bench.machine_limit.latency import LATENCY
from bench.machine_limit.parts import PROFILE

FIGURES: tuple[Figure, ...] = (LATENCY, FLOOR, PROFILE)
