"""A sheet: all that a page, a terminal or Prometheus shows of something that runs, at one moment.

A sheet is made once for each moment from immutable values, and the threads of a server render the sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Cell = str | int | float | None
Unit = Literal["", "bytes", "seconds", "ns", "time"]


@dataclass(frozen=True)
class Metric:
    """A number that Prometheus reads as eddy_<name>, with "_total" after it if it is a counter.

    text     its meaning, in a few words
    value    of a histogram the sum of what was observed
    counter  whether it only grows
    labels   further labels, as (name, value); the page shows figures without any
    shown    how the page shows it, if not as a number
    buckets  of a histogram: (bound, observations up to it), and last (infinity, all observations). For Prometheus only
    """

    name: str
    text: str
    value: float | None
    counter: bool = False
    unit: Unit = ""
    labels: tuple[tuple[str, str], ...] = ()
    shown: str | None = None
    buckets: tuple[tuple[float, int], ...] = ()


def watermark_figure(ticks: int | None, seconds: float | None, shown: str | None, text: str) -> Metric:
    """Return the figure of a watermark: Unix time, or in the unit of time columns that are no timestamps."""
    if seconds is not None:
        return Metric("watermark_timestamp_seconds", f"{text}, Unix time", seconds, shown=shown)
    return Metric("watermark", f"{text}, in the unit of the time columns", ticks)


@dataclass(frozen=True)
class PlanDrawing:
    """A plan: its title, its text, and drawings of the join graph, the plan and its history."""

    title: str
    plan: str
    svgs: tuple[str, ...]


@dataclass(frozen=True)
class PageTable:
    """A table of the page."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Sheet:
    """The contents of a page.

    title    what runs;  name  its name, a label of its figures (`label` is that label's name)
    at       Unix time of the figures;  note  a remark on their state, often empty
    """

    title: str
    name: str
    label: str
    at: float
    figures: tuple[Metric, ...]
    plans: tuple[PlanDrawing, ...] = ()
    tables: tuple[PageTable, ...] = field(default=())
    note: str = ""

    def value(self, name: str) -> float | None:
        """Return the value of a figure without further labels, None if there is none."""
        return next((figure.value for figure in self.figures if figure.name == name and not figure.labels), None)
