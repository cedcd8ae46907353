"""The sheet of a running streaming join: the figures for its page and for Prometheus.

All figures are those of micro-batches that were published. Any thread may make a sheet: the metrics have a lock, and
each publication of a micro-batch replaces the other figures as a whole.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eddy.pipeline.by_join import plans_in
from eddy.query.query import Query
from eddy.show.description import JoinPlan
from eddy.show.graph_svg import graph_svg
from eddy.show.plan_svg import plan_svg
from eddy.show.planned import planned
from eddy.show.sheet import Cell, Metric, PageTable, PlanDrawing, Sheet, watermark_figure
from eddy.show.times import time_seconds, time_text
from eddy.spark.streaming.driver.explanation import ranges
from eddy.spark.streaming.driver.metrics import EVICTIONS, STEPS
from jisc.plan.tree import read_plan
from stairs.errors import PlanError

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.micro_batch import MicroBatches

_COUNTERS = {
    "batches": "Micro-batches that were published since the start",
    "rows": "Rows that arrived since the start",
    "late": "Late rows since the start",
    "results": "Results since the start",
    "log_bytes": "Bytes written to the log since the start",
    "shipped_bytes": "Bytes of rows, tuples and results for groups that tasks sent to each other since the start",
    "live": "Joins of a key group whose engine was in memory, since the start",
    "mapped": "Joins of a key group whose engine was mapped from a file since the start",
    "loaded": "Key groups whose engine was loaded from the log since the start",
    "moved": "Key groups that changed partitions since the start",
    "split": "Key groups that were split since the start",
    "transitions": "Changes of plans and stored states since the start",
}
_GAUGES = {
    "batch": "The newest micro-batch that was published",
    "state_rows": "Rows that the log keeps for the state",
    "state_bytes": "Bytes of the engines that ran in the newest micro-batch",
    "memory_bytes": "Bytes of the engines in memory on the fullest host",
    "memory_peak_bytes": "Most bytes of engines in memory during the newest micro-batch, on the fullest host",
    "spilled_bytes": "Bytes of the files to which engines were spilled",
    "fragments": "Fragments into which key groups with a hot key are divided",
    "hot_keys": "Key groups whose load is that of one key, so that no move or split can divide it",
    "slowest_share": "Time of the slowest key group over the mean time of a group, in the newest micro-batch",
}
NEWEST = 20
"""Number of micro-batches, changes and moves in a table."""
PLANS = 8
"""Number of plans that are drawn; the plans of the most key groups are chosen."""
_BATCH = (
    "batch", "placement", "rows", "late", "results", "groups", "live", "mapped", "loaded", "moved", "split",
    "fragments", "hot_keys",
    "transitions", "state_rows", "state_bytes", "memory_bytes", "spilled_bytes", "slowest_share", "log_seconds",
    "join_seconds", "commit_seconds", "publish_seconds",
)  # fmt: skip
_GROUP = (
    "group", "partition", "batch", "source", "rows", "late", "results", "state_bytes", "plan", "reason",
    "ready_seconds", "join_seconds",
)  # fmt: skip
_NODE = ("source", "rows", "results", "state_bytes", "ready_seconds", "join_seconds")

_MOVE = (
    "batch", "kind", "group", "from", "to", "child", "how", "by", "refused", "fullness_before",
    "fullness_predicted", "fullness_measured",
)  # fmt: skip


def join_sheet(name: str, batches: MicroBatches) -> Sheet:
    """Return the sheet of a join of this name. O(key groups)."""
    groups = batches.metrics.newest_groups()
    published = batches.metrics.published_at
    return Sheet(
        title="streaming join",
        name=name,
        label="query",
        at=time.time(),
        figures=tuple(_figures(batches, published)),
        plans=tuple(_plans(batches.query, groups)),
        tables=tuple(table for table in _tables(batches, groups) if table.rows),
        note=f"{batches.query!r}, checkpoint {batches.checkpoint}",
    )


def _figures(batches: MicroBatches, published: float | None) -> Iterator[Metric]:
    totals, newest = batches.metrics.totals(), batches.metrics.row() or {}
    for name, text in _COUNTERS.items():
        unit = "bytes" if name.endswith("bytes") else ""
        yield Metric(name, text, totals.get(name, 0), counter=True, unit=unit)  # type: ignore[arg-type]
    for step in STEPS:
        seconds = totals.get(f"{step}_seconds", 0.0)
        text = "Seconds that a step of all micro-batches took since the start"
        yield Metric("seconds", text, seconds, counter=True, unit="seconds", labels=(("step", step),))
    for level in EVICTIONS:
        text = "Evictions of engines, by level, since the start"
        yield Metric("evictions", text, totals.get(level, 0), counter=True, labels=(("level", level),))
    for name, text in _GAUGES.items():
        unit = "bytes" if name.endswith("bytes") else ""
        yield Metric(name, text, newest.get(name), unit=unit)  # type: ignore[arg-type]
    ticks, kind = newest.get("watermark"), batches.query.time_type
    yield watermark_figure(ticks, time_seconds(ticks, kind), time_text(ticks, kind), "Watermark of the engines")
    yield Metric(
        "published_timestamp_seconds", "When the newest micro-batch was published, Unix time", published, unit="time"
    )


def _plans(query: Query, groups: list[dict[str, Any]]) -> Iterator[PlanDrawing]:
    of_plan: dict[str, list[int]] = defaultdict(list)
    for row in groups:
        of_plan[row["plan"]].append(row["group"])
    if not of_plan:
        yield PlanDrawing(
            "join graph", "no micro-batch has run", tuple(graph_svg(join) for join in _joins(query, None))
        )
    common = sorted(of_plan.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    for k, (plan, members) in enumerate(common[:PLANS]):
        joins = _joins(query, plan)
        graphs = tuple(map(graph_svg, joins)) if k == 0 else ()
        yield PlanDrawing(f"key groups {ranges(sorted(members))}", plan, (*graphs, *map(plan_svg, joins)))


def _joins(query: Query, plan: str | None) -> list[JoinPlan]:
    """Return the inner joins of a query with the plans in a text; none if the plans belong to other joins (a hub)."""
    try:
        texts = plans_in(query, plan)
        return [
            planned(join, None if path not in texts else read_plan(texts[path], join.graph))
            for path, join in query.inner_joins().items()
        ]
    except PlanError:
        return []


def _tables(batches: MicroBatches, groups: list[dict[str, Any]]) -> Iterator[PageTable]:
    yield PageTable("Queries", ("query", "state", "version", "results", "text"), batches.query_rows())
    yield PageTable(
        "Changes of plan, newest first",
        ("batch", "key group", "plan", "why"),
        [
            (row["batch"], row["group"], row["plan"], row["reason"])
            for row in reversed(batches.metrics.newest_changes())
        ],
    )
    moves = batches.key_groups.records.newest(NEWEST)
    yield PageTable("Moves, splits and fragments, newest first", _MOVE, [_row(move, _MOVE) for move in reversed(moves)])
    yield PageTable("Key groups", _GROUP, [_row(row, _GROUP) for row in sorted(groups, key=lambda row: row["group"])])
    nodes = batches.metrics.newest_nodes()
    yield PageTable("Nodes", ("node", *_NODE), [(node["partition"], *_row(node, _NODE)) for node in nodes])
    newest = reversed(batches.metrics.rows(NEWEST))
    yield PageTable("Micro-batches, newest first", _BATCH, [_row(batch, _BATCH) for batch in newest])
    yield PageTable("Late rows", ("stream", "late rows"), list(batches.late_counts.items()))
    yield PageTable("Repaired", ("what",), [(text,) for text in batches.recoveries])


def _row(figures: dict[str, Any], names: tuple[str, ...]) -> tuple[Cell, ...]:
    values = (figures.get(name) for name in names)
    return tuple(round(value, 4) if isinstance(value, float) else value for value in values)
