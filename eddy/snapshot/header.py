"""The header of a snapshot: the query, the options, the counters; its form, and whether its values fit each other.

The digest of a snapshot detects damage, but anybody can write one. Therefore the reader checks every value of the
header here, before it uses any of them.
"""

from __future__ import annotations

from typing import Any

from eddy.aggregates.groups import Groups
from eddy.ingest.clock import CLOCK_FORM
from eddy.query.query import Query
from eddy.query.result_key import result_key
from eddy.query.text import QUERY_FORM, difference
from eddy.results.modes import OUTPUTS, takes_back
from eddy.routing.strategies import check_background, check_purge, check_store
from eddy.storage.file_kind import SNAPSHOT
from eddy.tops.modes import mode_of
from jisc.plan.tree import Tree, check_connected, parse
from jisc.strategies import STRATEGIES
from jisc.strategies.base import PURGES
from stairs.errors import InputError, PlanError, SnapshotError
from stairs.graph import WindowKind
from stairs.memory.allowance import Allowance
from stairs.stems import RENUMBER_AT
from stairs.storage.json_form import Form, boolean, fields, integer, list_of, mapping, one_of, optional, row_of, text
from stairs.storage.parts import Parts

COUNTS = ("arrivals", "results", "deleted")
_COUNT = integer(0, 1 << 62)
_STORE = optional(list_of(text))
_POSITIVE = optional(integer(1, 1 << 1000))
_ROWS = integer(0, RENUMBER_AT)
_JOIN: Form = fields(
    {
        "options": fields(
            {
                "plan": text,
                "policy": text,
                "strategy": one_of(STRATEGIES),
                "store": _STORE,
                "decide_every": _POSITIVE,
                "statistics": boolean,
                "background": _COUNT,
                "renumber_at": integer(1, RENUMBER_AT),
                "purge": one_of(PURGES),
            }
        ),
        "schedule": list_of(row_of(_COUNT, text, _STORE)),
        "counts": fields({"arrivals": _COUNT, "combinations": _COUNT, "results": _COUNT, "deleted": _COUNT}),
        "streams": list_of(fields({"first": _COUNT, "rows": _ROWS, "columns": list_of(text)})),
    }
)
_HEADER: Form = fields(
    {
        "query": mapping,
        "options": fields(
            {
                "max_bytes": _POSITIVE,
                "output": one_of(OUTPUTS),
                "count_only": boolean,
                "ids_only": boolean,
                "bounded": boolean,
                "ordered": boolean,
            }
        ),
        "counts": fields(dict.fromkeys(COUNTS, _COUNT)),
        "joins": list_of(_JOIN),
        "partners": optional(list_of(fields({"first": _COUNT, "rows": _ROWS, "live": _COUNT}))),
        "clock": optional(CLOCK_FORM),
        "finished": boolean,
    }
)


_require = SNAPSHOT.require


def read_header(parts: Parts, query: Query) -> dict[str, Any]:
    """Return the header. Raises SnapshotError unless it is that of this query, and its values fit each other."""
    parts.value("header", fields({"query": QUERY_FORM}, ignored=True))
    header: dict[str, Any] = parts.value("header", _HEADER)
    changelog = takes_back(header["options"]["output"])
    query = query.for_changelog() if changelog else query
    # The rows that branches keep have the columns of one query.
    differing = difference(header["query"], query, results=query.tree is not None)
    if differing is not None:
        raise SnapshotError(f"the snapshot is of another query: {differing}")
    differing = difference(header["query"], query) if changelog else None
    if differing is not None:
        raise SnapshotError(
            f"the snapshot is of another query: {differing}. A changelog takes back results as it gave them, so where,"
            " having and select stay the same"
        )
    _check_options(header, query)
    clocks = "there is a clock, but the query has no Range window, or the other way round"
    clock = header["clock"]
    _require(query.graph.timed == (clock is not None), clocks)
    timed = query.graph.n_streams - len(query.timeless)
    _require(not clock or len(clock["newest"]) == timed, "its clock is of another number of streams")
    joins = query.inner_joins()
    _require(len(header["joins"]) == len(joins), f"it has {len(header['joins'])} joins, the query {len(joins)}")
    for saved, inner in zip(header["joins"], joins.values(), strict=True):
        _check_plans(saved, inner)
        _check_windows(saved, inner)
    if query.tree is not None:
        _check_partners(header, query)
    else:
        _require(header["partners"] is None, "it has rows of branches, the query has none")
        (only,) = header["joins"]
        for name in COUNTS:
            _require(only["counts"][name] == header["counts"][name], f"its join has another number of {name}")
    return header


def _check_options(header: dict[str, Any], query: Query) -> None:
    """Check that a runtime of this query can have these options."""
    options = header["options"]
    _require(not (options["count_only"] and options["ids_only"]), "both count_only and ids_only are set")
    _require(not (options["count_only"] and options["ordered"]), "both count_only and ordered are set")
    _require(not (query.tree is not None and options["ordered"]), "branches exclude ordered")
    if options["output"] == "upsert":
        _require(not (options["count_only"] or options["ids_only"]), "upsert excludes count_only and ids_only")
        try:
            result_key(query)
        except InputError as problem:
            raise SNAPSHOT.wrong(str(problem)) from problem
    _check_groups(header, query)
    _check_top(header, query)


def _check_plans(saved: dict[str, Any], query: Query) -> None:
    """Check that a join of this query can have these options and scheduled transitions."""
    options, schedule = saved["options"], saved["schedule"]
    kind = STRATEGIES[options["strategy"]]
    _require(kind.changes or not schedule, f"strategy {kind.name!r} has a fixed plan, but transitions are scheduled")
    for at, _, _ in schedule:
        _require(at >= saved["counts"]["arrivals"], f"a transition is scheduled at arrival {at}, which is past")
    try:
        for plan, store in ((options["plan"], options["store"]), *(transition[1:] for transition in schedule)):
            check_store(kind, _tree(plan, query), query.graph, store)
        check_background(kind, options["background"])
        check_purge(kind, options["purge"])
    except (PlanError, InputError) as problem:
        raise SNAPSHOT.wrong(str(problem)) from problem


def _check_groups(header: dict[str, Any], query: Query) -> None:
    """Check that a runtime of this query can have these groups."""
    if query.aggregation is None:
        return
    options = header["options"]
    _require(not (options["count_only"] or options["ids_only"]), "groups exclude count_only and ids_only")
    _require(not options["ordered"], "groups exclude ordered")
    try:
        Groups(query, options["output"], options["bounded"], Allowance())
    except InputError as problem:
        raise SNAPSHOT.wrong(str(problem)) from problem


def _check_top(header: dict[str, Any], query: Query) -> None:
    """Check that a runtime of this query can have these first rows of groups."""
    if query.ranking is None:
        return
    options = header["options"]
    _require(not any(options[name] for name in ("count_only", "ids_only", "ordered")), "top excludes these options")
    try:
        mode_of(query, options["output"], options["bounded"])
    except InputError as problem:
        raise SNAPSHOT.wrong(str(problem)) from problem


def _check_windows(saved: dict[str, Any], query: Query) -> None:
    """Check that the counters of a join fit each other and its windows."""
    graph, counts, streams = query.graph, saved["counts"], saved["streams"]
    whole = len(streams) == graph.n_streams
    _require(whole, f"the query has {graph.n_streams} streams, the snapshot has counters for another number")
    for i, (name, window, stream) in enumerate(zip(graph.names, graph.windows, streams, strict=True)):
        first, rows = stream["first"], stream["rows"]
        if window.kind == WindowKind.ROWS:
            full = rows == window.size or (first == 0 and rows < window.size)
            _require(full, f"stream {name} has {rows} tuples from arrival {first} on in a window of {window.size} rows")
        elif window.kind == WindowKind.UNBOUNDED and i not in graph.tables:
            _require(first == 0, f"stream {name} has evicted {first} tuples from an unbounded window")
    arrived = sum(stream["first"] + stream["rows"] for stream in streams)
    _require(arrived == counts["arrivals"], f"arrivals is {counts['arrivals']}, the streams have {arrived}")
    combinations, reported = counts["combinations"], counts["results"] + counts["deleted"]
    _require(reported <= combinations, f"{reported} results were returned from {combinations} combinations")


def _check_partners(header: dict[str, Any], query: Query) -> None:
    """Check that the rows that branches keep fit the joins."""
    streams = header["partners"]
    _require(streams is not None and len(streams) == len(query.streams), "it has another number of streams")
    ends = [stream["first"] + stream["rows"] for stream in streams]
    _require(sum(ends) == header["counts"]["arrivals"], "arrivals is not the sum of the arrivals of all streams")
    counted = {i for path in query.inner_joins() for i in path} - set(query.tables_at)
    for i, (stream, end) in enumerate(zip(streams, ends, strict=True)):
        # The versions of a table that live are known by their keys.
        first, last = (stream["first"], end) if i in counted else (0, 0)
        _require(first <= stream["live"] <= last, f"stream {query.streams[i].name} has live rows that it does not keep")
    for k, (path, saved) in enumerate(zip(query.inner_joins(), header["joins"], strict=True)):
        arrived = [stream["first"] + stream["rows"] for stream in saved["streams"]]
        _require(arrived == [ends[i] for i in path], f"join {k} has other arrivals than the streams")
        lows = [stream["first"] for stream in saved["streams"]]
        fits = all(streams[i]["first"] <= low for i, low in zip(path, lows, strict=True))
        _require(fits, f"join {k} lacks payload")


def _tree(plan: str, query: Query) -> Tree:
    tree = parse(plan, query.graph.names)
    check_connected(tree, query.graph)
    return tree
