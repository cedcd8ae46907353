"""The test tries each cell of the table in the guide: the calls of an engine, and whether a hub runs the query.

A cell is a call in the middle of a stream. Where it is possible, a restored engine continues as the one that went on.
Where it is refused, the message has one of the reasons of the guide, and nothing has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import AsOf, Branch, Query, Range, Rows, Stream, Table, Top, Tumbling, Unbounded, VersionedTable, agg
from eddy.queries.alone import Output
from eddy.queries.changes import CHANGES
from eddy.queries.query import RunningQuery
from eddy.spark.streaming.hub.checks import check_query
from eddy.spark.streaming.hub.elements import ChangeElement, StartElement, StopElement, When
from eddy.spark.streaming.hub.hub import KINDS as HUB_KINDS
from eddy.spark.streaming.hub.queries import HubQueries
from eddy.spark.streaming.hub.query_sinks import QuerySinks
from eddy.spark.streaming.hub.sources import HubStreams, Source
from eddy.spark.streaming.sinks import NullSink
from eddy.streams.windows import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("n", pa.int64())])
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "queries.md"
HUB_GUIDE = GUIDE.with_name("hub.md")
BEGIN, END = "<!-- the matrix, as tests/eddy/test_engine_matrix.py tries it -->\n", "<!-- end of the matrix -->\n"
TABLE = Table("D", SCHEMA, key="k", ops="column")
VERSIONS = VersionedTable("V", SCHEMA, key="k", time="t")
ON = ["R.k = S.k"]
GROUPS: dict[str, Any] = {"group_by": ["R.k"], "aggregates": {"c": agg.count()}}


def span(n: int) -> Range:
    return Range(timedelta(seconds=n))


def streams(window: Window | None = None, names: str = "RS") -> list[Stream]:
    return [Stream(name, SCHEMA, window=window, time="t") for name in names]


def join(window: Window, on: list[str] | None = None, **more: Any) -> Query:
    return Query(streams(window), ON if on is None else on, **more)


def counted(n: int) -> Query:
    return join(span(9), group_window=Tumbling(timedelta(seconds=n - 3)), **GROUPS)


def left(n: int) -> Query:
    return Query(streams(span(n), "R"), branches=[Branch(streams(span(n), "S"), ON, "left")])


def as_of(n: int) -> Query:
    return Query(streams(span(n), "R"), as_of=[AsOf(VERSIONS, ["V.k = R.k"], how="left")])


def over_windows(n: int) -> Query:
    groups = {**GROUPS, "group_by": {"k": "R.k"}}
    windows = Query(streams(span(n), "R"), group_window=Tumbling(timedelta(seconds=2), time="R.t"), **groups)
    return Query([*streams(span(n), "S"), Stream("W", windows, window=span(n), time="window_end")], ["S.k = W.k"])


def followed(n: int) -> Query:
    return Query([*streams(span(n), "R"), TABLE], ["R.k = D.k"])


KINDS: dict[str, tuple[Callable[[int], Query], Output]] = {
    "joins": (lambda n: join(span(n)), "append"),
    "joins with `Rows` windows": (lambda n: join(Rows(n)), "append"),
    "joins with `Unbounded` windows": (lambda n: join(Unbounded(), where=pc.field("R.n") > n), "append"),
    "joins with comparisons": (lambda n: join(span(n), [*ON, "R.n < S.n"]), "append"),
    "joins without equalities": (lambda n: join(span(n), ["R.n < S.n"]), "append"),
    "rows of one stream": (lambda n: Query(streams(span(n), "R")), "append"),
    "groups in windows of event time": (counted, "append"),
    "branches": (left, "append"),
    "look-ups in tables": (lambda n: Query(streams(span(n), "R"), as_of=[AsOf(TABLE, ["D.k = R.k"])]), "append"),
    "as-of joins with versioned tables": (as_of, "append"),
    "changelog of as-of joins": (as_of, "changelog"),
    "joins with final rows of a query": (over_windows, "append"),
    "changelog of a join": (lambda n: join(span(n)), "changelog"),
    'changelog of a join, `expiry="final"`': (lambda n: join(span(n), expiry="final"), "changelog"),
    "changelog of groups": (lambda n: join(span(n), **GROUPS), "changelog"),
    "changelog of first rows": (lambda n: join(span(n), top=Top(n, ["R.k"], ["R.n"])), "changelog"),
    "changelog of branches": (left, "changelog"),
    "changelog of a join with a table": (followed, "changelog"),
    "groups by key (`upsert`)": (lambda n: join(span(n), **GROUPS), "upsert"),
}
HOST = "hub"
CALLS = ("start", "warm start", "ordered", "drain stop", "pause", *CHANGES, HOST)
REASONS = {
    "would never end": "a drain over an `Unbounded()` window never ends",
    "depend on others": "its rows depend on other rows, from before and after the stop, or are taken back later",
    "ordered": "its rows do not come with the arrival of a component, or have no order",
    "has no pause": "rows leave the answer during a pause",
    "rows by key": "rows by key have no rows that end, which a handover or a resumed query takes back",
    "stay": "results that stay say nothing of the rows that are kept",
    "a hub": "a hub deals rows by one key, in micro-batches, and has what a streaming join over them has",
}
"""A part of a message, and the reason as the guide gives it."""
HUB_REASONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a": (REASONS["would never end"], ("would never end",)),
    "b": (REASONS["depend on others"], ("has no meaning for a query with branches", "has no meaning for a query over")),
    "c": ("its groups have one version at a time", ("with aggregates or top on a hub",)),
    "d": ("its answer has one version at a time", ("for a changelog on a hub",)),
    "e": ("they come from rows before the start as well", ("for groups and first rows of all results",)),
    "f": (REASONS["stay"], ("'handover' has no meaning for a changelog", "results that stay")),
}
"""By letter a reason as the guide gives it, and parts of messages."""
HUB_CALLS = ("start", "warm start", "drain stop", *HUB_KINDS)


def reason_of(message: str) -> str:
    """Return the letter of a reason."""
    generic = {"has no meaning for a": "depend on others", "the query has one": "a hub", "Rows window counts": "a hub"}
    texts = [text for text in REASONS if text in message] or [generic[text] for text in generic if text in message]
    assert texts, message
    return "abcdefgh"[list(REASONS).index(texts[0])]


def rows(second: int) -> dict[str, list[dict[str, Any]]]:
    """Return three rows of each stream, and a change of the table."""
    time = pa.scalar(second * 1_000_000, pa.timestamp("us")).as_py()
    made = [{"k": i % 2, "t": time, "n": second + i} for i in range(3)]
    return {"R": made, "S": made, "V": made[:2], "D": [{"k": second % 2, "t": time, "n": second, "op": "c"}]}


def sources() -> list[Stream]:
    return [*streams(span(50)), TABLE, VERSIONS]


def answers(results: dict[str, pa.Table]) -> dict[str, Counter[str]]:
    """The order of the groups of one window may change in a snapshot."""
    return {name: Counter(map(str, table.to_pylist())) for name, table in results.items()}


def act(query: RunningQuery, make: Callable[[int], Query], call: str) -> None:
    """Make the call of a cell, in the middle of a stream."""
    if call == "drain stop":
        query.stop("drain")
    elif call == "pause":
        query.pause()
    elif call in CHANGES:
        query.change(make(5), call)  # type: ignore[arg-type]


def of_hub(kind: str, call: str) -> str:
    """Return "yes" or the letter of a reason, after checking a cell of a hub, which takes no Spark.

    Returns "" for a kind that no hub has.
    """
    make, output = KINDS[kind]
    if output == "upsert":
        return ""
    made = make(4)
    inputs = [*streams(span(50)), VERSIONS, replace(TABLE, version="n")]
    queries = HubQueries(HubStreams([Source(stream, None, "k") for stream in inputs]), QuerySinks())  # type: ignore[arg-type]
    # On Spark, groups and first rows are a changelog in any case.
    asked: Any = "append" if made.aggregation or made.top else output
    try:
        check_query(queries.streams, "q", made, asked)
    except eddy.EddyError:
        return ""
    try:
        queries.give(StartElement("q", When(), made, NullSink(), call == "warm start", output=asked))
        if call == "drain stop":
            queries.check(StopElement("q", When(), "drain"))
        elif call in CHANGES:
            queries.check(ChangeElement("q", When(), make(5), call))  # type: ignore[arg-type]
    except eddy.EddyError as problem:
        said = str(problem)
        return next(letter for letter, (_, texts) in HUB_REASONS.items() if any(text in said for text in texts))
    return "yes"


def tried(kind: str, call: str) -> str:
    """Return "yes" or the letter of a reason, after trying a cell."""
    make, output = KINDS[kind]
    if call == HOST:
        return of_hub(kind, "start") or reason_of("a hub")
    engine = eddy.Engine(sources())
    engine.push(rows(1))
    before = engine.snapshot()
    try:
        query = engine.start("q", make(4), output=output, warm=call == "warm start", ordered=call == "ordered")
        engine.push(rows(3))
        before = engine.snapshot()
        act(query, make, call)
    except eddy.EddyError as problem:
        assert engine.snapshot() == before
        return reason_of(str(problem))
    engine.push(rows(5))
    if call == "pause":
        assert query.state == "paused"
        query.resume()
    live = (
        {}
        if query.state == "stopped"
        else {"q": [version.query for version in query.versions if version.ended is None]}
    )
    again = eddy.Engine.restore(engine.snapshot(), sources(), live)
    for second in (7, 20, 60):
        assert answers(again.push(rows(second))) == answers(engine.push(rows(second)))
    for either in (engine, again):
        either.check()
    assert answers(again.finish()) == answers(engine.finish())
    assert query.n_results > 0
    return "yes"


@pytest.fixture(scope="module")
def matrix() -> dict[str, dict[str, str]]:
    return {kind: {call: tried(kind, call) for call in CALLS} for kind in KINDS}


def text_of(matrix: dict[str, dict[str, str]], reasons: list[tuple[str, str]]) -> str:
    """Return the text of a matrix, and of the reasons by their letters."""
    heads = ["", *(f"`{call}`" if call in CHANGES else call for call in next(iter(matrix.values())))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {kind} | {' | '.join(cells.values())} |" for kind, cells in matrix.items()]
    return "\n".join([*lines, "", *(f"- {letter}: {why}" for letter, why in reasons), ""])


def between(guide: Path) -> str:
    """Return the matrix of a guide."""
    text = guide.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def test_the_guide_has_what_each_kind_of_query_can_do(matrix: dict[str, dict[str, str]]) -> None:
    """To renew it, put what the failure prints between the comments of the guide."""
    text = text_of(matrix, list(zip("abcdefgh", REASONS.values(), strict=False)))
    assert between(GUIDE) == text, f"\n{text}"


def test_the_guide_has_what_each_kind_of_query_can_do_in_a_hub(matrix: dict[str, dict[str, str]]) -> None:
    """As above; the kinds are those that a hub has."""
    kinds = [kind for kind in KINDS if matrix[kind][HOST] == "yes"]
    of_hubs = {kind: {call: of_hub(kind, call) for call in HUB_CALLS} for kind in kinds}
    text = text_of(of_hubs, [(letter, why) for letter, (why, _) in HUB_REASONS.items()])
    assert between(HUB_GUIDE) == text, f"\n{text}"
    used = {cell for cells in of_hubs.values() for cell in cells.values()}
    assert used == {"yes", *HUB_REASONS}


def test_each_reason_is_one_of_some_cell(matrix: dict[str, dict[str, str]]) -> None:
    used = {cell for cells in matrix.values() for cell in cells.values()}
    assert used == {"yes", *"abcdefgh"[: len(REASONS)]}


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_a_query_does_not_read_changes_none_of_its_results(kind: str, unit: str) -> None:
    make, output = KINDS[kind]
    schema = pa.schema([("at", pa.timestamp(unit))])
    few, more = eddy.Engine(sources()), eddy.Engine([*sources(), Stream("F", schema, time="at")])
    few.start("q", make(4), output=output)
    # A stream with finer times changes how the engine counts event time.
    if unit == "ns" and make(4).graph.timed:
        with pytest.raises(eddy.QueryError, match="give all time columns one type"):
            more.start("q", make(4), output=output)
        return
    more.start("q", make(4), output=output)
    for second in (1, 3, 4, 5, 7, 9, 20, 60):
        pushed = rows(second)
        other = {"F": pa.table({"at": pa.array([pushed["R"][0]["t"]]).cast(pa.timestamp(unit))})}
        assert answers(few.push(pushed)) == answers(more.push({**pushed, **other}))
    assert answers(few.finish()) == answers(more.finish())
