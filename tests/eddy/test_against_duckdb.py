"""Joins too large for a nested loop, compared with DuckDB: growth of every room, long chains, long keys."""

from __future__ import annotations

import itertools

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import eddy

ROWS = 20_000
NAMES = ("r", "s", "t", "u")


def tables(keys: int, seed: int) -> dict[str, pa.Table]:
    """Return four tables with a number, a text and a pair of columns as keys, some null, and times that rise."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in NAMES:
        a = rng.integers(0, keys, ROWS)
        b = rng.integers(0, keys, ROWS)
        null = rng.random(ROWS) < 0.01
        made[name] = pa.table(
            {
                "id": pa.array(range(ROWS)),
                "a": pa.array(a, mask=null),
                "b": pa.array([f"a key that is not short, number {key}" for key in b]),
                "t": pa.array(np.arange(ROWS) * len(NAMES) + rng.integers(0, len(NAMES), ROWS)),
            }
        )
    return made


def from_duckdb(made: dict[str, pa.Table], condition: str) -> pa.Table:
    connection = duckdb.connect()
    for name, table in made.items():
        connection.register(name, table)
    columns = ", ".join(f"{name}.id AS {name}" for name in NAMES)
    joined = connection.sql(f"SELECT {columns} FROM {', '.join(NAMES)} WHERE {condition}").to_arrow_table()
    return joined.sort_by([(name, "ascending") for name in NAMES])


def from_eddy(query: eddy.Query, plan: str | None, made: dict[str, pa.Table], batch_rows: int) -> pa.Table:
    runtime = eddy.Runtime(query, plan)
    given = [
        runtime.push({name: table.slice(at, batch_rows) for name, table in made.items()})
        for at in range(0, ROWS, batch_rows)
    ]
    runtime.check()
    return pa.concat_tables(given).sort_by([(name, "ascending") for name in NAMES])


def query(window: eddy.Rows | eddy.Range | eddy.Unbounded, predicates: list[str], schema: pa.Schema) -> eddy.Query:
    streams = [eddy.Stream(name, schema, window=window, time="t") for name in NAMES]
    return eddy.Query(streams=streams, on=predicates, select={name: f"{name}.id" for name in NAMES})


@pytest.mark.parametrize("plan", [None, "(r s) (t u)", "r (s (t u))"])
def test_chain_without_windows(plan: str | None) -> None:
    made = tables(keys=12_000, seed=1)
    join = query(eddy.Unbounded(), ["r.a = s.a", "s.b = t.b", "t.a = u.a"], made["r"].schema)
    expected = from_duckdb(made, "r.a = s.a AND s.b = t.b AND t.a = u.a")
    assert expected.num_rows > 10_000
    assert from_eddy(join, plan, made, 7000).equals(expected)


@pytest.mark.parametrize("batch_rows", [500, ROWS])
def test_one_key_in_range_windows(batch_rows: int) -> None:
    made = tables(keys=100, seed=2)
    join = query(eddy.Range(1000), ["(r.a, r.b) = (s.a, s.b)", "s.a = t.a", "t.a = u.a"], made["r"].schema)
    newest = "greatest(r.t, s.t, t.t, u.t)"
    within = " AND ".join(f"{newest} - {name}.t <= 1000" for name in NAMES)
    # These conditions on pairs follow from it, so that DuckDB need not join the whole streams first.
    within += "".join(f" AND abs({x}.t - {y}.t) <= 1000" for x, y in itertools.pairwise(NAMES))
    expected = from_duckdb(made, f"r.a = s.a AND r.b = s.b AND s.a = t.a AND t.a = u.a AND {within}")
    assert expected.num_rows > 500
    assert from_eddy(join, "(r s) (t u)", made, batch_rows).equals(expected)


@pytest.mark.parametrize("batch_rows", [500, ROWS])
def test_rows_windows_two_streams(batch_rows: int) -> None:
    # With two streams SQL can express a ROWS window: the n newest of the other stream by the time of the later row.
    made = tables(keys=1000, seed=3)
    streams = [eddy.Stream(name, made[name].schema, window=eddy.Rows(800), time="t") for name in ("r", "s")]
    join = eddy.Query(streams=streams, on=["r.a = s.a"], select={"r": "r.id", "s": "s.id"})
    runtime = eddy.Runtime(join)
    given = [
        runtime.push({name: made[name].slice(at, batch_rows) for name in ("r", "s")})
        for at in range(0, ROWS, batch_rows)
    ]
    runtime.check()
    connection = duckdb.connect()
    connection.register("r", made["r"])
    connection.register("s", made["s"])
    # pos is the position in the order of arrival; r_seen and s_seen count the rows of each stream up to that position.
    expected = connection.sql(
        """
        WITH every AS (
            SELECT t, 0 AS stream, id, a FROM r UNION ALL SELECT t, 1, id, a FROM s
        ), placed AS (
            SELECT *,
                sum(1 - stream) OVER w AS r_seen,
                sum(stream) OVER w AS s_seen,
                row_number() OVER w AS pos
            FROM every WINDOW w AS (ORDER BY t, stream, id)
        )
        SELECT x.id AS r, y.id AS s
        FROM placed x JOIN placed y ON x.stream = 0 AND y.stream = 1 AND x.a = y.a
        WHERE CASE WHEN x.pos < y.pos THEN x.id >= y.r_seen - 800 ELSE y.id >= x.s_seen - 800 END
        """
    ).to_arrow_table()
    by = [("r", "ascending"), ("s", "ascending")]
    assert expected.num_rows > 5000
    results = pa.concat_tables(given).sort_by(by)
    assert results.equals(expected.sort_by(by).cast(results.schema))
