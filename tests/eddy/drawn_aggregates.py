"""Random queries with aggregates, for the oracle and for eddy, and random pushes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.fuzz.aggregate_oracle import TIME, OracleAggregate, OracleWindow, Row, grouped, windowed
from eddy.fuzz.oracle import Oracle, OracleQuery, OracleStream
from eddy.query.aggregate_functions import FUNCTIONS

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.int64()),
    ]
)
VALUES: dict[str, Sequence[Any]] = {
    "k": (1, 1, 2, None),
    "g": ("a", "b", "", None),
    "x": (0.1, 0.2, 0.3, 1e300, -1e300, 5e-324, -0.0, 0.0, math.nan, math.inf, None),
    "i": (1, -1, 5, 3_000_000_000, None),
    "d": (Decimal("0.10"), Decimal("-7.25"), Decimal("123456789012345678.90"), None),
}
NAMES = "RST"


class DrawnAggregation:
    """A query: group columns, functions, perhaps windows of groups and `having`."""

    def __init__(self, draw: st.DrawFn, kinds: Sequence[str], windows: bool) -> None:
        n = draw(st.sampled_from((1, 2, 2, 3)))
        self.names = NAMES[:n]
        window_kinds = [draw(st.sampled_from(kinds)) for _ in range(n)]
        sizes = [
            draw(st.integers(1, 4)) if kind == "rows" else draw(st.sampled_from((0, 2, 5, 9))) for kind in window_kinds
        ]
        self.ranged = "range" in window_kinds
        self.lateness = draw(st.sampled_from((0, 3))) if self.ranged else 0
        watermark = draw(st.sampled_from(("fastest", "fastest", "slowest"))) if self.ranged or windows else "slowest"
        time = "t" if self.ranged or windows or draw(st.booleans()) else None
        streams = [
            OracleStream(name, kind, size, time)
            for name, kind, size in zip(self.names, window_kinds, sizes, strict=True)
        ]
        pairs = [((a, "k"), (b, "k")) for a, b in zip(self.names, self.names[1:], strict=False)]
        self.oracle = Oracle(OracleQuery(streams, pairs, self.lateness, watermark=watermark))
        self.timed = time is not None
        self.columns = [f"{name}.{column}" for name in self.names for column in SCHEMA.names]
        self.keys = draw(
            st.lists(st.sampled_from([f"{name}.{c}" for name in self.names for c in "gxd"]), max_size=2, unique=True)
        )
        self.functions = draw(st.lists(self._function(), min_size=1, max_size=4))
        self.window, given, self.slack, self.of = self._window(draw, streams) if windows else (None, None, 0, None)
        makers: dict[str, Callable[[int], Any]] = {
            "rows": eddy.Rows,
            "range": eddy.Range,
            "unbounded": lambda _: eddy.Unbounded(),
        }
        have = draw(st.booleans())
        self.having: Callable[[Mapping[str, Any]], bool] = lambda row: not have or row["n"] > 1
        self.query = eddy.Query(
            [
                eddy.Stream(stream.name, SCHEMA, window=makers[stream.window](stream.size), time=time)
                for stream in streams
            ],
            [f"{a}.k = {b}.k" for a, b in zip(self.names, self.names[1:], strict=False)],
            lateness=self.lateness,
            watermark=watermark,
            group_by=self.keys,
            aggregates={"n": agg.count(), **{f"f{k}": given for k, (given, _) in enumerate(self.functions)}},
            having=pc.field("n") > 1 if have else None,
            group_window=given,
        )

    def _window(self, draw: st.DrawFn, streams: Sequence[OracleStream]) -> tuple[OracleWindow, Any, int, str | None]:
        of = draw(st.sampled_from((None, None, *[stream for stream in streams if stream.window == "range"])))
        slack, time = (0, None) if of is None else (of.size, f"{of.name}.t")
        kind = draw(st.sampled_from(("tumbling", "hopping", "session")))
        size, hop = draw(st.integers(1, 8)), draw(st.integers(1, 8))
        if kind == "session":
            return OracleWindow(gap=size), eddy.Session(size, time), slack, time
        if kind == "tumbling":
            return OracleWindow(size, size), eddy.Tumbling(size, time), slack, time
        return OracleWindow(size, hop), eddy.Hopping(size, hop, time), slack, time

    @st.composite
    @staticmethod
    def _any(draw: st.DrawFn, names: str, columns: str) -> str:
        return f"{draw(st.sampled_from(names))}.{draw(st.sampled_from(columns))}"

    def _function(self) -> st.SearchStrategy[tuple[agg.Aggregate, OracleAggregate]]:
        plain = st.one_of(
            *(self._of_columns(name) for name in FUNCTIONS),
            st.builds(
                lambda c: (agg.sum(pc.field(c) * 2 - 1), OracleAggregate("sum", lambda row: _twice(row[c]))),
                DrawnAggregation._any(self.names, "i"),
            ),
        )
        if not self.timed:
            return plain
        return plain | self._of_columns("last", False)

    def _of_columns(self, name: str, by: bool = True) -> st.SearchStrategy[tuple[agg.Aggregate, OracleAggregate]]:
        """Draw a function of a column that it takes, and, if it is an ordered one and `by`, of one that it goes by."""
        function, make = FUNCTIONS[name], getattr(agg, name)
        taken = [c for c in "gxid" if function.result(SCHEMA.field(c).type) is not None]
        arguments = [DrawnAggregation._any(self.names, "".join(taken))]
        if function.ordered and by:
            arguments.append(DrawnAggregation._any(self.names, "gxid"))
        return st.tuples(*arguments).map(lambda chosen: (make(*chosen), OracleAggregate(name, *chosen)))

    # Results

    def row(self, numbers: Sequence[int]) -> Row:
        """Return a result as the aggregate oracle takes it."""
        row: dict[str, Any] = {}
        for name, n in zip(self.names, numbers, strict=True):
            row.update({f"{name}.{column}": value for column, value in self.oracle.tuples[name][n].items()})
        if self.timed:
            row[TIME] = max(row[f"{name}.t"] for name in self.names) if self.of is None else row[self.of]
        return row

    def groups(self, rows: Iterable[Row]) -> Counter[tuple[str, ...]]:
        """Return the rows of groups over all of some results, as text."""
        functions = [OracleAggregate("count"), *(function for _, function in self.functions)]
        groups = grouped(rows, self.keys, functions)
        return row_texts((*key, *values) for key, values in groups.items() if self.having({"n": values[0]}))

    def windows(self, rows: Sequence[Row], after: float, limit: float) -> Counter[tuple[str, ...]]:
        """Return the rows of windows that end after a time, and at a limit at the latest, as text."""
        assert self.window is not None
        functions = [OracleAggregate("count"), *(function for _, function in self.functions)]
        groups = windowed(rows, self.keys, functions, self.window)
        return row_texts(
            (*key, start, end, *values)
            for (start, end, *key), values in groups.items()
            if after < end <= limit and self.having({"n": values[0]})
        )


def _twice(value: int | None) -> int | None:
    return None if value is None else 2 * value - 1


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "NaN" if value != value else repr(value + 0.0)
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return "NaN" if value == "NaN" else repr(value)


def row_texts(rows: Iterable[Sequence[Any]]) -> Counter[tuple[str, ...]]:
    """Return rows of plain values as text."""
    return Counter(tuple(map(_text, row)) for row in rows)


def texts(table: pa.Table) -> Counter[tuple[str, ...]]:
    """Return rows as text."""
    return Counter(tuple(map(_text, row.values())) for row in table.to_pylist())


@st.composite
def arrivals(draw: st.DrawFn, names: str, most: int = 30) -> list[tuple[str, dict[str, Any]]]:
    """Draw arrivals: event times rise, with some rows behind."""
    drawn = []
    for k, picks in enumerate(draw(st.lists(st.binary(min_size=7, max_size=7), min_size=5, max_size=most))):
        row = {
            name: choices[pick * len(choices) >> 8]
            for (name, choices), pick in zip(VALUES.items(), picks, strict=False)
        }
        row["t"] = k - (picks[5] % 8 if picks[5] > 127 else 0)
        drawn.append((names[picks[6] % len(names)], row))
    return drawn


def in_pushes(draw: st.DrawFn, rows: list[Any]) -> list[list[Any]]:
    """Split arrivals into pushes."""
    pushes, at = [], 0
    while at < len(rows):
        size = draw(st.sampled_from((1, 2, 5, 9, 0)))
        pushes.append(rows[at : at + size])
        at += size
    return pushes


def batches(names: str, rows: Sequence[tuple[str, Row]]) -> tuple[dict[str, pa.Table], list[int]]:
    """Return a push as eddy takes it, with the order of arrival."""
    tables = {name: pa.Table.from_pylist([dict(row) for n, row in rows if n == name], schema=SCHEMA) for name in names}
    return tables, [names.index(name) for name, _ in rows]
