"""The queries of a hub in a manifest: their versions, and the unfinished changes.

Queries are saved as text (`eddy/query/text.py`), from which no query can be made. The program gives the queries again
at a restart, and they are compared with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from eddy.queries.changes import CHANGES
from eddy.queries.drain import DrainByTime
from eddy.queries.lineage import Succession
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.query.text import QUERY_FORM, Text, difference
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.hub.checks import columns_of
from eddy.spark.streaming.hub.lineage import HubHost, HubLineage
from stairs.storage.json_form import (
    FormError,
    boolean,
    fields,
    integer,
    list_of,
    mapping_of,
    one_of,
    optional,
    row_of,
    text,
)

OUTPUTS = get_args(JoinOutput)
_BATCH = integer(0)
_TICK = integer(-(1 << 63), (1 << 63) - 1)
SAVED = fields(
    {
        "lives": mapping_of(
            fields(
                {
                    "versions": list_of(
                        fields(
                            {
                                "number": _BATCH,
                                "query": QUERY_FORM,
                                "columns": list_of(row_of(text, text)),
                                "start": optional(_BATCH),
                                "warm": boolean,
                                "complete_from": _TICK,
                                "drain": optional(row_of(_BATCH, list_of(_TICK))),
                            }
                        )
                    ),
                    "output": one_of(OUTPUTS),
                    "successions": list_of(row_of(_BATCH, _BATCH, one_of(CHANGES))),
                }
            )
        ),
        "ended": mapping_of(list_of(row_of(text, text))),
        "numbers": mapping_of(_BATCH),
        "horizon": list_of(optional(_TICK)),
        "elements": list_of(row_of(text, _BATCH, text)),
    }
)
"""The form of the queries of a hub.

lives     the queries that have not ended
ended     the queries that ended with this micro-batch and may have results in it, and their columns
numbers   name -> number of the next version
horizon   per stream, the event time below which the log may lack rows
elements  elements that took effect with the micro-batch: query, number of its newest version, element
"""


def saved_lineage(
    lineage: HubLineage, text_of: Callable[[Version], Text], below: Callable[[Version], HubJoin]
) -> dict[str, Any]:
    """Return the live versions of a query, with the joins below them, and its unfinished changes."""
    return {
        "versions": [
            {
                "number": version.number,
                "query": text_of(version),
                "columns": columns_of(below(version).rows),
                "start": version.start,
                "warm": version.warm,
                "complete_from": version.complete_from,
                "drain": [version.drain.at, version.drain.newest] if isinstance(version.drain, DrainByTime) else None,
            }
            for version in lineage.live
        ],
        "output": lineage.output,
        "successions": [[link.old.number, link.new.number, link.how] for link in lineage.successions],
    }


def check_saved(saved: Mapping[str, Any], streams: int, batch: int) -> None:
    """Raise FormError for saved queries that contradict themselves; their form was checked before."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise FormError(otherwise)

    require(len(saved["horizon"]) == streams, f"the hub has {streams} streams, not {len(saved['horizon'])}")
    for name, lineage in saved["lives"].items():
        versions = lineage["versions"]
        numbers = [entry["number"] for entry in versions]
        require(bool(versions) and numbers == sorted(set(numbers)), f"query {name!r} has the versions {numbers[:20]}")
        require(saved["numbers"].get(name, -1) > numbers[-1], f"query {name!r} has no number for its next version")
        known = set(numbers)
        waits = {new for _, new, how in lineage["successions"] if CHANGES[how].waits}
        for old, new, _ in lineage["successions"]:
            require({old, new} <= known and old < new, f"query {name!r} has a change from version {old} to {new}")
        for version in versions:
            where = f"query {name!r}, version {version['number']}"
            require(version["start"] is not None or version["number"] in waits, f"{where} has no start")
            require(
                version["start"] is None or version["start"] <= batch + 1,
                f"{where} starts with batch {version['start']}",
            )
            if version["drain"] is not None:
                at, newest = version["drain"]
                require(at <= batch + 1, f"{where} drains from batch {at} on")
                require(len(newest) == len(version["query"]["streams"]), f"{where} drains {len(newest)} streams")


def matched(lineage: Mapping[str, Any], queries: Sequence[Query]) -> list[Query | None]:
    """Return the query of each saved version among some queries, None for a version without one."""
    return [
        next((query for query in queries if difference(version["query"], query) is None), None)
        for version in lineage["versions"]
    ]


def resumed_lineage(host: HubHost, name: str, lineage: Mapping[str, Any], queries: Sequence[Query]) -> HubLineage:
    """Return the saved lineage; `queries` has the query of each version."""
    versions = []
    for entry, query in zip(lineage["versions"], queries, strict=True):
        version = Version(entry["number"], query, entry["start"], entry["warm"], entry["complete_from"])
        if entry["drain"] is not None:
            at, newest = entry["drain"]
            version.drain = DrainByTime(at, newest)
        versions.append(version)
    by_number = {restored.number: restored for restored in versions}
    resumed = HubLineage(host, name, versions[-1], lineage["output"])
    # The elements of a hub take effect when they are given, so a saved change has already taken effect.
    links = [Succession(by_number[old], by_number[new], how, 0) for old, new, how in lineage["successions"]]
    resumed.replace(versions, links)
    return resumed


def saved_columns(lineage: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and types of the result columns of the newest saved version."""
    return [(name, kind) for name, kind in lineage["versions"][-1]["columns"]]


def has_operator(lineage: Mapping[str, Any]) -> bool:
    """Return whether the newest saved version has aggregates or `top`."""
    query = lineage["versions"][-1]["query"]
    return bool(query.get("groups") or query.get("top"))
