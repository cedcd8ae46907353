"""As-of joins against their oracle: random queries, versions, plans, pushes and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.as_of.answer import compare_answer
from eddy.fuzz.as_of.draw import ROW_BYTES, AsOfArrivalWriter, as_of_query
from eddy.fuzz.as_of.play import batches, known, shown_rows
from eddy.partners import as_of_joins, version_log
from jisc.plan.tree import connected_order, left_deep
from jisc.strategies import STRATEGIES
from tests.draws import fewer
from tests.eddy.test_branches import engine_file, in_another_process

Output = Literal["append", "changelog"]


def move(rt: eddy.Runtime, draw: Random) -> None:
    """Change the plan of one inner join to another one, if it has one."""
    join = draw.choice(list(rt._pipeline.joins.values()))
    graph = join.query.graph
    if graph.n_streams > 1:
        order = draw.sample(range(graph.n_streams), graph.n_streams)
        rt.transition(left_deep(connected_order(order, graph.class_bits)).text(graph.names))


def play(draw: Random, output: Output, strategy: str) -> int:
    """Play a random case; return the number of rows that came."""
    asked, ids, came = as_of_query(draw, output == "changelog"), draw.random() < 0.3, 0
    oracle, rows_of = asked.oracle(output == "changelog"), AsOfArrivalWriter(asked)
    with engine_file() as live:
        rt = eddy.Runtime(asked.query(), strategy=strategy, output=output, ids_only=ids, bounded=True)
        for _ in range(draw.randint(1, 10)):
            size = draw.choice((0, 1, 3, 12, 25)) * ROW_BYTES
            arrivals = rows_of.arrivals(draw.randbytes(size))
            given: dict[str, Any] = {}
            if draw.random() < 0.2 and asked.timed:
                given["watermark"] = max([rt.watermark or 0, *(row.row["t"] for row in arrivals)]) - draw.randrange(4)
                given["watermark"] = max(given["watermark"], rt.watermark or 0)
            changed = oracle.push(known(asked, arrivals), given.get("watermark"))
            order = np.array([asked.inputs.index(row.name) for row in arrivals], np.uint8)
            table = rt.push(batches(asked, arrivals), order=order, **given)
            came += len(table)
            compare_answer(table, *(shown_rows(asked, oracle, rows, ids) for rows in changed))
            rt.check()
            assert rt.metrics()["open"] >= len(oracle.waiting)
            if STRATEGIES[rt.strategy].changes and draw.random() < 0.3:
                move(rt, draw)
            if draw.random() < 0.2:
                rt = in_another_process(rt, live)
            if draw.random() < 0.2:
                saved = rt.snapshot()
                rt = eddy.Runtime.restore(saved, asked.query())
                assert rt.snapshot() == saved
        compare_answer(rt.finish(), *(shown_rows(asked, oracle, rows, ids) for rows in oracle.finish()))
        rt.check()
    return came


@pytest.fixture(autouse=True, scope="module")
def _small_logs() -> Iterator[None]:
    """Let logs of few versions be compacted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(as_of_joins, "LEAST", 2)
        patch.setattr(version_log, "LEAST_ROOM", 4)
        yield


@fewer(2)
@given(st.randoms(use_true_random=True), st.sampled_from(("append", "changelog")), st.sampled_from(sorted(STRATEGIES)))
def test_rows_are_those_of_the_oracle(draw: Random, output: Output, strategy: str) -> None:
    play(draw, output, strategy)


RATES = pa.schema([("cur", pa.string()), ("t", pa.int64()), ("rate", pa.float64())])
BIDS = pa.schema([("cur", pa.string()), ("t", pa.int64())])


def rates(**more: Any) -> eddy.VersionedTable:
    return eddy.VersionedTable("rate", RATES, key="cur", time="t", **more)


def bids(**more: Any) -> eddy.Stream:
    return eddy.Stream("bid", BIDS, time="t", **more)


ON = ["bid.cur = rate.cur"]


def test_a_version_that_comes_later_takes_rows_over() -> None:
    query = eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ON)], select=["bid.t", "rate.rate"], lateness=9)
    rt = eddy.Runtime(query, output="changelog")

    def push(**rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rt.push(rows).to_pylist()]

    assert push(bid=[{"cur": "a", "t": 5}, {"cur": "a", "t": 7}]) == []
    assert push(rate=[{"cur": "a", "t": 6, "rate": 1.0}]) == [("+I", 7, 1.0)]
    assert push(rate=[{"cur": "a", "t": 4, "rate": 2.0}, {"cur": "b", "t": 0, "rate": 9.0}]) == [("+I", 5, 2.0)]
    rt = eddy.Runtime.restore(rt.snapshot(), query)
    assert push(rate=[{"cur": "a", "t": 5, "rate": 3.0}]) == [("-U", 5, 2.0), ("+U", 5, 3.0)]
    assert push(rate=[{"cur": "a", "t": 7, "rate": 1.0}]) == []  # the same rate
    assert rt.metrics()["open"] == 2
    push(rate=[{"cur": "a", "t": 20, "rate": 4.0}], bid=[{"cur": "c", "t": 20}])
    assert rt.metrics()["open"] == 1  # no version for 5 and 7 can come any more
    assert push(rate=[{"cur": "a", "t": 6, "rate": 5.0}]) == []
    assert rt.late_counts["rate"] == 1


def test_late_versions_go_to_the_side_output_with_what_they_say() -> None:
    rt = eddy.Runtime(eddy.Query([bids()], as_of=[eddy.AsOf(rates(ops="column"), ON)]))
    rt.push({"bid": [{"cur": "a", "t": 9}], "rate": [{"cur": "a", "t": 9, "rate": 1.0, "op": "+I"}]})
    late = [{"cur": "a", "t": 3, "rate": None, "op": "d"}, {"cur": "b", "t": 4, "rate": 2.0, "op": "u"}]
    rt.push({"rate": late})
    rt = eddy.Runtime.restore(rt.snapshot(), rt.query)
    late_rows = rt.late()["rate"].to_pylist()
    assert late_rows == [{"cur": "a", "t": 3, "rate": None, "op": "-D"}, {"cur": "b", "t": 4, "rate": 2.0, "op": "+I"}]
    assert rt.late_counts["rate"] == 2


def test_memory_follows_the_versions_that_rows_may_get() -> None:
    """Versions that later ones have replaced, and strings that only rows had, are forgotten."""
    rt = eddy.Runtime(eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ON, how="left")]), count_only=True)
    sizes = []
    for k in range(60):
        times = np.arange(k * 1000, k * 1000 + 1000)
        unknown = [f"unknown {t}" for t in times]
        known = [f"currency {t % 10}" for t in times]
        rt.push({"bid": pa.record_batch({"cur": unknown, "t": times}, schema=BIDS),
                 "rate": pa.record_batch({"cur": known, "t": times, "rate": times * 1.0}, schema=RATES)})  # fmt: skip
        sizes.append(rt.nbytes)
    rt.check()
    assert max(sizes[30:]) <= max(sizes[:30])
    assert len(rt._pipeline.partners.as_of.logs[0]._keys) <= 4096  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rates(window=eddy.Rows(3)), "leave the window out"),
        (lambda: rates(ops="debezium"), "event time of a delete"),
        (lambda: eddy.VersionedTable("rate", RATES, key="cur"), "time=…"),
        (lambda: eddy.VersionedTable("rate", RATES, key="t", time="t"), "no part of its key"),
        (lambda: eddy.AsOf(bids(), ON), "VersionedTable"),  # type: ignore[arg-type]
        (lambda: eddy.AsOf(rates(), ON, how="outer"), "how is one of"),  # type: ignore[arg-type]
        (lambda: eddy.AsOf(rates(), ON, direction="forward"), "needs a tolerance"),
        (lambda: eddy.AsOf(rates(), ON, tolerance=-1), "negative"),
        (lambda: eddy.Query([bids()], as_of=rates()), "must be a list"),
        (lambda: eddy.Query([bids()], as_of=[rates()]), "eddy.AsOf objects"),  # type: ignore[list-item]
        (lambda: eddy.Query([bids(), rates()], ON), "pass as_of"),
        (lambda: eddy.Query([rates()], as_of=[eddy.AsOf(rates(), ON)]), "belongs into as_of"),
        (lambda: eddy.Query([bids()], as_of=[eddy.AsOf(rates(), [])]), "no equality with key column 'cur'"),
        (lambda: eddy.Query([bids()], as_of=[eddy.AsOf(rates(), [*ON, "bid.t >= rate.t"])]), "equalities"),
        (
            lambda: eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ["bid.t = rate.rate"])]),
            "no equality of a key column",
        ),
        (lambda: eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ON, at="bid.cur")]), "time column"),
        (lambda: eddy.Query([eddy.Stream("bid", BIDS)], as_of=[eddy.AsOf(rates(), ON)]), "stream bid has no time"),
        (
            lambda: eddy.Query(
                [bids(window=eddy.Rows(2)), eddy.Stream("s", BIDS)],
                ["bid.cur = s.cur"],
                as_of=[eddy.AsOf(rates(), ON, at="bid.t")],
            ),
            "stream s has no time column",
        ),
        (
            lambda: eddy.Query(
                [bids(window=eddy.Rows(2)), eddy.Table("p", BIDS, key="cur")],
                ["bid.cur = p.cur"],
                as_of=[eddy.AsOf(eddy.Table("rate", RATES, key="cur"), ON)],
            ),
            "table p: .* no row of it is taken back; look this table up as well",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(eddy.QueryError, match=message):
        make()


def test_rows_that_wait_are_not_ordered() -> None:
    query = eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ON)])
    with pytest.raises(eddy.InputError, match="ordered"):
        eddy.Runtime(query, ordered=True)


def test_keys_that_expressions_compute() -> None:
    query = eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ["LOWER(bid.cur) = rate.cur"])], select=["rate.rate"])
    rt = eddy.Runtime(query, bounded=True)
    rt.push({"bid": [{"cur": "EUR", "t": 5}], "rate": [{"cur": "eur", "t": 4, "rate": 1.5}]})
    assert rt.finish().to_pylist() == [{"rate.rate": 1.5}]


def test_windows_of_event_time_count_rows_that_waited() -> None:
    """A window is due when no row with its time can wait any more."""
    query = eddy.Query(
        [bids()],
        as_of=[eddy.AsOf(rates(), ON, direction="nearest", tolerance=3)],
        group_by=["bid.cur"],
        aggregates={"n": eddy.agg.count(), "sum": eddy.agg.sum("rate.rate")},
        group_window=eddy.Tumbling(10, time="bid.t"),
    )
    rt, rows, draw = eddy.Runtime(query, bounded=True), [], Random(5)
    made: dict[str, list[dict[str, Any]]] = {"bid": [], "rate": []}
    for t in range(200):
        push: dict[str, Any] = {"bid": [{"cur": draw.choice("ab"), "t": t}]}
        if draw.random() < 0.5:
            push["rate"] = [{"cur": draw.choice("ab"), "t": t, "rate": float(draw.randrange(9))}]
        for name, pushed in push.items():
            made[name] += pushed
        rows += rt.push(push).to_pylist()
    rows += rt.finish().to_pylist()
    wanted: dict[tuple[int, str], tuple[int, float]] = {}
    for bid in made["bid"]:
        near = [rate for rate in made["rate"] if rate["cur"] == bid["cur"] and abs(rate["t"] - bid["t"]) <= 3]
        if near:
            best = min(near, key=lambda rate: (abs(rate["t"] - bid["t"]), rate["t"]))
            key = bid["t"] // 10 * 10, bid["cur"]
            n, total = wanted.get(key, (0, 0.0))
            wanted[key] = n + 1, total + best["rate"]
    assert {(row["window_start"], row["bid.cur"]): (row["n"], row["sum"]) for row in rows} == wanted


@pytest.mark.parametrize("output", ["changelog", "upsert"])
@pytest.mark.parametrize("table", [rates(), eddy.Table("rate", RATES, key="cur")])
def test_groups_above_as_of_joins_have_each_row_in_each_output_mode(output: Any, table: Any) -> None:
    query = eddy.Query(
        [bids()], as_of=[eddy.AsOf(table, ON, how="left")], group_by=["bid.cur"], aggregates={"n": eddy.agg.count()}
    )
    rt = eddy.Runtime(query, output=output)
    rt.push({"rate": [{"cur": "a", "t": 0, "rate": 1.0}]})
    rt.push({"bid": [{"cur": "a", "t": 1}, {"cur": "b", "t": 2}]})
    if rt.watermark is not None:
        rt.push({}, watermark=5)
    assert sorted(rt.groups().to_pylist(), key=str) == [{"bid.cur": "a", "n": 1}, {"bid.cur": "b", "n": 1}]


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_windows_by_the_time_of_another_stream_have_each_row(direction: Any) -> None:
    """A row waits for the time of its own component, while another one is as much older as its window is long."""
    schema, draw = pa.schema([("k", pa.int64()), ("t", pa.int64())]), Random(2)
    streams = [eddy.Stream(name, schema, eddy.Range(7), "t") for name in "ab"]
    table = eddy.VersionedTable("v", schema, key="k", time="t")
    given: dict[str, Any] = {
        "as_of": [eddy.AsOf(table, ["b.k = v.k"], "b.t", how="left", direction=direction, tolerance=3)],
    }
    grouped = eddy.Query(
        streams, ["a.k = b.k"], group_by={"k": "a.k"}, aggregates={"n": eddy.agg.count()},
        group_window=eddy.Tumbling(5, time="a.t"), **given,
    )  # fmt: skip
    rows, windows = (
        eddy.Runtime(query, bounded=True) for query in (eddy.Query(streams, ["a.k = b.k"], **given), grouped)
    )
    wanted: dict[tuple[int, int], int] = {}
    counted: dict[tuple[int, int], int] = {}

    def count(table_of_rows: pa.Table, table_of_windows: pa.Table) -> None:
        for row in table_of_rows.to_pylist():
            key = row["a.k"], row["a.t"] // 5 * 5
            wanted[key] = wanted.get(key, 0) + 1
        for row in table_of_windows.to_pylist():
            key = row["k"], row["window_start"]
            assert key not in counted
            counted[key] = row["n"]

    for now in range(0, 200, 2):
        push = {name: [{"k": draw.randrange(2), "t": now + draw.randrange(3)}] for name in "abv" if draw.random() < 0.7}
        count(rows.push(push), windows.push(push))
    count(rows.finish(), windows.finish())
    assert counted == wanted


def test_lateness_of_a_stream_counts_whatever_its_window_is() -> None:
    stream = bids(window=eddy.Rows(3), lateness=2)
    rt = eddy.Runtime(eddy.Query([stream], as_of=[eddy.AsOf(rates(), ON, how="left")]), bounded=True)
    rt.push({"bid": [{"cur": "a", "t": 9}, {"cur": "a", "t": 7}], "rate": [{"cur": "a", "t": 9, "rate": 1.0}]})
    assert rt.late_counts["bid"] == 0
    assert rt.watermark == 7


def test_earlier_rows_of_a_look_up_are_loaded() -> None:
    query = eddy.Query([bids()], as_of=[eddy.AsOf(eddy.Table("rate", RATES, key="cur"), ON)], select=["rate.rate"])
    rt = eddy.Runtime(query)
    rt.load({"rate": [{"cur": "a", "t": 0, "rate": 1.5}]})
    assert rt.push({"bid": [{"cur": "a", "t": 1}]}).to_pylist() == [{"rate.rate": 1.5}]


def test_a_snapshot_knows_whether_a_stream_has_a_window() -> None:
    for stream, other in ((bids(), bids(window=eddy.Range(0))), (bids(window=eddy.Range(0)), bids())):
        saved = eddy.Runtime(eddy.Query([stream], as_of=[eddy.AsOf(rates(), ON)])).snapshot()
        with pytest.raises(eddy.SnapshotError, match="bid, window: "):
            eddy.Runtime.restore(saved, eddy.Query([other], as_of=[eddy.AsOf(rates(), ON)]))
