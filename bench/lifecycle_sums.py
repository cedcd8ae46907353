"""Figures 14 to 16 of "Changing flights in mid-air" over the paper's own query: a sum over a sliding window.

The event time of a row is its number, and a window of 50 ticks begins at each row, so a window has 50 elements, as in
the paper. A window ends with the row after it, so each sum comes one arrival later than in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.harness.figure import Figure
from bench.lifecycle import (
    COUNTS,
    PAPER,
    PRINTED_RESPONSE_TIMES,
    RESPONSE_TIME,
    SCHEMA,
    Subject,
    correctness,
    correctness_points,
    cost,
    plot,
    points,
    printed,
    response,
    table,
)
from eddy import Engine, Hopping, Query, Stream, agg
from eddy.fuzz.changing.oracle import Arrived, OracleResult

STREAM = "R"


def _query(version: int, window: int) -> Query:
    names = {f"{version}_first": "first", f"{version}_last": '"end" - 1', f"{version}_sum": "sum"}
    return Query(
        [Stream(STREAM, SCHEMA, time="n")],
        aggregates={"sum": agg.sum(f"{STREAM}.k")},
        group_window=Hopping(window, 1, start="first", end="end"),
        select=names,
    )


def _engine() -> Engine:
    return Engine([Stream(STREAM, SCHEMA, time="n")])


def _all(version: int, window: int, arrived: Sequence[Arrived]) -> list[OracleResult]:
    """Return the windows that end before the last arrival."""
    return [OracleResult(version, (first, first + window - 1)) for first in range(len(arrived) - window)]


SUM = Subject(_query, _engine, (STREAM,), _all, ("first", "last"), False)
_ABOUT = (
    "A sum over a sliding window of one stream, as in the paper: of 50 elements, one sum an arrival. The window "
    "changes to another size before arrival 1000 of 2000; rows after the change are pushed one by one. A sum comes "
    "with the arrival after its window. "
)

FIGURES = (
    Figure(
        "lifecycle-sum-fig14",
        _ABOUT + RESPONSE_TIME,
        points,
        partial(response, subject=SUM),
        source=f"{PAPER}, figure 14",
        plots=[plot("Response time", "response_ms", "ms")],
        tables=[table("Response time", "response_ms", "ms")],
        printed=PRINTED_RESPONSE_TIMES,
    ),
    Figure(
        "lifecycle-sum-fig15",
        _ABOUT + "All kinds are measured by the reference of the paper, also the handover, under which old windows "
        "that have begun end under the old version.",
        correctness_points,
        partial(correctness, subject=SUM),
        source=f"{PAPER}, figure 15",
        plots=[plot(title, column, "results", name=column) for column, title in COUNTS.items()],
        tables=[table(title, column, "results") for column, title in COUNTS.items()],
        printed=printed("lost", {"immediate": [(size, 49) for size in (10, 50, 100)], "delayed-drain": [(50, 49)]}),
    ),
    Figure(
        "lifecycle-sum-fig16",
        _ABOUT + "CPU time is that of the change and of the 1000 arrivals after it; what counts is the time beyond an "
        "immediate change.",
        points,
        partial(cost, subject=SUM),
        source=f"{PAPER}, figure 16",
        plots=[plot("CPU time beyond that of an immediate change", "extra_ms", "ms")],
        tables=[
            table("CPU time of 1000 arrivals", "cpu_ms", "ms"),
            table("CPU time beyond that of an immediate change", "extra_ms", "ms"),
        ],
    ),
)
