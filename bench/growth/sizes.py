"""Growth by how large the join is: joins, windows, pushes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.growth.curves import against, curves, decisions, slopes
from bench.growth.plots import BYTES, COMMON, PER_TUPLE, TIME, memory, size, throughput, told
from bench.growth.ways import DEFAULT, LOOP, MJOIN, WAYS, measure, point
from bench.harness.figure import Figure, Point, Row
from bench.harness.words import plain

SETTLE = 150_000
"""Arrivals before the clock runs where decisions are dear: the first ones come soon after each other."""


def _joins(full: bool) -> list[Point]:
    window = 1_000 if full else 500
    return [
        point(
            streams=joins + 1,
            window=window,
            keys=window,
            draw="permuted",
            push=10_000,
            joins=joins,
            settle=SETTLE,
            **size(full, 50_000, 10_000),
        )
        for joins in ((2, 5, 10, 20, 35, 50, 70, 100) if full else (2, 10, 30, 100))
    ]


JOINS = Figure(
    name="growth-joins",
    title="Throughput and bytes by the number of joins",
    about=(
        "2 to 100 joins on one key, each stream repeating a permutation of the keys of its own, with windows"
        " of as many rows as there are keys (1 000; quick: 500): every arrival meets one row of each other"
        " stream and gives one result, so an arrival has to look at one more row for each join, and a result"
        " has one more component. Before the clock runs, 150 000 arrivals more than fill the windows were taken, as the"
        " first decisions of a join of so many streams are dear and come soon after each other." + COMMON
    ),
    points=_joins,
    measure=measure,
    plots=[throughput("joins", "joins"), memory("joins", "joins", "state_per_tuple")],
    remarks=told("joins", "joins", {"ns": TIME, "state_per_tuple": PER_TUPLE}),
)


MOST_STORED = 1_000_000
"""Rows of a window up to which jisc is measured: filling its states takes longest, and a point should take minutes."""


def _windows(full: bool) -> list[Point]:
    windows = [10**k for k in range(3, 8)] if full else [1_000, 10_000, 100_000]
    return [
        point(
            streams=4,
            window=window,
            keys=window,
            push=10_000,
            ways=" ".join(WAYS if window <= MOST_STORED else (DEFAULT, MJOIN, LOOP)),
            **size(full, 400_000, 100_000),
        )
        for window in windows
    ]


WINDOWS = Figure(
    name="growth-window",
    title="Throughput and bytes by rows of a window",
    about=(
        "Four streams, keys uniform among as many as a window has rows (10^3 to 10^7; quick: to 10^5), so that an"
        " arrival gives about one result at every size: what changes is where in the memory its partners lie. Pushes of"
        " 10 000. jisc is left out above 10^6 rows, where filling its states would take longest." + COMMON
    ),
    points=_windows,
    measure=measure,
    plots=[
        throughput("window", "rows of a window"),
        memory("window", "rows of a window"),
        memory("window", "rows of a window", "state_per_tuple"),
    ],
    remarks=told("window", "window", {"ns": TIME, "bytes": BYTES, "state_per_tuple": PER_TUPLE}),
)


def _pushes(full: bool) -> list[Point]:
    found = []
    for push in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000) if full else (1, 10, 100, 1_000, 10_000, 100_000):
        # A round is a few thousand calls at most, and at least a push.
        least = 100_000 if full else 20_000
        found.append(
            point(
                streams=4,
                window=10_000,
                keys=10_000,
                push=push,
                **size(full, max(push, min(4_000 * push, least)), max(push, min(500 * push, least))),
            )
        )
    return found


def _push_remarks(rows: Sequence[Row]) -> list[str]:
    said = slopes(rows, "push", "push", {"ns": TIME, "bytes": BYTES})
    for way, own in curves(rows, "push", "ns").items():
        if len(own) > 1:
            (few, dear), (many, cheap) = own[0], own[-1]
            # ns = fixed / push + per arrival: two equations.
            fixed = (dear - cheap) / (1 / few - 1 / many)
            said.append(
                f"{way}: a call takes {fixed / 1e3:,.3g} µs beside its arrivals, by the difference of pushes of"
                f" {few:,.0f} and {many:,.0f}; as long as {plain(fixed / cheap)} arrivals of the latter."
                if fixed > 0
                else f"{way}: pushes of {few:,.0f} take no longer per arrival than pushes of {many:,.0f}."
            )
    return said + against(rows, "push", "push", DEFAULT, LOOP) + decisions(rows, "push", "push")


PUSHES = Figure(
    name="growth-batch",
    title="Throughput and bytes by arrivals of a push",
    about=(
        "Four streams, windows of 10 000 rows of 10 000 keys, in pushes of 1 to 10^6 arrivals (quick: to"
        " 10^5). A call has a fixed cost of Arrow and Python, and rings have to hold a push beside the"
        " windows." + COMMON
    ),
    points=_pushes,
    measure=measure,
    plots=[throughput("push", "arrivals of a push"), memory("push", "arrivals of a push")],
    remarks=_push_remarks,
)
