"""The first rows of groups of queries with branches, and of groups in windows: the rows by a runtime without `top`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.fuzz.top_oracle import OracleOrder, OracleTop, changes
from tests.draws import fewer
from tests.eddy.drawn_branches import DrawnBranches, drawn, steps

Number = tuple[int, ...]


def ranked(draw: Any, columns: Sequence[str]) -> tuple[eddy.Top, OracleTop]:
    """Return a top over some columns, for eddy and for the oracle."""
    by = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
    terms = [
        OracleOrder(column, draw(st.booleans()), draw(st.booleans()))
        for column in draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
    ]
    order = [term.column + " desc" * term.descending + " nulls first" * term.nulls_first for term in terms]
    n = draw(st.sampled_from((1, 2, 5)))
    return eddy.Top(n, by, order, "rank"), OracleTop(n, tuple(by), tuple(terms))


def with_top(case: DrawnBranches, top: eddy.Top, **more: Any) -> eddy.Query:
    streams, texts, branches = case.query_args
    return eddy.Query(streams, texts, branches=branches, **case.timing, top=top, **more)


class Standing:
    """The rows of a query by the numbers of their components, from two runtimes without `top`."""

    def __init__(self, query: eddy.Query, **options: Any) -> None:
        self._runtimes = [eddy.Runtime(query, ids_only=ids, **options) for ids in (True, False)]
        self.rows: dict[Number, Mapping[str, Any]] = {}

    def take(self, call: Any) -> None:
        """Call both, and take what they give."""
        numbers, rows = (call(runtime).to_pylist() for runtime in self._runtimes)
        for ids, row in zip(numbers, rows, strict=True):
            ended = ids.pop("op", "+I") == "-D"
            row.pop("op", None)
            number = tuple(-1 if component is None else component for component in ids.values())
            if ended:
                assert self.rows.pop(number) == row
            else:
                self.rows[number] = row


@fewer(2)
@given(drawn(), st.data())
def test_a_changelog_has_the_difference_of_the_answers(case: DrawnBranches, data: st.DataObject) -> None:
    top, oracle = ranked(data.draw, case.query.output_schema.names)
    query = with_top(case, top)
    standing, runtime = Standing(case.query, output="changelog"), eddy.Runtime(query, output="changelog")
    answer: dict[Any, list[Number]] = {}
    for arrivals in steps(data.draw, list(case.streams)):
        pushed = {name: [row for n, row in arrivals if n == name] for name in case.streams}
        order = [list(case.streams).index(name) for name, _ in arrivals]
        before = dict(standing.rows)
        standing.take(lambda plain, rows=pushed, given=order: plain.push(rows, given))
        after = oracle.of(standing.rows)
        wanted = Counter[str]()
        for old, new, place in changes(answer, after, paired=True):
            rows = [None if number is None else before.get(number, standing.rows.get(number)) for number in (old, new)]
            if old is None or new is None or rows[0] != rows[1]:
                pair = old is not None and new is not None
                for row, op in zip(rows, ("-U", "+U") if pair else ("-D", "+I"), strict=True):
                    if row is not None:
                        wanted[str({"op": op, **row, "rank": place + 1})] += 1
        answer = after
        assert Counter(map(str, runtime.push(pushed, order).to_pylist())) == wanted
        runtime.check()
        if data.draw(st.integers(0, 3)) == 3:
            saved = runtime.snapshot()
            runtime = eddy.Runtime.restore(saved, query)
            assert runtime.snapshot() == saved


@fewer(3)
@given(drawn(), st.data())
def test_input_that_ends_has_its_first_rows_at_the_end(case: DrawnBranches, data: st.DataObject) -> None:
    top, oracle = ranked(data.draw, case.query.output_schema.names)
    query = with_top(case, top)
    standing, runtime = Standing(case.query, bounded=True), eddy.Runtime(query, bounded=True)
    for arrivals in steps(data.draw, list(case.streams)):
        pushed = {name: [row for n, row in arrivals if n == name] for name in case.streams}
        order = [list(case.streams).index(name) for name, _ in arrivals]
        standing.take(lambda plain, rows=pushed, given=order: plain.push(rows, given))
        assert not len(runtime.push(pushed, order))
        runtime.check()
        if data.draw(st.integers(0, 3)) == 3:
            runtime = eddy.Runtime.restore(runtime.snapshot(), query)
    standing.take(lambda plain: plain.finish())
    wanted = [
        {**standing.rows[number], "rank": place + 1}
        for group in oracle.of(standing.rows).values()
        for place, number in enumerate(group)
    ]
    table = runtime.finish()
    assert table.schema == query.output_schema
    assert Counter(map(str, table.to_pylist())) == Counter(map(str, wanted))
    runtime.check()
    assert not len(runtime.finish())


@fewer(3)
@given(drawn((("range",), ("range", "derived"))), st.data())
def test_windows_of_event_time_have_first_rows_when_they_end(case: DrawnBranches, data: st.DataObject) -> None:
    kinds = (eddy.Tumbling(data.draw(st.integers(1, 6))), eddy.Hopping(4, 2), eddy.Session(2))
    window: Any = data.draw(st.sampled_from(kinds))
    streams, texts, branches = case.query_args
    groups: dict[str, Any] = {
        "group_by": {"a": "R.a", "v": "R.v"},
        "aggregates": {"n": agg.count(), "most": agg.max("R.p")},
        "group_window": window,
    }
    plain = eddy.Query(streams, texts, branches=branches, **case.timing, **groups)
    by = data.draw(st.sampled_from((("window_end",), ("window_end", "a"), ("a", "window_end"))))
    top = eddy.Top(data.draw(st.integers(1, 3)), by, ["n desc"], "rank")
    # Without the group columns in the order, they decide.
    oracle = OracleTop(top.n, by, (OracleOrder("n", True), OracleOrder("a"), OracleOrder("v")))
    query = with_top(case, top, **groups)
    twin, runtime = (eddy.Runtime(asked, bounded=True) for asked in (plain, query))

    def same(call: Any) -> None:
        rows = {(number,): row for number, row in enumerate(call(twin).to_pylist())}
        wanted = [
            {**rows[number], "rank": place + 1}  # type: ignore[index]
            for group in oracle.of(rows).values()
            for place, number in enumerate(group)
        ]
        assert Counter(map(str, call(runtime).to_pylist())) == Counter(map(str, wanted))
        runtime.check()

    for arrivals in steps(data.draw, list(case.streams)):
        pushed = {name: [row for n, row in arrivals if n == name] for name in case.streams}
        order = [list(case.streams).index(name) for name, _ in arrivals]
        same(lambda either, rows=pushed, given=order: either.push(rows, given))
        if data.draw(st.integers(0, 3)) == 3:
            runtime = eddy.Runtime.restore(runtime.snapshot(), query)
    same(lambda either: either.finish())


def test_a_group_of_several_windows_is_refused() -> None:
    stream = eddy.Stream("R", pa.schema([("k", pa.int64()), ("t", pa.int64())]), time="t")
    for window, by in ((eddy.Tumbling(5), "R.k"), (eddy.Session(5), ["window_start"])):
        query = eddy.Query(
            [stream], group_by=["R.k"], aggregates={"n": agg.count()}, group_window=window, top=eddy.Top(1, by)
        )
        with pytest.raises(eddy.InputError, match="name the window in by="):
            eddy.Runtime(query)
