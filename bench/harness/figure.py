"""A figure: what is measured at which points, how it is drawn, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Scalar = str | int | float | bool | None
Point = Mapping[str, str | int | float | bool]
"""What distinguishes one measurement from the others of its figure: names and sizes, the seed included.

Two points are the same when all of it is equal: a run that is taken up again skips the points it has rows of. So
whatever changes the work belongs here, and nothing that does not.
"""
Row = Mapping[str, Scalar]
"""One row of a figure's data. The columns of its point are added to it."""
Say = Callable[[str], None]
"""Told what is being measured, for the progress bar."""


@dataclass(frozen=True)
class Plot:
    """A drawing of columns against another.

    name    the end of its file name, after the figure's; may be empty if the figure has one plot
    x, y    columns; `y` is a number. `x` is one too in a plot of lines
    by      the column that tells the curves apart; None: one curve
    where   only rows with these values
    spread  two columns, the low and the high end of what was measured at a point
    kind    "lines", "steps" or "bars"
    marked  values of x to be marked with a vertical line, and what they are
    """

    title: str
    x: str
    y: str
    by: str | None = None
    name: str = ""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    where: Mapping[str, Scalar] = field(default_factory=dict)
    spread: tuple[str, str] | None = None
    kind: str = "lines"
    marked: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A table of the report: a row for each value of the columns `rows`, a column for each value of `across`.

    rows   columns and their headings
    across a column whose values head the columns of the table; None: `value` alone
    value  columns of data and their headings; with `across`, one
    where  only rows with these values
    """

    title: str
    rows: Mapping[str, str]
    value: Mapping[str, str]
    across: str | None = None
    where: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A figure of the report, which is a command of `eddy bench` as well.

    name      the command, and the name of its files
    title     what it shows
    source    the paper and the number of its figure there; empty if it is of no paper
    about     a paragraph: workload, sizes, what is timed, and what differs from the source
    points    the points of a run; told whether it is a full one, which has the source's sizes, or a quick one
    measure   measures a point and returns its rows. Raises `bench.measure.Mismatch` if ways to do the same work differ
              in their results. A point that cannot be measured here gives a row with the reason in column `skipped`
    plots     what is drawn
    grids     what is given as tables
    remarks   what the data say, in sentences: slopes, ratios, what of the source does not reproduce and why. Called
              with all rows; with those of another run some points may be missing
    text      further lines of Markdown from all rows, for tables that are no grids
    printed   figures that the source prints, as rows with the columns of a plot or a grid; they appear with
              `origin` "paper", all others with "here"
    """

    name: str
    title: str
    about: str
    points: Callable[[bool], Sequence[Point]]
    measure: Callable[[Point, Say], Sequence[Row]]
    source: str = ""
    plots: Sequence[Plot] = ()
    grids: Sequence[Grid] = ()
    remarks: Callable[[Sequence[Row]], Sequence[str]] = lambda rows: ()
    text: Callable[[Sequence[Row]], Sequence[str]] = lambda rows: ()
    printed: Sequence[Row] = ()
