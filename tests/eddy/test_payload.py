"""Columns of every type leave a join unchanged: values, nulls and types, in small and large pushes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import eddy
from tests.cases import text_rows
from tests.draws import PAYLOADS
from tests.key_types import FAMILIES, to_arrow

COLUMNS = {
    **{kind: family.domain(kind, family.values) for family in FAMILIES.values() for kind in family.types},
    **{kind: list(values) for kind, values in PAYLOADS.items()},
}
ROWS = 150
WINDOW = 40


@pytest.mark.parametrize("push_rows", [7, ROWS])
@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_a_column_comes_out_as_it_went_in(kind: pa.DataType, push_rows: int) -> None:
    values = COLUMNS[kind]
    # No nulls at first, so that the first null reaches a runtime that has stored none.
    taken = [values[k % len(values)] if k < 20 or k % 5 else None for k in range(ROWS)]
    schema = pa.schema([("k", pa.int64()), ("x", kind)])
    # Slicing off the first three rows gives arrays with offsets.
    every = pa.RecordBatch.from_arrays(
        [pa.array([None] * 3 + list(range(ROWS))), to_arrow([None] * 3 + taken, kind)], schema=schema
    ).slice(3)
    streams = [eddy.Stream(name, schema, window=eddy.Rows(WINDOW)) for name in ("R", "S")]
    query = eddy.Query(streams, ["R.k = S.k"], select={"left": "R.x", "right": "S.x"})
    runtime = eddy.Runtime(query, renumber_at=100)  # sequence numbers are renumbered once or twice
    tables = []
    for at in range(0, ROWS, push_rows):
        part = every.slice(at, push_rows)
        order = np.tile(np.array([0, 1], np.int64), part.num_rows)
        tables.append(runtime.push({"R": part, "S": part}, order))
    runtime.check()
    results = pa.concat_tables(tables)
    assert results.schema.types == [kind, kind]
    results.validate(full=True)
    expected = pa.table({"left": every.column("x"), "right": every.column("x")})
    assert text_rows(results) == text_rows(expected)


def test_results_outlive_the_state_they_came_from() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("s", pa.string())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(4)) for name in ("R", "S")]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"], select=["R.x", "S.s"]))

    def push(start: int) -> pa.Table:
        rows = pa.table({"k": range(start, start + 4), "x": range(start, start + 4), "s": [f"s{start}"] * 4})
        return runtime.push({"R": rows.cast(schema), "S": rows.cast(schema)}, [0, 1] * 4)

    kept = push(0)
    before = kept.to_pydict()
    for start in range(4, 400, 4):
        push(start)
    assert kept.to_pydict() == before == {"R.x": [0, 1, 2, 3], "S.s": ["s0"] * 4}
