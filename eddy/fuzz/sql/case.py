"""A case of random SQL, as plain data: the rows of tables, statements for eddy and for DuckDB, and how rows arrive.

The tables are called a, b, c and d. Their columns: a key `k` and a number `v` with few values, a decimal `d`, a float
`x` in quarters, a text `s`, a boolean `f`, an event time `at` within two minutes; all but `at` may be null.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eddy.streams.stream import Stream
from eddy.streams.windows import Unbounded

TABLES = "abcd"
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("v", pa.int32()),
        ("d", pa.decimal128(6, 2)),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("f", pa.bool_()),
        ("at", pa.timestamp("s")),
    ]
)
START = datetime.datetime(2026, 1, 1)
Row = tuple[int | None, int | None, int | None, int | None, str | None, bool | None, int]
"""k, v, d in hundredths, x in quarters, s, f, at in seconds."""


@dataclass(frozen=True)
class SqlCase:
    """A case.

    tables     the rows of each table
    text       the statement
    reference  the same for DuckDB
    kept       whether the streams have unbounded windows; otherwise their windows follow from intervals
    pushes     into how many pushes the rows are divided, by event time
    strategy   how plans run
    printed    whether the query is printed as SQL and read back, which must give the same query
    """

    tables: dict[str, tuple[Row, ...]]
    text: str
    reference: str
    kept: bool
    pushes: int
    strategy: str
    printed: bool = True

    def streams(self) -> list[Stream]:
        """Return the streams."""
        window = Unbounded() if self.kept else None
        return [Stream(name, SCHEMA, window=window, time="at") for name in self.tables]

    def rows(self, name: str) -> pa.Table:
        """Return the rows of a table, by event time."""
        ordered = sorted(self.tables[name], key=lambda row: row[-1])
        return pa.Table.from_pylist([values_of(row) for row in ordered], schema=SCHEMA)


def values_of(row: Row) -> dict[str, Any]:
    """Return a row by column."""
    k, v, d, x, s, f, at = row
    exact = None if d is None else decimal.Decimal(d).scaleb(-2)
    quarters = None if x is None else x / 4
    return {"k": k, "v": v, "d": exact, "x": quarters, "s": s, "f": f, "at": START + datetime.timedelta(seconds=at)}
