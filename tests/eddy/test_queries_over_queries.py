"""Tables that have the answers of queries: after each push, DuckDB finds the same from all rows so far."""

from __future__ import annotations

import gc
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any
from weakref import ref

import pyarrow as pa
import pytest

import eddy
from eddy import Query, Runtime, Stream, Table, agg
from jisc.strategies import STRATEGIES
from tests.eddy.answers import CASES, GROUPS, ROWS, AnswerFeed, R, S, T
from tests.eddy.test_branches import engine_file, in_another_process
from tests.eddy.test_interrupts import Seen, pushed


def play(draw: Random, query: Query, text: str, strategy: str) -> int:
    """Push random rows, compare after each push, and return the number of rows that came."""
    feed, shown, came = AnswerFeed(draw), Counter[str](), 0
    with engine_file() as live:
        runtime = Runtime(query, output="changelog", strategy=strategy)
        for _ in range(draw.randint(3, 12)):
            used = {name for name in ("r", "s", "t") if query.inputs({name: []})}
            pushed = query.inputs(feed.push(used))
            # The order of the rows of different streams counts, unless pushes are atomic.
            whole = bool(runtime.derived) or not pushed
            for push in [pushed] if whole else [{name: rows} for name, rows in pushed.items()]:
                table = runtime.push(push)
                came += len(table)
                for row in table.to_pylist():
                    sign = -1 if row.pop("op", "+I") in ("-D", "-U") else 1
                    shown[str(list(row.values()))] += sign
            shown = Counter({row: n for row, n in shown.items() if n})
            assert shown == feed.answer(text)
            runtime.check()
            if draw.random() < 0.2:
                saved = runtime.snapshot()
                runtime = Runtime.restore(saved, query)
                assert runtime.snapshot() == saved
            if draw.random() < 0.2:
                runtime = in_another_process(runtime, live)
    return came


@pytest.mark.campaign(0)
def test_an_exception_at_each_line_of_a_push() -> None:
    """A push happens in the query and in those of its tables, or in none."""
    query, text = CASES["two tables of queries, and a table"]
    draw, seen, shown = Random(7), Seen(), Counter[str]()
    feed, runtime = AnswerFeed(draw), Runtime(query, output="changelog", strategy="jisc")
    quiet = 0
    while quiet < 6:
        results, tries = pushed(runtime, feed.push({"r", "t"}), seen)
        for row in results.to_pylist():
            sign = -1 if row.pop("op") in ("-D", "-U") else 1
            shown[str(list(row.values()))] += sign
        shown = Counter({row: n for row, n in shown.items() if n})
        assert shown == feed.answer(text)
        quiet = quiet + 1 if tries == 1 else 0
    assert len(seen) > 300


def test_a_push_that_fails_leaves_all_queries_as_they_were() -> None:
    table = Table("d", GROUPS, filter=eddy.Predicate(lambda batch: pa.array([1 // int(v) > -1 for v in batch["m"]])))
    runtime = Runtime(Query([table], aggregates={"s": agg.sum("d.m")}), output="changelog")
    runtime.push({"r": [{"k": 1, "g": "a", "v": 5, "x": 0.0}]})
    before = runtime.snapshot()
    with pytest.raises(eddy.InputError, match="division"):
        runtime.push({"r": [{"k": 2, "g": "a", "v": 0, "x": 0.0}, {"k": 1, "g": "a", "v": 9, "x": 0.0}]})
    assert runtime.snapshot() == before
    changes = runtime.push({"r": [{"k": 1, "g": "a", "v": 6, "x": 0.0}]})
    assert changes.to_pylist() == [{"op": "-D", "s": 5}, {"op": "+I", "s": 6}]


def test_queries_of_tables_have_plans_and_late_rows_of_their_own() -> None:
    timed = pa.schema([*ROWS, ("t", pa.int64())])
    streams = [Stream(name, timed, window=eddy.Range(5), time="t") for name in "ab"]
    inner = Query(streams, ["a.k = b.k"], group_by={"k": "a.k"}, aggregates={"n": agg.count()}, watermark="fastest")
    runtime = Runtime(Query([Table("d", inner), T], ["d.k = t.k"], select=["d.n"]), output="changelog")
    row = {"k": 1, "g": "a", "v": 1, "x": 0.0}
    runtime.push({"a": [{**row, "t": 50}], "b": [{**row, "t": 50}], "t": [{**row, "op": "c"}]})
    runtime.push({"d.a": [{**row, "t": 1}]})
    inner_runtime = runtime.derived["d"]
    assert inner_runtime.late()["a"].num_rows == 1
    inner_runtime.transition("b a")
    assert inner_runtime.plan == "b a"
    assert runtime.derived["d"].changes == 1
    for call in (lambda: inner_runtime.push({}), inner_runtime.finish):
        with pytest.raises(eddy.InputError, match="on the runtime of that query"):
            call()
    assert runtime.push({"a": [{**row, "t": 51}]}).to_pylist() == [{"op": "-U", "d.n": 1}, {"op": "+U", "d.n": 2}]


@pytest.mark.parametrize("unit", ["s", "us"])
def test_a_watermark_has_the_same_meaning_for_all_queries(unit: str) -> None:
    def stream(name: str, unit: str) -> Stream:
        schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp(unit))])
        return Stream(name, schema, window=eddy.Range(timedelta(seconds=9)), time="t")

    inner = Query(
        [stream(name, unit) for name in "ab"], ["a.k = b.k"], group_by={"k": "a.k"}, aggregates={"n": agg.count()}
    )
    runtime = Runtime(Query([Table("d", inner), stream("c", "s")], ["d.k = c.k"]), output="changelog")
    row = {"k": 1, "t": pa.scalar(50, pa.timestamp("s")).as_py()}
    pushed = {name: [row] for name in "abc"}
    if unit == "us":
        before = runtime.snapshot()
        with pytest.raises(
            eddy.InputError, match=r"timestamp\[s\] and timestamp\[us\].*give all time columns one type"
        ):
            runtime.push(pushed, watermark=40)
        assert runtime.snapshot() == before
        assert runtime.push(pushed).num_rows == 1
    else:
        assert runtime.push(pushed, watermark=40).num_rows == 1
        assert runtime.push({"a": [row | {"t": row["t"] - timedelta(seconds=11)}]}).num_rows == 0
        assert runtime.derived["d"].late_counts == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table("d", GROUPS, key="k"), "leave key out"),
        (lambda: Table("d", Query([R, S], ["r.k = s.k"])), "a table of a query: results have no key"),
        (
            lambda: Table(
                "d",
                Query([Stream("r", ROWS, time="v")], aggregates={"n": agg.count()}, group_window=eddy.Tumbling(5)),
            ),
            "takes no group_window",
        ),
        (lambda: Query([R, Table("d", GROUPS)], ["r.k = d.z"]), "its columns are k, g, m, n$"),
        (lambda: Runtime(Query([Table("d", GROUPS), R], ["d.k = r.k"])), "output='changelog'"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises((eddy.QueryError, eddy.InputError), match=message):
        make()


def test_pushes_that_do_not_fit_are_refused() -> None:
    runtime = Runtime(CASES["rows with the greatest value"][0], output="changelog")
    for batches, more, message in (
        ({"d": []}, {}, "table d has the rows of its query"),
        ({"q": []}, {}, "'q'"),
        ({"r": []}, {"order": [0]}, "order is for queries without inputs that are queries"),
        ({"r": []}, {"watermark": 3}, "watermark"),
    ):
        with pytest.raises(eddy.InputError, match=message):
            runtime.push(batches, **more)
    with pytest.raises(eddy.InputError, match="load does not find"):
        runtime.load({})
    row = {"k": 1, "g": "a", "v": 5, "x": 0.0}
    assert runtime.push({"d.r": [row]}).num_rows == 0
    assert runtime.push({"r": [row]}).to_pylist() == [{"op": "+I", "k": 1, "v": 5}]


@pytest.mark.campaign(1)
@pytest.mark.parametrize("name", CASES)
def test_the_same_statements_in_sql(name: str) -> None:
    _, text = CASES[name]
    query = eddy.sql(text, [R, S, T])
    draw = Random(name)
    assert sum(play(draw, query, text, draw.choice(sorted(STRATEGIES))) for _ in range(6))


def test_rows_by_table_for_queries_over_queries() -> None:
    text = "SELECT x.k, x.m FROM s AS b1 JOIN s AS b2 ON b1.k = b2.k JOIN (SELECT k, max(v) AS m FROM r GROUP BY k) x"
    query = eddy.sql(f"{text} ON x.k = b1.k", [R, S, T])
    assert query.inputs({"r": 1, "s": 2, "t": 3}) == {"b1": 2, "b2": 2, "x.r": 1}
    other = text.replace("FROM r", "FROM r AS b1 JOIN r AS b2 ON b1.k = b2.k").replace("k, max(v)", "b1.k, max(b1.v)")
    with pytest.raises(eddy.SqlError, match="b1 is s here and r in x; rename one of them"):
        eddy.sql(f"{other.replace('GROUP BY k', 'GROUP BY b1.k')} ON x.k = b1.k", [R, S, T])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT s.k FROM s JOIN (SELECT k, max(zz) AS m FROM r GROUP BY k) x ON s.k = x.k", "no column 'zz'"),
        ("WITH x AS (SELECT k, max(v) AS m FROM q GROUP BY k) SELECT s.k FROM s JOIN r ON s.k = r.k", "no .*'q'"),
        ("SELECT s.k FROM s JOIN (SELECT k, max(v) AS m FROM r GROUP BY k) x(a) ON s.k = x.a", ""),
    ],
)
def test_refusals_of_sql(text: str, message: str) -> None:
    if not message:
        assert eddy.sql(text, [R, S]).output_schema.names == ["k"]
        return
    with pytest.raises(eddy.SqlError, match=message) as refused:
        eddy.sql(text, [R, S])
    assert refused.value.line == 1


@pytest.mark.campaign(1, 30)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_duckdb(name: str, seed: int) -> None:
    draw = Random(seed)
    query, text = CASES[name]
    for _ in range(4):
        play(draw, query, text, draw.choice(sorted(STRATEGIES)))


def test_names_that_are_pushed_twice_are_refused() -> None:
    runtime = Runtime(CASES["rows with the greatest value"][0], output="changelog")
    row = {"k": 1, "g": "a", "v": 5, "x": 0.0}
    for push in ({"r": [row], "d.r": [row, row]}, {"d.r": [row, row], "r": [row]}):
        with pytest.raises(eddy.InputError, match=r"stream r of table d is pushed twice, .* push its rows as 'd.r'"):
            runtime.push(push)
    assert runtime.position == 0


def test_inner_runtimes_leave_to_the_outer_one_what_concerns_both() -> None:
    runtime = Runtime(CASES["groups of groups"][0], output="changelog")
    inner_runtime = runtime.derived["d"]
    with pytest.raises(eddy.InputError, match=r"load: .* on the runtime of that query"):
        inner_runtime.load({})
    with pytest.raises(eddy.InputError, match=r"dismantle: .* on the runtime of that query"):
        inner_runtime.dismantle()
    with pytest.raises(eddy.InputError, match=r"max_bytes: .* on the runtime of that query"):
        inner_runtime.max_bytes = 1
    assert runtime.push({"r": [{"k": 1, "g": "a", "v": 5, "x": 0.0}]}).num_rows == 1


def test_a_table_of_a_join_of_a_table_of_a_query() -> None:
    """Its key is what identifies the rows of both, and not what a hidden column has for a null."""
    joined = Query([Table("d", GROUPS), T], ["d.k = t.k"], select={"k": "d.k", "g": "d.g", "t": "t.k", "m": "d.m"})
    query = Query([Table("e", joined)], aggregates={"s": agg.sum("e.m")})
    runtime = Runtime(query, output="changelog")
    row = {"k": 1, "g": None, "v": 5, "x": 0.0}
    runtime.push({"r": [row], "t": [{**row, "op": "c"}]})
    assert runtime.push({"r": [{**row, "v": 9}]}).to_pylist() == [{"op": "-D", "s": 5}, {"op": "+I", "s": 9}]
    with pytest.raises(eddy.QueryError, match=r"needs the key of each table in select: add 'd.g'"):
        Table("e", Query([Table("d", GROUPS), T], ["d.k = t.k"], select=["d.k", "t.k"]))
    with pytest.raises(eddy.QueryError, match="rows cannot look it up yet"):
        eddy.AsOf(Table("d", GROUPS), ["s.k = d.k", "s.g = d.g"])
    with pytest.raises(eddy.QueryError, match=r"no output column of its query can be named .op."):
        Table("d", Query([R], group_by={"op": "r.k"}, aggregates={"n": agg.count()}))


@pytest.mark.parametrize("form", ["text", "dot", "svg", "json"])
def test_hidden_columns_are_shown_by_their_names(form: Any) -> None:
    assert "\0" not in Runtime(CASES["groups of groups"][0], output="changelog").explain(form)


@pytest.mark.parametrize("name", CASES)
def test_a_bound_on_bytes_is_that_of_all_queries(name: str) -> None:
    """A push that does not fit changes nothing, and the others give what they give without a bound."""
    query, _ = CASES[name]
    draw, names = Random(name), [input_name for input_name in ("r", "s", "t") if query.inputs({input_name: []})]
    free = Runtime(query, output="changelog")
    most = free.nbytes + draw.choice((30_000, 100_000))
    bounded, most_used = Runtime(query, output="changelog", max_bytes=most), most
    shown, refused = Counter[str](), 0
    for _ in range(24):
        n = draw.choice((1, 10, 300))
        rows = {
            input_name: [
                {
                    "k": draw.randint(0, 5_000),
                    "g": str(draw.randint(0, 900)),
                    "v": draw.randint(0, 9),
                    "x": draw.random(),
                }
                | ({"op": "c"} if input_name == "t" else {})
                for _ in range(n)
            ]
            for input_name in draw.sample(names, 1)
        }
        before = bounded.snapshot()
        try:
            changes = bounded.push(rows)
        except eddy.CapacityError:
            assert bounded.snapshot() == before
            refused += 1
        else:
            for table, sign in ((changes, 1), (free.push(rows), -1)):
                for row in table.to_pylist():
                    shown[str(list(row.values())[1:])] += sign if row["op"] in ("+I", "+U") else -sign
            assert not any(shown.values())
        # A push may exceed the bound by the rows and the ledgers of branches, and a restored state has other room.
        assert bounded.nbytes <= most_used or query.branches
        if draw.random() < 0.2:
            bounded = Runtime.restore(bounded.snapshot(), query)
            most_used = max(most_used, bounded.nbytes)
    assert refused
    with pytest.raises(eddy.InputError, match="without any row the state of this query takes"):
        Runtime(query, output="changelog", max_bytes=1000)


def test_a_runtime_that_is_dropped_frees_its_pipelines_at_once() -> None:
    """None of them is part of a reference cycle, which would keep its memory until the collector of cycles runs."""
    for query in (Query([R, T], ["r.k = t.k"]), CASES["groups of groups of groups"][0]):
        runtime = Runtime(query, output="changelog", max_bytes=10**7)
        runtime.push(query.inputs({"r": [{"k": 1, "g": "a", "v": 5, "x": 0.0}]}))
        runtime = Runtime.restore(runtime.snapshot(), query)
        pipelines = [runtime._pipeline]
        for pipeline in pipelines:
            pipelines += pipeline.derived.values()
        references = [ref(pipeline) for pipeline in pipelines]
        gc.disable()
        try:
            del runtime, pipelines, pipeline
            assert [reference() for reference in references] == [None] * len(references)
        finally:
            gc.enable()
