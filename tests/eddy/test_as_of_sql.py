"""As-of joins in SQL: each form gives the query that it stands for, DuckDB finds the same rows, the rest is refused."""

from __future__ import annotations

from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from eddy import AsOf, Query, QueryError, Range, Runtime, SqlError, Stream, Table, VersionedTable, sql, to_sql
from eddy.query.text import query_text

BIDS = pa.schema([("cur", pa.string()), ("t", pa.int64()), ("x", pa.int64())])
RATES = pa.schema([("cur", pa.string()), ("t", pa.int64()), ("rate", pa.float64())])
BID = Stream("bid", BIDS, time="t")
ASK = Stream("ask", BIDS, window=Range(10), time="t")
RATE = VersionedTable("rate", RATES, key="cur", time="t")
STREAMS = [BID, ASK, RATE]
ON = ["bid.cur = rate.cur"]
PLAIN = Query([BID], as_of=[AsOf(RATE, ON)], select={"x": "bid.x", "rate": "rate.rate"})
JOINED = Query(
    [Stream("bid", BIDS, window=Range(5), time="t"), ASK],
    ["bid.cur = ask.cur"],
    as_of=[AsOf(RATE, ["LOWER(ask.cur) = rate.cur"], at="ask.t", how="left")],
    select={"x": "bid.x", "rate": "rate.rate"},
)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT bid.x, rate.rate FROM bid JOIN rate FOR SYSTEM_TIME AS OF bid.t ON bid.cur = rate.cur",
        "SELECT b.x, r.rate FROM bid b JOIN rate FOR SYSTEM_TIME AS OF b.t AS r ON r.cur = b.cur",
        "SELECT bid.x, rate.rate FROM bid ASOF JOIN rate ON bid.cur = rate.cur AND bid.t >= rate.t",
        "SELECT bid.x, r.rate FROM bid ASOF JOIN rate r ON (r.t <= bid.t) AND r.cur = bid.cur",
        "SELECT x, rate FROM bid ASOF JOIN rate USING (cur, t)",
        "WITH r AS (SELECT * FROM bid) SELECT x, rate FROM r ASOF JOIN rate USING (cur, t)",
    ],
)
def test_forms_of_one_query(text: str) -> None:
    query = sql(text, STREAMS)
    assert query_text(query) == query_text(PLAIN)
    assert query_text(sql(to_sql(query), STREAMS)) == query_text(query)


def test_an_as_of_join_of_a_join() -> None:
    text = (
        "SELECT bid.x, rate.rate FROM bid JOIN ask ON bid.cur = ask.cur"
        " LEFT JOIN rate FOR SYSTEM_TIME AS OF ask.t ON LOWER(ask.cur) = rate.cur"
    )
    streams = [Stream("bid", BIDS, window=Range(5), time="t"), ASK, RATE]
    query = sql(text, streams)
    assert query_text(query) == query_text(JOINED)
    assert query_text(sql(to_sql(query), streams)) == query_text(query)


def test_rows_look_a_table_up_when_they_arrive() -> None:
    table = Table("rate", RATES, key="cur")
    text = "SELECT x, rate FROM bid LEFT JOIN rate FOR SYSTEM_TIME AS OF PROCTIME() ON bid.cur = rate.cur"
    query = sql(text, [BID, table])
    wanted = Query([BID], as_of=[AsOf(table, ON, how="left")], select={"x": "bid.x", "rate": "rate.rate"})
    assert query_text(query) == query_text(wanted)
    assert query_text(sql(to_sql(query), [BID, table])) == query_text(query)
    with pytest.raises(SqlError, match=r"give rate as eddy.Table"):
        sql(text, STREAMS)
    with pytest.raises(SqlError, match=r"AS OF PROCTIME\(\) for an eddy.Table"):
        sql(text.replace("PROCTIME()", "bid.t"), [BID, table])


def test_conditions_on_versions_filter_rows() -> None:
    text = "SELECT bid.x FROM bid JOIN rate FOR SYSTEM_TIME AS OF bid.t ON bid.cur = rate.cur AND rate.rate > 1"
    query = sql(text, STREAMS)
    assert [str(condition.title) for condition in query.conditions] == ["rate.rate > 1"]
    left = sql("SELECT bid.x FROM bid ASOF LEFT JOIN rate USING (cur, t) WHERE rate IS NULL", STREAMS)
    runtime = Runtime(left, bounded=True)
    bids = [{"cur": "a", "t": 5, "x": 1}, {"cur": "b", "t": 6, "x": 2}]
    runtime.push({"bid": bids, "rate": [{"cur": "a", "t": 1, "rate": 1.0}]})
    assert runtime.finish().to_pylist() == [{"x": 2}]


def test_a_table_of_two_as_of_joins() -> None:
    text = (
        "SELECT b.x, r1.rate, r2.rate AS other FROM bid b JOIN ask a ON a.cur = b.cur"
        " AND b.t BETWEEN a.t AND a.t + 10 ASOF JOIN rate r1 ON r1.cur = b.cur AND r1.t <= b.t"
        " ASOF LEFT JOIN rate r2 ON UPPER(a.cur) = r2.cur AND a.t >= r2.t"
    )
    query = sql(text, STREAMS)
    assert query.graph.names[2:] == ("r1", "r2")
    assert query.tables["r1"] == query.tables["r2"] == "rate"
    assert to_sql(sql(to_sql(query), STREAMS)) == to_sql(query)


@pytest.mark.parametrize(
    ("text", "word", "message"),
    [
        ("bid JOIN rate ON bid.cur = rate.cur", "rate", "write FOR SYSTEM_TIME AS OF or ASOF JOIN"),
        ("bid ASOF JOIN rate ON bid.cur = rate.cur", "rate", "one comparison of times"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t >= r.t AND bid.x > 2", "rate", "one comparison of times"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t > r.t", "bid.t", "the version that is valid"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t <= r.t", "bid.t", "direction='forward'"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t >= bid.x", "bid.t", "between a column of the table and"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t >= r.rate", "r.rate", "begin at their column 't'"),
        ("bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.x >= r.t", "bid.x", "not the time column of a stream"),
        ("bid ASOF JOIN ask ON bid.cur = ask.cur AND bid.t >= ask.t", "ask", "no table with versions"),
        ("bid ASOF RIGHT JOIN rate r ON bid.cur = r.cur AND bid.t >= r.t", "rate", "inner or a LEFT join, not RIGHT"),
        ("bid JOIN rate FOR SYSTEM_TIME AS OF bid.x AS r ON bid.cur = r.cur", "bid.x", "not the time column"),
        ("bid JOIN rate FOR SYSTEM_TIME AS OF bid.t AS r ON bid.x = r.rate", "bid", "no equality of a key column"),
        (
            "bid LEFT JOIN rate FOR SYSTEM_TIME AS OF bid.t AS r ON bid.cur = r.cur AND r.rate > 1",
            "r.rate",
            "give the table a filter",
        ),
        (
            "ask LEFT JOIN (SELECT bid.* FROM bid ASOF JOIN rate r ON bid.cur = r.cur AND bid.t >= r.t) b"
            " ON ask.cur = b.cur AND b.t BETWEEN ask.t AND ask.t + 1",
            "rate",
            "after the other joins",
        ),
        ("bid FOR SYSTEM_TIME AS OF bid.t JOIN ask ON bid.cur = ask.cur", "FOR", "write it in a join"),
        ("bid JOIN rate FOR SYSTEM_TIME AS OF '2020-01-01' ON bid.cur = rate.cur", "FOR", "the time of a row"),
        ("bid FULL JOIN ask ON bid.cur = ask.cur ASOF JOIN rate r USING (cur, t)", "rate", "FULL OUTER JOIN has two"),
        ("bid ASOF JOIN (SELECT * FROM rate WHERE rate > 1) r USING (cur, t)", "", "an as-of join is with a table"),
    ],
)
def test_refusals(text: str, word: str, message: str) -> None:
    whole = f"SELECT 1 AS one FROM {text}"
    with pytest.raises(SqlError, match=message) as caught:
        sql(whole, STREAMS)
    assert whole[caught.value.column - 1 :].startswith(word)


def test_what_has_no_text() -> None:
    for more in ({"tolerance": 3}, {"direction": "nearest", "tolerance": 3}):
        query = Query([BID], as_of=[AsOf(RATE, ON, **more)])
        with pytest.raises(QueryError, match="direction or a tolerance, which has no text"):
            to_sql(query)


@pytest.mark.parametrize("seed", range(30))
def test_duckdb_finds_the_same_rows(seed: int) -> None:
    """A star of three tables, with rows that lack keys and versions, pushed in pieces."""
    draw, rng = Random(seed), np.random.default_rng(seed)
    n, m = draw.choice((5, 200, 2000)), draw.choice((3, 100, 500))
    keys = ["a", "b", "c", "d", None]
    bids = pa.table(
        {"cur": [draw.choice(keys) for _ in range(n)], "t": np.sort(rng.integers(0, m, n)), "x": np.arange(n)}, BIDS
    )
    tables = {"bid": bids}
    for name in ("r", "s", "u"):
        # One row for each key and time: DuckDB does not say which of several it takes.
        places = rng.permutation(4 * m)[: draw.choice((2, m))]
        places = places[np.argsort(places // 4, kind="stable")]
        tables[name] = pa.table(
            {"cur": [keys[k % 4] for k in places], "t": places // 4, "rate": rng.random(len(places))}, RATES
        )
    how = [draw.choice(("", "LEFT ")) for _ in range(3)]
    text = "SELECT b.x AS x, r.rate AS one, s.rate AS two, u.t AS three FROM bid b" + "".join(
        f" ASOF {side}JOIN {name} ON b.cur = {name}.cur AND b.t >= {name}.t"
        for side, name in zip(how, ("r", "s", "u"), strict=True)
    )
    streams = [BID, *(VersionedTable(name, RATES, key="cur", time="t") for name in ("r", "s", "u"))]
    runtime = Runtime(sql(text, streams), bounded=True)
    joined, step = [], draw.choice((m, max(m // 7, 1)))
    for low in range(0, m, step):
        within = (pa.compute.field("t") >= low) & (pa.compute.field("t") < low + step)
        joined += runtime.push(
            runtime.query.inputs({name: rows.filter(within) for name, rows in tables.items()})
        ).to_pylist()
    joined += runtime.finish().to_pylist()
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        wanted = connection.sql(text).to_arrow_table().to_pylist()
    assert sorted(map(str, joined)) == sorted(map(str, wanted))
