"""SELECTs that do more with row numbers than show the first rows: after each push, DuckDB finds the same."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import eddy
from jisc.strategies import STRATEGIES
from tests.eddy.answers import R, S, T
from tests.eddy.test_queries_over_queries import play

OVER = "ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS rn"


def numbered(name: str, by: str = "g", order: str = "v DESC, k") -> str:
    """Return the rows of an input with numbers. Rows of equal order have equal columns, since their order is open."""
    return f"SELECT k, g, v, {OVER.format(by=by, order=order + ', g')} FROM {name}"


LAST, FIRST = numbered("r"), numbered("s", "k", "v")
BEST = f"SELECT k, g, v FROM ({LAST}) WHERE rn = 1"
TEXTS = [
    f"SELECT g, count(*) AS n, sum(v)::BIGINT AS s, avg(v) AS a FROM ({LAST}) x WHERE rn <= 3 GROUP BY g",
    f"SELECT count(*) AS n, max(v) AS m FROM ({LAST}) WHERE 3 > rn AND v > 4",
    f"SELECT g, max(v) AS m FROM ({LAST}) x WHERE x.rn < 4 AND x.k > 1 GROUP BY g HAVING count(*) > 1",
    f"SELECT DISTINCT k, g FROM ({LAST}) WHERE rn <= 2",
    f"SELECT k, v FROM ({LAST}) WHERE rn <= 3 AND v > 9",
    f"SELECT k, v, rn FROM ({LAST}) WHERE rn BETWEEN 2 AND 3",
    f"SELECT k, v FROM ({LAST}) WHERE rn = 2",
    f"SELECT k, v FROM ({LAST}) WHERE rn IN (1, 3)",
    f"SELECT k, v FROM ({LAST}) WHERE rn = 1 OR (rn < 5 AND rn > 3)",
    f"SELECT k, v, rn FROM ({LAST}) WHERE rn > 1 AND rn <= 4",
    f"SELECT rn + 1 AS r, k, rn FROM ({LAST}) WHERE rn <= 2",
    f"SELECT a, r FROM ({LAST}) x (a, b, c, r) WHERE r <= 2 AND r > 1",
    f"WITH x AS ({LAST}) SELECT y.g, z.v FROM x AS y JOIN x AS z ON y.g = z.g AND y.v = z.v"
    " WHERE y.rn = 1 AND z.rn <= 2",
    f"SELECT t.k, x.v, x.rn FROM t JOIN ({LAST}) x ON t.k = x.k WHERE x.rn <= 2 AND t.v > x.v",
    f"SELECT t.k, x.v, x.rn FROM t LEFT JOIN ({LAST}) x ON t.k = x.k AND x.rn <= 2",
    f"SELECT t.k, x.v FROM t LEFT JOIN ({LAST}) x ON t.k = x.k WHERE x.rn <= 2",
    f"SELECT x.k, x.rn, t.v FROM ({LAST}) x LEFT JOIN t ON t.k = x.k WHERE x.rn <= 2",
    f"SELECT x.k, y.v FROM ({LAST}) x JOIN ({FIRST}) y ON x.k = y.k AND x.rn = 1 AND y.rn < 3",
    f"SELECT t.k FROM t WHERE t.k IN (SELECT k FROM ({LAST}) WHERE rn <= 2)",
    f"SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM ({LAST}) x WHERE x.rn <= 2 AND x.k = t.k AND x.v > t.v)",
    # Row numbers of first rows: NEXMark's query 6.
    f"SELECT k, v FROM (SELECT k, v, {OVER.format(by='k', order='v DESC')} FROM ({LAST}) WHERE rn <= 2) WHERE rn <= 1",
    f"SELECT k, avg(v) AS a FROM (SELECT k, v, {OVER.format(by='k', order='v DESC')} FROM ({BEST}))"
    " WHERE rn <= 2 GROUP BY k",
    f"SELECT k, v FROM ({LAST}) WHERE rn <= 3 QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) = 1",
    # A query over another one may be a condition or an expression alone.
    "SELECT k, n + 1 AS m FROM (SELECT k, count(*) AS n FROM r GROUP BY k) WHERE n > 2 OR k = 1",
    "SELECT x.k FROM (SELECT k FROM r QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY v, k) <= 2) x JOIN s"
    " ON s.k = x.k",
]


@pytest.mark.campaign(1)
@pytest.mark.parametrize("text", TEXTS)
def test_answers_are_those_of_duckdb(text: str) -> None:
    query, draw = eddy.sql(text, [R, S, T]), Random(text)
    assert sum(play(draw, query, text, draw.choice(sorted(STRATEGIES))) for _ in range(4))


def test_a_stream_of_windows_may_be_selected_from_alone() -> None:
    stream = eddy.Stream("a", eddy_schema(), time="at")
    windows = "SELECT k, count(*) AS n, window_end FROM a GROUP BY k, TUMBLE(at, 10)"
    query = eddy.sql(f"SELECT k, window_end, n * 2 AS m FROM ({windows}) w WHERE n > 1", [stream])
    runtime = eddy.Runtime(query)
    table = runtime.push(query.inputs({"a": [{"k": k % 2, "at": at} for k, at in enumerate((1, 2, 3, 4, 15, 16, 30))]}))
    assert table.to_pylist() == [{"k": 0, "window_end": 10, "m": 4}, {"k": 1, "window_end": 10, "m": 4}]


def eddy_schema() -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("at", pa.int64())])
