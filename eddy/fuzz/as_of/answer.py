"""Compare what a push gives with how it must change the answer; `eddy.fuzz.as_of.script` copies this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def compare_answer(table: pa.Table, ended: Sequence[tuple[Any, ...]], begun: Sequence[tuple[Any, ...]]) -> None:
    """Raise AssertionError unless a table takes back the rows that ended, and has those that began; pairs are adjacent.

    A row that ends and another one that is equal and begins need no rows. In append output no row ends. Timestamps are
    numbers.
    """
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    if "op" not in table.schema.names:
        rows = [("+I", *row) for row in rows]
        ended = ()
    before, after = (Counter(row[1:] for row in rows if row[0] in ops) for ops in (("-D", "-U"), ("+I", "+U")))
    for got, wanted in (
        (before - after, Counter(ended) - Counter(begun)),
        (after - before, Counter(begun) - Counter(ended)),
    ):
        missing, extra = wanted - got, got - wanted
        if missing or extra:
            raise AssertionError(f"missing rows {list(missing.elements())}, extra rows {list(extra.elements())}")
    ops = [row[0] for row in rows]
    pairs = [k for k, op in enumerate(ops) if op == "+U"] == [k + 1 for k, op in enumerate(ops) if op == "-U"]
    assert pairs, f"pairs are not adjacent: {rows}"
