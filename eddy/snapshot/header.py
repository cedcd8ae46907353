"""The header of a snapshot: the query, the options, the counters; its form, and whether its values fit each other.

The digest of a snapshot detects damage, but anybody can write one. Therefore the reader checks every value of the
header here, before it uses any of them.
"""

from __future__ import annotations

from typing import Any

from eddy.aggregates.groups import Groups
from eddy.aggregates.storage import HEADER as GROUPS
from eddy.ingest.clock import CLOCK_FORM
from eddy.query.query import Query
from eddy.query.text import QUERY_FORM, difference
from eddy.results.modes import OUTPUTS
from eddy.routing.strategies import check_background, check_purge, check_store
from eddy.storage.json_form import Form, boolean, fields, integer, list_of, mapping, one_of, optional, row_of, text
from eddy.storage.sections import SNAPSHOT, FileKind
from jisc.plan.tree import Tree, check_connected, parse
from jisc.strategies import STRATEGIES
from jisc.strategies.base import PURGES
from stairs.errors import InputError, PlanError, SnapshotError
from stairs.graph import WindowKind
from stairs.memory.allowance import Allowance
from stairs.stems import RENUMBER_AT

_COUNT = integer(0, 1 << 62)
_STORE = optional(list_of(text))
_POSITIVE = optional(integer(1, 1 << 1000))
_HEADER: Form = fields(
    {
        "query": mapping,
        "options": fields(
            {
                "plan": text,
                "policy": text,
                "strategy": one_of(STRATEGIES),
                "store": _STORE,
                "max_bytes": _POSITIVE,
                "decide_every": _POSITIVE,
                "statistics": boolean,
                "background": _COUNT,
                "output": one_of(OUTPUTS),
                "count_only": boolean,
                "ids_only": boolean,
                "renumber_at": integer(1, RENUMBER_AT),
                "bounded": boolean,
                "ordered": boolean,
                "purge": one_of(PURGES),
            }
        ),
        "schedule": list_of(row_of(_COUNT, text, _STORE)),
        "counts": fields(
            {
                "results": _COUNT,
                "deleted": _COUNT,
                "late": list_of(_COUNT),
                "late_dropped": list_of(_COUNT),
                "failed": _COUNT,
                "failed_dropped": _COUNT,
                "arrivals": _COUNT,
                "combinations": _COUNT,
            }
        ),
        "streams": list_of(fields({"first": _COUNT, "rows": integer(0, RENUMBER_AT), "columns": list_of(text)})),
        "clock": optional(CLOCK_FORM),
        "groups": optional(GROUPS),
        "finished": boolean,
    }
)


_require = SNAPSHOT.require


def check_header(header: dict[str, Any], query: Query) -> None:
    """Raise SnapshotError unless the header is that of a snapshot of this query and its values fit each other."""
    SNAPSHOT.check(header, fields({"query": QUERY_FORM}, ignored=True))
    found = difference(header["query"], query, results=False)
    if found is not None:
        raise SnapshotError(f"the snapshot is of another query: {found}")
    SNAPSHOT.check(header, _HEADER)
    found = difference(header["query"], query) if header["options"]["output"] == "changelog" else None
    if found is not None:
        raise SnapshotError(
            f"the snapshot is of another query: {found}. A changelog takes back results as it gave them, so where,"
            " having and select stay the same"
        )
    _check_options(header, query)
    _check_counts(header, query)


def _check_options(header: dict[str, Any], query: Query) -> None:
    """Check that a runtime of this query can have these options and scheduled transitions."""
    options, schedule = header["options"], header["schedule"]
    kind, graph = STRATEGIES[options["strategy"]], query.graph
    _require(not (options["count_only"] and options["ids_only"]), "both count_only and ids_only are set")
    _require(not (options["count_only"] and options["ordered"]), "both count_only and ordered are set")
    _require(kind.changes or not schedule, f"strategy {kind.name!r} has a fixed plan, but transitions are scheduled")
    for at, _, _ in schedule:
        _require(at >= header["counts"]["arrivals"], f"a transition is scheduled at arrival {at}, which is past")
    check_groups(header, query, SNAPSHOT)
    try:
        for plan, store in ((options["plan"], options["store"]), *(one[1:] for one in schedule)):
            check_store(kind, _tree(plan, query), graph, store)
        check_background(kind, options["background"])
        check_purge(kind, options["purge"])
    except (PlanError, InputError) as problem:
        raise SNAPSHOT.wrong(str(problem)) from problem


def check_groups(header: dict[str, Any], query: Query, kind: FileKind) -> None:
    """Raise the error of a kind of file unless a runtime of a query can have the groups and options of a header."""
    kind.require(
        (header["groups"] is None) == (query.aggregation is None), "only one of the snapshot and the query has groups"
    )
    if query.aggregation is None:
        return
    options = header["options"]
    kind.require(not (options["count_only"] or options["ids_only"]), "groups exclude count_only and ids_only")
    kind.require(not options.get("ordered"), "groups exclude ordered")
    try:
        Groups(query, options["output"] == "changelog", options["bounded"], Allowance())
    except InputError as problem:
        raise kind.wrong(str(problem)) from problem


def _check_counts(header: dict[str, Any], query: Query) -> None:
    """Check that the counters fit each other and the windows of the query."""
    graph, counts, streams = query.graph, header["counts"], header["streams"]
    whole = len(streams) == len(counts["late"]) == len(counts["late_dropped"]) == graph.n_streams
    _require(whole, f"the query has {graph.n_streams} streams, the snapshot has counters for another number")
    fits = all(lost <= late for lost, late in zip(counts["late_dropped"], counts["late"], strict=True))
    _require(fits, "more late rows were dropped than arrived")
    _require(counts["failed_dropped"] <= counts["failed"], "more failed rows were dropped than there were")
    for name, window, stream in zip(graph.names, graph.windows, streams, strict=True):
        first, rows = stream["first"], stream["rows"]
        if window.kind == WindowKind.ROWS:
            full = rows == window.size or (first == 0 and rows < window.size)
            _require(full, f"stream {name} has {rows} tuples from arrival {first} on in a window of {window.size} rows")
        elif window.kind == WindowKind.UNBOUNDED:
            _require(first == 0, f"stream {name} has evicted {first} tuples from an unbounded window")
    arrived = sum(stream["first"] + stream["rows"] for stream in streams)
    _require(arrived == counts["arrivals"], f"arrivals is {counts['arrivals']}, the streams have {arrived}")
    found, reported = counts["combinations"], counts["results"] + counts["deleted"]
    _require(reported <= found, f"{reported} results were returned from {found} combinations")
    clocks = "there is a clock, but the query has no Range window, or the other way round"
    _require(graph.timed == (header["clock"] is not None), clocks)


def _tree(plan: str, query: Query) -> Tree:
    tree = parse(plan, query.graph.names)
    check_connected(tree, query.graph)
    return tree
