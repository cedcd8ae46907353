"""Streams that have the rows of queries: as two runtimes, one of which feeds the other."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest

import eddy
from eddy import Query, Runtime, Stream, Table, Top, agg
from jisc.strategies import STRATEGIES
from tests.eddy.test_branches import engine_file, in_another_process
from tests.eddy.test_interrupts import Seen, pushed

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64()), ("t", pa.int64())])
OUTPUTS: tuple[Literal["append", "changelog"], ...] = ("append", "changelog")


def bids(window: Any = None, **more: Any) -> Stream:
    return Stream("r", ROWS, window, "t", **more)


def windows(draw: Random, **more: Any) -> Query:
    """Return a query whose rows are windows of one stream or of a join."""
    streams = [bids()]
    if draw.random() < 0.4:
        streams = [bids(eddy.Range(3)), Stream("s", ROWS, eddy.Range(5), "t")]
    window = draw.choice(
        (eddy.Tumbling(5, time="r.t"), eddy.Hopping(6, 2, time="r.t"), eddy.Tumbling(3), eddy.Session(4, time="r.t"))
    )
    if len(streams) == 1 and isinstance(window, eddy.Session):
        window = eddy.Session(4)
    return Query(
        streams,
        ["r.k = s.k"] if len(streams) > 1 else [],
        group_by={"k": "r.k"},
        aggregates={"n": agg.count(), "m": agg.max("r.v")},
        group_window=window,
        **more,
    )


def above(draw: Random, below: Query | pa.Schema, more: dict[str, Any]) -> Query:
    """Return a query that reads the windows as stream w, which is given as a query or by its schema."""
    window = draw.choice((eddy.Range(7), eddy.Range(7) if more["lateness"] else eddy.Rows(3)))
    stream = Stream("w", below, window, "window_end")
    kind = draw.randrange(4)
    if kind == 0:
        return Query([stream, bids(eddy.Range(9))], ["w.k = r.k", "r.v >= w.m"], **more)
    if kind == 1:
        left = eddy.Branch([stream], ["r.k = w.k"], "left")
        return Query([bids(eddy.Range(9))], branches=[left], **more)
    if kind == 2:
        return Query(
            [stream, bids(eddy.Rows(4))], ["w.k = r.k"], group_by=["w.n"], aggregates={"c": agg.count()}, **more
        )
    return Query([stream, Stream("u", ROWS, eddy.Range(9), "t")], ["w.k = u.k"], **more)


def rows_of(draw: Random, clock: int) -> dict[str, list[dict[str, Any]]]:
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for k in range(draw.choice((0, 2, 9))):
        row = {"k": draw.randrange(3), "g": draw.choice("ab"), "v": draw.randrange(9), "t": clock + k // 2}
        rows[draw.choice("rrsu")].append({**row, "t": row["t"] - draw.choice((0, 0, 0, 2))})
    return rows


def in_time(rows: pa.Table) -> pa.Table:
    """Return the rows of windows in the order in which they are those of a stream."""
    return rows.sort_by([(name, "ascending") for name in ("window_end", "k", "window_start", "n", "m")])


def counted(table: pa.Table) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for row in table.to_pylist():
        counts[str(row)] += 1
    return dict(counts)


@pytest.mark.campaign(7)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("seed", range(60))
def test_two_runtimes_give_the_same(seed: int, output: Any) -> None:
    draw, came = Random(seed), 0
    more: dict[str, Any] = {"lateness": draw.choice((0, 2)), "watermark": draw.choice(("slowest", "fastest"))}
    below = windows(draw, **more)
    shape = draw.random()
    whole = above(Random(shape), below, more)
    strategy = draw.choice(sorted(STRATEGIES))
    runtime = Runtime(whole, output=output, bounded=True, strategy=strategy)
    feeder = Runtime(below, bounded=True)
    fed = Runtime(above(Random(shape), below.output_schema, more), output=output, bounded=True)
    reads = {name: {stream.name for stream in part.query.streams} for name, part in (("feeder", feeder), ("fed", fed))}
    with engine_file() as live:
        for clock in range(0, 60, 3):
            rows = rows_of(draw, clock)
            rows = {name: stream_rows for name, stream_rows in rows.items() if name in set().union(*reads.values())}
            closed = feeder.push({name: stream_rows for name, stream_rows in rows.items() if name in reads["feeder"]})
            given = {name: stream_rows for name, stream_rows in rows.items() if name in reads["fed"]}
            wanted = fed.push({**given, "w": in_time(closed)})
            table = runtime.push(rows)
            came += len(table)
            assert counted(table) == counted(wanted)
            runtime.check()
            if draw.random() < 0.2:
                saved = runtime.snapshot()
                runtime = Runtime.restore(saved, whole)
                assert runtime.snapshot() == saved
            if draw.random() < 0.2:
                runtime = in_another_process(runtime, live)
        closed = feeder.finish()
        last = [fed.push({"w": in_time(closed)}), fed.finish()]
        ended = runtime.finish()
        if whole.aggregation is None:
            assert counted(ended) == counted(pa.concat_tables(last))
        else:
            assert counted(runtime.groups()) == counted(fed.groups())
    assert runtime.late_counts["w"] == fed.late_counts["w"]


BEST = Query([bids()], aggregates={"m": agg.max("r.v")}, group_window=eddy.Tumbling(10, time="r.t"))
COUNTS = Query(
    [bids()], group_by={"k": "r.k"}, aggregates={"n": agg.count()}, group_window=eddy.Hopping(10, 2, time="r.t")
)


TIMED = Stream("w", BEST, time="window_end")


def feed(seed: int) -> list[dict[str, Any]]:
    draw = Random(seed)
    return [{"k": draw.randrange(4), "g": "", "v": draw.randrange(20), "t": t // 3} for t in range(240)]


def test_the_greatest_rows_of_windows() -> None:
    """Query 7 of NEXMark."""
    best = Stream("best", BEST, time="window_end")
    query = Query(
        [bids(), best],
        ["r.v = best.m", "r.t BETWEEN best.window_end - 10 AND best.window_end"],
        select={"k": "r.k", "v": "r.v", "t": "r.t", "end": "best.window_end"},
    )
    runtime, rows = Runtime(query, bounded=True), feed(1)
    tables = [runtime.push({"r": rows[k : k + 7]}) for k in range(0, len(rows), 7)]
    wanted = []
    for begin in range(0, 80, 10):
        most = max(row["v"] for row in rows if begin <= row["t"] < begin + 10)
        wanted += [
            (row["k"], row["v"], row["t"], begin + 10)
            for row in rows
            if row["v"] == most and begin <= row["t"] <= begin + 10
        ]
    assert sorted(tuple(row.values()) for row in pa.concat_tables([*tables, runtime.finish()]).to_pylist()) == sorted(
        wanted
    )


def test_the_groups_with_the_most_rows_of_each_window() -> None:
    """Query 5 of NEXMark: a stream of windows, and a table of groups of such a stream."""
    text = "SELECT k, count(*) AS n, window_start, window_end FROM TABLE(HOP(TABLE r, DESCRIPTOR(t), 2, 10))"
    text += " GROUP BY k, window_start, window_end"
    most = f"SELECT max(c.n) AS n, c.window_start, c.window_end FROM ({text}) c GROUP BY c.window_start, c.window_end"
    query = eddy.sql(
        f"SELECT a.k, a.n, a.window_end FROM ({text}) a JOIN ({most}) m ON a.window_start = m.window_start"
        " AND a.window_end = m.window_end AND a.n >= m.n",
        [bids()],
    )
    runtime, rows, shown = Runtime(query, output="changelog"), feed(2), dict[str, int]()
    for k in range(0, len(rows), 11):
        for change in runtime.push(query.inputs({"r": rows[k : k + 11]})).to_pylist():
            sign = -1 if change.pop("op") in ("-D", "-U") else 1
            shown[str(change)] = shown.get(str(change), 0) + sign
    wanted = set()
    for end in range(2, 79, 2):
        inside = [row["k"] for row in rows if end - 10 <= row["t"] < end]
        wanted |= {str({"k": k, "n": inside.count(k), "window_end": end}) for k in inside if all(
            inside.count(k) >= inside.count(other) for other in inside)}  # fmt: skip
    assert {row for row, n in shown.items() if n} == wanted
    assert set(shown.values()) <= {0, 1}


def test_an_exception_at_each_line_of_a_push() -> None:
    query = Query([bids(eddy.Range(9)), Stream("w", BEST, eddy.Range(9), "window_end")], ["r.v = w.m"])
    seen, rows = Seen(), feed(3)
    runtime, wanted = Runtime(query), Runtime(query)
    for k in range(0, 60, 5):
        table, _ = pushed(runtime, {"r": rows[k : k + 5]}, seen)
        assert table.equals(wanted.push({"r": rows[k : k + 5]}))
    assert len(seen) > 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream("w", Query([bids()], aggregates={"n": agg.count()})), "groups without group_window change"),
        (lambda: Stream("w", Query([bids()], top=Top(1, "r.k", ["r.v"]))), "the first rows of groups change"),
        (
            lambda: Stream("w", Query([bids(), Table("x", ROWS, key="k")], ["r.k = x.k"])),
            "table x changes; make it a Table",
        ),
        (
            lambda: Runtime(Query([Stream("w", BEST), Stream("u", ROWS)], ["u.v = w.m"])),
            "stream w has no time column, and rows of w come with the pushes",
        ),
        (lambda: Table("w", BEST), "make it a Stream, whose time is the column with the end of the window"),
        (lambda: eddy.Engine([bids(), TIMED]), "stream w has the rows of a query; give the engine the streams that"),
        (
            lambda: eddy.Engine([bids()]).start("q", Query([bids(), TIMED], ["r.v = w.m"]), warm=True),
            "a warm start has no meaning for a query over final rows of another one",
        ),
        (
            lambda: Runtime(Query([bids(eddy.Rows(3)), Stream("w", BEST, time="window_end")], ["r.v = w.m"])).push(
                {"w": []}
            ),
            "stream w has the rows of its query; push those of the streams that it reads",
        ),
        (
            lambda: eddy.sql(
                "SELECT r.k FROM r JOIN (SELECT max(v) AS m FROM r GROUP BY TUMBLE(t, 10)) b ON r.v = b.m", [bids()]
            ),
            "select window_end in it",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises((eddy.QueryError, eddy.InputError), match=message):
        make()


def test_a_snapshot_belongs_to_the_query_of_the_stream() -> None:
    def query(size: int) -> Query:
        below = Query([bids()], aggregates={"m": agg.max("r.v")}, group_window=eddy.Tumbling(size, time="r.t"))
        return Query([bids(eddy.Rows(3)), Stream("w", below, eddy.Rows(2), "window_end")], ["r.v = w.m"])

    saved = Runtime(query(10)).snapshot()
    with pytest.raises(eddy.SnapshotError, match="stream w, its query"):
        Runtime.restore(saved, query(20))
