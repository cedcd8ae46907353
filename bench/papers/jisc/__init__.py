"""Figures 7 to 12 of Aly, Aref, Ouzzani, Mahmoud, "JISC: Adaptive stream processing using just-in-time state
completion", EDBT 2014, section 6.

runs            strategies that run side by side over the same arrivals, timed in turns
comparison      what may be said of their times
migration       figures 7 and 8: the migration stage
normal          figure 9: no transition
latency         figure 10: until there is output again, over hash joins and over nested loops
nested_loops    the model of a plan of nested loops that figure 10 (b) needs
frequency       figures 11 and 12: transitions again and again
"""

from __future__ import annotations

from bench.harness.figure import Figure
from bench.papers.jisc import frequency, latency, migration, normal

FIGURES: tuple[Figure, ...] = (*migration.FIGURES, *normal.FIGURES, *latency.FIGURES, *frequency.FIGURES)
