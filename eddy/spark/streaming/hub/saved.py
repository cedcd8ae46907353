"""The queries of a hub in a manifest: their versions, and the unfinished changes.

Queries are saved as text (`eddy/query/text.py`), from which no query can be made. The program gives the queries again
at a restart, and they are compared with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.queries.changes import CHANGES
from eddy.queries.drain import DrainByTime
from eddy.queries.life import Life, Succession, VersionHost
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.query.text import QUERY_FORM, Text, difference
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
                                "start": optional(_BATCH),
                                "warm": boolean,
                                "complete_from": _TICK,
                                "drain": optional(row_of(_BATCH, list_of(_TICK))),
                            }
                        )
                    ),
                    "successions": list_of(row_of(_BATCH, _BATCH, one_of(CHANGES))),
                }
            )
        ),
        "numbers": mapping_of(_BATCH),
        "horizon": list_of(optional(_TICK)),
        "elements": list_of(row_of(text, _BATCH, text)),
    }
)
"""The form of the queries of a hub.

lives     the queries that have not ended
numbers   name -> number of the next version
horizon   per stream, the event time below which the log may lack rows
elements  elements that took effect with the micro-batch: query, number of its newest version, element
"""


def saved_life(life: Life, text_of: Callable[[Version], Text]) -> dict[str, Any]:
    """Return the live versions of a query, and its unfinished changes."""
    return {
        "versions": [
            {
                "number": one.number,
                "query": text_of(one),
                "start": one.start,
                "warm": one.warm,
                "complete_from": one.complete_from,
                "drain": [one.drain.at, one.drain.newest] if isinstance(one.drain, DrainByTime) else None,
            }
            for one in life.live
        ],
        "successions": [[link.old.number, link.new.number, link.how] for link in life.successions],
    }


def check_saved(saved: Mapping[str, Any], streams: int, batch: int) -> None:
    """Raise FormError for saved queries that contradict themselves; their form was checked before."""

    def require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise FormError(otherwise)

    require(len(saved["horizon"]) == streams, f"the hub has {streams} streams, not {len(saved['horizon'])}")
    for name, life in saved["lives"].items():
        versions = life["versions"]
        numbers = [one["number"] for one in versions]
        require(bool(versions) and numbers == sorted(set(numbers)), f"query {name!r} has the versions {numbers[:20]}")
        require(saved["numbers"].get(name, -1) > numbers[-1], f"query {name!r} has no number for its next version")
        known = set(numbers)
        waits = {new for _, new, how in life["successions"] if CHANGES[how].waits}
        for old, new, _ in life["successions"]:
            require({old, new} <= known and old < new, f"query {name!r} has a change from version {old} to {new}")
        for one in versions:
            where = f"query {name!r}, version {one['number']}"
            require(one["start"] is not None or one["number"] in waits, f"{where} has no start")
            require(one["start"] is None or one["start"] <= batch + 1, f"{where} starts with batch {one['start']}")
            if one["drain"] is not None:
                at, newest = one["drain"]
                require(at <= batch + 1, f"{where} drains from batch {at} on")
                require(len(newest) == len(one["query"]["streams"]), f"{where} drains {len(newest)} streams")


def matched(life: Mapping[str, Any], queries: Sequence[Query]) -> list[Query | None]:
    """Return the query of each saved version among some queries, None for a version without one."""
    return [
        next((query for query in queries if difference(one["query"], query) is None), None) for one in life["versions"]
    ]


def resumed_life(host: VersionHost, name: str, life: Mapping[str, Any], queries: Sequence[Query]) -> Life:
    """Return the saved life; `queries` has the query of each version."""
    versions = []
    for one, query in zip(life["versions"], queries, strict=True):
        version = Version(one["number"], query, one["start"], one["warm"], one["complete_from"])
        if one["drain"] is not None:
            at, newest = one["drain"]
            version.drain = DrainByTime(at, newest)
        versions.append(version)
    by_number = {one.number: one for one in versions}
    found = Life(host, name, versions[-1])
    # The elements of a hub take effect when they are given, so a saved change has already taken effect.
    links = [Succession(by_number[old], by_number[new], how, 0) for old, new, how in life["successions"]]
    found.resume(versions, links)
    return found


def saved_columns(life: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and types of the result columns of the newest saved version."""
    query = life["versions"][-1]["query"]
    types = {(stream["name"], column): kind for stream in query["streams"] for column, kind in stream["columns"]}
    return [(name, types.get((stream, column), "unknown")) for name, stream, column in query["select"]]
