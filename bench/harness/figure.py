"""A figure of the report: its points, the measurement of a point, and the plots and tables of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from eddy import EddyError

Scalar = str | int | float | bool | None
Point = Mapping[str, Any]
"""Names and sizes (str, int, float, bool), the seed included, that distinguish a measurement from others of its figure.

Two points are the same when all values are equal. A resumed run skips the points that it already has, so a point
contains exactly the values that change the work.
"""
Row = Mapping[str, Scalar]
"""One row of a figure's data. The columns of its point are added to it."""
Say = Callable[[str], None]
"""Shows the current measurement in the progress bar."""


class NotANumber(EddyError):
    """A column for a plot or a computation does not contain a number."""


def number(row: Row, column: str) -> float:
    """Return a number of a row. Raises NotANumber."""
    value = row.get(column)
    if not isinstance(value, int | float):
        raise NotANumber(f"column {column!r} holds {value!r}, not a number")
    return float(value)


def spread(values: Sequence[float], name: str) -> Row:
    """Return the median as column `name`, the least and the most as `name`_low and `name`_high.

    >>> spread([3.0, 1.0, 2.0], "seconds")
    {'seconds': 2.0, 'seconds_low': 1.0, 'seconds_high': 3.0}
    """
    return {name: float(median(values)), f"{name}_low": float(min(values)), f"{name}_high": float(max(values))}


@dataclass(frozen=True)
class Plot:
    """A drawing of one column against another. Columns `y`_low and `y`_high, if present, are drawn as a band.

    name    end of the file name, after the figure's; may be empty if the figure has one plot
    x, y    columns; `y` holds numbers, and so does `x` unless the plot has bars
    by      column that distinguishes the curves; None = one curve
    log     axes with a logarithmic scale: "", "x", "y" or "xy"
    where   only rows with these values
    kind    "lines", "steps" or "bars"
    marked  values of x marked with a vertical line, and their labels
    """

    title: str
    x: str
    y: str
    by: str | None = None
    name: str = ""
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    where: Mapping[str, Scalar] = field(default_factory=dict)
    kind: str = "lines"
    marked: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportTable:
    """A table of the report: one row for each combination of the columns `rows`.

    rows    columns and their headings
    value   columns of data and their headings; one column if `across` is given
    across  column whose values head the columns of the table
    where   only rows with these values
    """

    title: str
    rows: Mapping[str, str]
    value: Mapping[str, str]
    across: str | None = None
    where: Mapping[str, Scalar] = field(default_factory=dict)


NAMED = ReportTable(
    "Ratios and amounts",
    {"what": "what"},
    {"value": "measured", "value_low": "least", "value_high": "most", "wanted": "wanted", "reached": "reached"},
)
"""The table of rows that name their own figure; `Figure.titles` and `Figure.bars` fill `what`, `wanted`, `reached`."""


@dataclass(frozen=True)
class Figure:
    """A figure of the report, which is also a command of `eddy bench`.

    name     the command, and the start of the names of its plots
    about    the workload, what is timed, and the differences from the source
    points   the points of a full run (True), in the sizes of the source, or of a quick one (False)
    measure  measures a point and returns its rows. Raises Mismatch if ways to do the same work differ in their results.
             A point that cannot be measured on this machine has a row with the reason in column `skipped`
    title    title of the figure, which bench.contents fills in
    source   the paper and the number of its figure there
    printed  numbers that the source prints, as rows with the columns of a plot; drawn as curves of the paper
    titles   descriptions of the rows that have columns `figure` (a name) and `value`
    bars     the bound that such a row should reach or not exceed, such as "≥ 0.5"
    series   values of the rows that are drawn only and not kept in figures.json
    both     whether the report has the points of the quick run beside those of the full one; the names of its rows, its
             tables and its plots tell them apart
    """

    name: str
    about: str
    points: Callable[[bool], Sequence[Point]]
    measure: Callable[[Point, Say], Sequence[Row]]
    title: str = ""
    source: str = ""
    plots: Sequence[Plot] = ()
    tables: Sequence[ReportTable] = ()
    printed: Sequence[Row] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    bars: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[str, Sequence[str]] = field(default_factory=dict)
    both: bool = False

    def drawn_only(self, row: Row) -> bool:
        """Return whether a row belongs to a series."""
        return any(row.get(column) in values for column, values in self.series.items())

    def described(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows; rows that name their own figure get the columns `what`, `wanted` and `reached`."""
        return [{**row, **self._described(str(row["figure"]), row)} if "figure" in row else row for row in rows]

    def _described(self, name: str, row: Row) -> Row:
        bar = self.bars.get(name)
        reached = None if bar is None else reaches(number(row, "value"), bar)
        return {"what": self.titles.get(name, name), "wanted": bar, "reached": reached}


def reaches(value: float, bar: str) -> bool:
    """Return whether a figure satisfies a bar such as "≥ 0.5".

    >>> reaches(0.6, "≥ 0.5"), reaches(0.6, "≤ 0.5")
    (True, False)
    """
    sign, limit = bar.split()
    return value >= float(limit) if sign == "≥" else value <= float(limit)
