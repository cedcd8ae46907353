"""The sheet of a runtime or an engine in this process.

`observe` reads the engine, in its thread or in turn; `sheet_of` renders what it returned, in any thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Protocol

from eddy.pipeline.turn import Turn
from eddy.show.description import Description, JoinPlan
from eddy.show.graph_svg import graph_svg
from eddy.show.html import Timeline
from eddy.show.plan_svg import plan_svg
from eddy.show.sheet import Cell, Metric, PageTable, PlanDrawing, Sheet, watermark_figure
from eddy.show.timeline_svg import timeline_svg

NEWEST = 30
"""Changes in a table."""


class Watchable(Protocol):
    """A runtime, or an engine of several queries."""

    _turn: Turn

    def _description(self, predict: bool = True) -> Description: ...

    def _timelines(self) -> list[Timeline]: ...


@dataclass(frozen=True)
class ObservedFigures:
    """All figures read from an engine at one moment."""

    at: float
    description: Description
    timelines: tuple[Timeline, ...]


def observe(shown: Watchable) -> ObservedFigures:
    """Return the present figures, without predictions. O(streams + hops + changes)."""
    return ObservedFigures(time.time(), shown._description(predict=False), tuple(shown._timelines()))


def sheet_of(seen: ObservedFigures, name: str) -> Sheet:
    """Return the sheet of an engine of this name."""
    shown = seen.description
    return Sheet(
        title=shown.title,
        name=name,
        label="engine",
        at=seen.at,
        figures=tuple(_figures(seen)),
        plans=tuple(_drawn(join, line) for join, line in zip(shown.joins, seen.timelines, strict=True)),
        tables=tuple(table for table in _tables(seen) if table.rows),
        note=shown.query or "",
    )


def _drawn(join: JoinPlan, line: Timeline) -> PlanDrawing:
    svgs = graph_svg(join), plan_svg(join), timeline_svg(line.history, line.position, line.plan)
    return PlanDrawing(join.title, join.plan, svgs)


def _figures(seen: ObservedFigures) -> Iterator[Metric]:
    shown, joins = seen.description, seen.description.joins
    yield Metric("arrivals", "Rows that arrived", shown.arrivals, counter=True)
    yield Metric("results", "Results", shown.results, counter=True)
    yield Metric("late", "Late rows", shown.late, counter=True)
    yield Metric("changes", "Changes of plans and stored states", sum(plan.changes for plan in joins), counter=True)
    yield Metric("state_bytes", "Bytes of all state", shown.bytes, unit="bytes")
    pushes = [plan.pushes for plan in joins if plan.pushes is not None]
    if pushes:
        mean = sum(figures.seconds / figures.count for figures in pushes)
        yield Metric("push_seconds", "Mean time of the last pushes", mean, unit="seconds")
        yield Metric(
            "push_longest_seconds",
            "Longest of the last pushes",
            max(figures.longest for figures in pushes),
            unit="seconds",
        )
        seconds, arrivals = sum(figures.seconds for figures in pushes), sum(figures.arrivals for figures in pushes)
        if arrivals:
            yield Metric("arrival_ns", "Time of an arrival in the last pushes", 1e9 * seconds / arrivals, unit="ns")
    yield watermark_figure(shown.watermark, shown.watermark_seconds, shown.watermark_time, "Watermark")
    yield Metric("figures_timestamp_seconds", "When these figures were read", seen.at, unit="time")
    several = len(joins) > 1
    for join in joins:
        join_labels = (("join", join.title),) if several else ()
        if join.pushes is not None:
            spread = (*join.pushes.buckets, (inf, join.pushes.total))
            text = "Seconds of pushes"
            yield Metric("push_duration_seconds", text, join.pushes.spent, labels=join_labels, buckets=spread)
        for stem in join.stems():
            if stem.figures is None:
                continue
            labels = (*join_labels, ("stream", stem.stream))
            yield Metric("stream_arrivals", "Rows of a stream that arrived", stem.figures.arrivals, True, "", labels)
            yield Metric("stream_rows", "Rows in the window of a stream", stem.figures.rows, False, "", labels)
    for query in shown.queries:
        labels = (("query", query.name),)
        yield Metric("query_results", "Results of a query", query.results, True, "", labels)


def _tables(seen: ObservedFigures) -> Iterator[PageTable]:
    shown = seen.description
    yield PageTable(
        "Queries",
        ("query", "state", "newest version", "live versions", "results", "text"),
        [
            (query.name, query.state, query.version, query.versions, query.results, query.text)
            for query in shown.queries
        ],
    )
    yield PageTable(
        "Changes of plan, newest first",
        ("arrival", "join", "plan", "stored", "why", "ns per arrival before", "after"),
        _changes(seen),
    )
    yield PageTable(
        "Control elements, newest first",
        ("arrival", "query", "version", "event"),
        [(element.position, element.query, element.version, element.event) for element in reversed(shown.elements)],
    )
    yield PageTable(
        "Streams",
        ("join", "stream", "window", "rows", "bytes", "arrivals", "late", "no-good marks", "matches per probe",
         "share of probe time"),
        [row for join in shown.joins for row in _stems(join)],
    )  # fmt: skip
    yield PageTable(
        "Memory",
        ("join", "what", "bytes"),
        [(join.title, what, taken) for join in shown.joins for what, taken in join.memory],
    )
    yield PageTable(
        "Decisions",
        ("join", "strategy", "policy", "samples", "decisions", "changes", "seconds"),
        [
            (join.title, join.strategy, why.policy, why.samples, why.decisions, why.changes, round(why.seconds, 3))
            for join in shown.joins
            if (why := join.reasons) is not None
        ],
    )
    yield PageTable("Filters", ("filter",), [(line,) for line in shown.filters])


def _stems(join: JoinPlan) -> Iterator[tuple[Cell, ...]]:
    for stem in join.stems():
        seen = stem.figures
        if seen is not None:
            rate = round(seen.matches / seen.probes, 3) if seen.probes else None
            time_share = None if seen.time is None else f"{seen.time:.0%}"
            yield (
                join.title, stem.stream, stem.window, seen.rows, seen.bytes, seen.arrivals, seen.late, seen.marks, rate,
                time_share,
            )  # fmt: skip


def _changes(seen: ObservedFigures) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [
        (
            row["position"], join.title, row["new"], row["stored"], row["reason"],
            round(row["ns_before"]) or None, round(row["ns_after"]) or None,
        )
        for join, line in zip(seen.description.joins, seen.timelines, strict=True)
        for row in line.history[-NEWEST:]
    ]  # fmt: skip
    return sorted(rows, key=itemgetter(0), reverse=True)[:NEWEST]
