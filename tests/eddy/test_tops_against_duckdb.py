"""The first rows of groups against ROW_NUMBER() of DuckDB: values of all orders, nulls and NaN, by random queries."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import eddy

VALUES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "i": (pa.int64(), (0, 1, -1, 2**62, None)),
    "u": (pa.uint64(), (0, 2**64 - 1, 5, None)),
    "x": (pa.float64(), (0.0, 1.5, -math.inf, math.inf, math.nan, -1e-300, None)),
    "s": (pa.string(), ("", "a", "B", "é", "z", "a longer text than the others", "\U0001f600", "\uffff", None)),
    "b": (pa.bool_(), (True, False, None)),
    "d": (pa.decimal128(30, 2), (Decimal("1.10"), Decimal("-99999999999999999999.01"), Decimal(0), None)),
    "y": (pa.date32(), (date(1969, 1, 1), date(2026, 1, 1), None)),
    "z": (pa.binary(), (b"", b"\x00", b"\xff\x00", None)),
}
SCHEMA = pa.schema([*((name, kind) for name, (kind, _) in VALUES.items()), ("n", pa.int64())])


@pytest.mark.campaign(0)
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_that_of_row_number(seed: int) -> None:
    draw, database = random.Random(seed), duckdb.connect()
    for _ in range(500):
        rows = [{name: draw.choice(pool) for name, (_, pool) in VALUES.items()} for _ in range(draw.randrange(30))]
        table = pa.Table.from_pylist([{**row, "n": k} for k, row in enumerate(rows)], schema=SCHEMA)
        by, columns = (draw.sample(sorted(VALUES), draw.randrange(3)) for _ in range(2))
        order = [
            column + draw.choice(("", " asc", " desc")) + draw.choice(("", " nulls first", " nulls last"))
            for column in columns
        ]
        n = draw.choice((1, 2, 4))
        top = eddy.Top(n, [f"R.{column}" for column in by], [f"R.{term}" for term in order], "rank")
        # Half of the queries keep the first rows only, and half may take rows back.
        window = draw.choice((None, eddy.Rows(1000)))
        runtime = eddy.Runtime(eddy.Query([eddy.Stream("R", SCHEMA, window=window)], top=top), output="changelog")
        answer = dict[tuple[int, int], None]()
        start = 0
        while start < len(table):
            size = draw.randrange(1, 12)
            for row in runtime.push({"R": table.slice(start, size)}).to_pylist():
                key = row["R.n"], row["rank"]
                if row["op"] in ("+I", "+U"):
                    answer[key] = None
                else:
                    answer.pop(key)
            start += size
        partition = f"PARTITION BY {', '.join(by)} " if by else ""
        expected = database.sql(
            f"SELECT n, rank FROM (SELECT n, ROW_NUMBER() OVER ({partition}ORDER BY {', '.join([*order, 'n'])}) AS rank"
            f' FROM "table") WHERE rank <= {n}'
        ).fetchall()
        assert sorted(answer) == sorted(expected), (top, table.to_pylist())
