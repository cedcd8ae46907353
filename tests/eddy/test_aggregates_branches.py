"""Aggregates over queries with branches: the rows of the join by a runtime of their own, aggregated in plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.fuzz.aggregate_oracle import TIME, OracleAggregate, OracleWindow, Row, grouped, windowed
from tests.draws import fewer
from tests.eddy.drawn_branches import DrawnBranches, drawn, steps

WITH_TIME = (("range",), ("range", "derived"))
INFINITE = float("inf")


def functions(shown: list[str]) -> dict[str, tuple[agg.Aggregate, OracleAggregate]]:
    """Return functions over the last stream whose columns results have, which may be missing in a result."""
    v, p = f"{shown[-1]}.v", f"{shown[-1]}.p"
    return {
        "n": (agg.count(), OracleAggregate("count")),
        "v": (agg.sum(v), OracleAggregate("sum", v)),
        "values": (agg.count_distinct(v), OracleAggregate("count_distinct", v)),
        "p": (agg.max(p), OracleAggregate("max", p)),
        "last": (agg.last(p), OracleAggregate("last", p)),
    }


def aggregated(case: DrawnBranches, **groups: Any) -> eddy.Query:
    """Return the query with aggregates by a key of the first stream."""
    streams, texts, branches = case.query_args
    pairs = functions([stream.name for stream in case.query.shown])
    return eddy.Query(
        streams,
        texts,
        branches=branches,
        **case.timing,
        group_by={"a": "R.a"},
        aggregates={name: given for name, (given, _) in pairs.items()},
        **groups,
    )


def joined(case: DrawnBranches, row: dict[str, Any], time: str | None = None) -> Row:
    times = [row[f"{stream.name}.t"] for stream in case.query.shown]
    greatest = max((t for t in times if t is not None), default=None)
    return {**row, TIME: greatest if time is None else row[time]}


def texts(rows: Any) -> Counter[str]:
    return Counter(str(tuple(row)) for row in rows)


@fewer(3)
@given(drawn(WITH_TIME), st.data())
def test_windows_are_given_once_and_whole(case: DrawnBranches, data: st.DataObject) -> None:
    """The rows that wait for a partner come later than their event time says, and windows wait for them."""
    times = [None] if case.full or data.draw(st.booleans()) else ["R.t"]
    size, hop = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    window = data.draw(
        st.sampled_from((eddy.Tumbling(size, times[0]), eddy.Hopping(size, hop, times[0]), eddy.Session(size)))
    )
    query = aggregated(case, group_window=window)
    plain, runtime = (eddy.Runtime(asked, bounded=True) for asked in (case.query, query))
    reference = (
        OracleWindow(gap=size) if isinstance(window, eddy.Session) else OracleWindow(size, getattr(window, "hop", size))
    )
    oracle_functions = [two for _, two in functions([stream.name for stream in case.query.shown]).values()]
    assert query.aggregation is not None
    assert query.aggregation.window is not None
    slack, results, limit = query.aggregation.window.slack, [], -INFINITE

    def expected(after: float, until: float) -> Counter[str]:
        groups = windowed(results, ["R.a"], oracle_functions, reference)
        rows = ((a, start, end, *values) for (start, end, a), values in groups.items() if after < end <= until)
        return texts(rows)

    def given_rows(table: Any) -> Counter[str]:
        return texts(row.values() for row in table.to_pylist())

    for arrivals in steps(data.draw, list(case.streams)):
        pushed = {name: [row for n, row in arrivals if n == name] for name in case.streams}
        order = [list(case.streams).index(name) for name, _ in arrivals]
        results += [joined(case, row, window.time) for row in plain.push(pushed, order).to_pylist()]
        table, before = runtime.push(pushed, order), limit
        if runtime.watermark is not None and slack is not None:
            limit = runtime.watermark - slack
        assert given_rows(table) == expected(before, limit)
        assert given_rows(runtime.groups()) == expected(limit, INFINITE)
        runtime.check()
        if data.draw(st.integers(0, 3)) == 3:
            saved = runtime.snapshot()
            runtime = eddy.Runtime.restore(saved, query)
            assert runtime.snapshot() == saved
    results += [joined(case, row, window.time) for row in plain.finish().to_pylist()]
    assert given_rows(runtime.finish()) == expected(limit, INFINITE)


@fewer(3)
@given(drawn((("rows",), ("range",), ("range", "derived"), ("rows", "unbounded"))), st.data())
def test_a_changelog_adds_up_to_the_groups_of_the_rows_that_stand(case: DrawnBranches, data: st.DataObject) -> None:
    pairs = functions([stream.name for stream in case.query.shown])
    timed = all(stream.time for stream in case.streams.values())
    streams, on, branches = case.query_args
    chosen = {name: pair for name, pair in pairs.items() if timed or name != "last"}
    query = eddy.Query(
        streams,
        on,
        branches=branches,
        **case.timing,
        group_by={"a": "R.a"},
        aggregates={name: given for name, (given, _) in chosen.items()},
    )
    plain, runtime = (eddy.Runtime(both, output="changelog") for both in (case.query, query))
    standing: dict[str, tuple[int, dict[str, Any]]] = {}
    answer: Counter[str] = Counter()
    for arrivals in steps(data.draw, list(case.streams)):
        pushed = {name: [row for n, row in arrivals if n == name] for name in case.streams}
        order = [list(case.streams).index(name) for name, _ in arrivals]
        for row in plain.push(pushed, order).to_pylist():
            sign = 1 if row.pop("op") == "+I" else -1
            count, _ = standing.get(str(row), (0, row))
            standing[str(row)] = count + sign, row
        for row in runtime.push(pushed, order).to_pylist():
            sign = 1 if row.pop("op") == "+I" else -1
            answer[str(tuple(row.values()))] += sign
        rows = [joined(case, row) if timed else row for count, row in standing.values() for _ in range(count)]
        groups = grouped(rows, ["R.a"], [two for _, two in chosen.values()])
        assert +answer == texts((*key, *values) for key, values in groups.items())
        assert min(answer.values(), default=0) >= 0
        runtime.check()


def test_a_window_that_any_row_may_reach_needs_input_that_ends() -> None:
    rows = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    windows = {"R": eddy.Unbounded(), "S": eddy.Range(5)}
    query = eddy.Query(
        [eddy.Stream(name, rows, window=window, time="t") for name, window in windows.items()],
        ["R.k = S.k"],
        aggregates={"n": agg.count("S.k")},
        group_window=eddy.Tumbling(10, "R.t"),
    )
    with pytest.raises(eddy.InputError, match="any event time may come"):
        eddy.Runtime(query)
    runtime = eddy.Runtime(query, bounded=True)
    assert not len(runtime.push({"R": [{"k": 1, "t": 3}], "S": [{"k": 1, "t": 100}]}))
    assert runtime.finish().to_pylist() == [{"window_start": 0, "window_end": 10, "n": 1}]
