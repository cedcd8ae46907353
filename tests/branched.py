"""One query with all kinds of branches, its tables, and the same query in SQL, for DuckDB and Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import eddy

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("at", pa.int64())])
NAMES = "RSTUVW"
OUTPUT = ("r", "s", "t", "tb", "w")

SQL = """
WITH kept AS (SELECT T.* FROM T WHERE EXISTS (
    SELECT 1 FROM V WHERE V.a = T.a AND V.b = T.b AND V.at BETWEEN T.at - 30 AND T.at + 30))
SELECT R.id AS r, S.id AS s, kept.id AS t, kept.b AS tb, W.id AS w
FROM R JOIN S ON R.a = S.a AND S.at BETWEEN R.at AND R.at + 40
LEFT JOIN kept ON kept.a = R.a AND kept.at BETWEEN S.at - 10 AND S.at + 50
LEFT JOIN W ON W.a = S.a AND W.b = R.b AND W.at BETWEEN R.at - 20 AND R.at AND (W.id + S.id) % 3 <> 0
WHERE NOT EXISTS (SELECT 1 FROM U WHERE U.a = R.a AND U.b = S.b AND U.at > R.at AND U.at < R.at + 15)
"""


def query() -> eddy.Query:
    """Return the query: a core of two streams, two left branches (one with a semi branch), an anti branch."""
    r, s, t, u, v, w = (eddy.Stream(name, SCHEMA, time="at") for name in NAMES)
    seen = eddy.Branch([v], ["V.a = T.a", "V.b = T.b", "V.at between T.at - 30 and T.at + 30"], "semi")
    far = eddy.Predicate(not_third, columns=["S.id", "W.id"])
    return eddy.Query(
        [r, s],
        ["R.a = S.a", "S.at between R.at and R.at + 40"],
        branches=[
            eddy.Branch([t], ["T.a = R.a", "T.at between S.at - 10 and S.at + 50"], "left", [seen]),
            eddy.Branch([u], ["U.a = R.a", "U.b = S.b", "U.at > R.at", "U.at < R.at + 15"], "anti"),
            eddy.Branch([w], ["W.a = S.a", "W.b = R.b", "W.at between R.at - 20 and R.at"], "left", where=far),
        ],
        select={"r": "R.id", "s": "S.id", "t": "T.id", "tb": "T.b", "w": "W.id"},
    )


def not_third(batch: pa.RecordBatch) -> np.ndarray:
    """Return whether the sum of both columns is no multiple of three."""
    first, second = (column.to_numpy() for column in batch.columns)
    return (first + second) % 3 != 0


def tables(rows: int, seed: int) -> dict[str, pa.Table]:
    """Return random tables; keys are sometimes null, and event times rise."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in NAMES:
        a = pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.03)
        b = pa.array([f"text {k}" for k in rng.integers(0, 3, rows)], mask=rng.random(rows) < 0.03)
        times = np.sort(rng.integers(0, rows, rows))
        made[name] = pa.table({"id": np.arange(rows), "a": a, "b": b, "at": times}, schema=SCHEMA)
    return made


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows of a result, sorted."""
    rows = zip(*(table.column(name).to_pylist() for name in OUTPUT), strict=True)
    return sorted(rows, key=lambda row: tuple((value is not None, value) for value in row))
