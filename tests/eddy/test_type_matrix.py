"""Every Arrow type in every role: as key, payload or event time, with filters. Each path works with the type, or the
query is refused.

A row of `TYPES` gives two values that differ. A cell is a query with a column of the type in a role; `LACKS` says which
cells are refused. An accepted query goes through all paths: several rows and pushes, nulls, slices, tables of
chunks, rows out of order and late, a push that fails, a snapshot, both outputs, conditions that narrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from tests.cases import assert_same, text_rows
from tests.key_types import behind, holds, to_arrow, to_plain, to_text

pytestmark = pytest.mark.versions

TEXT = ("a", "a string past any inline length")
LISTS = ([1, None], [])
STRUCTS = ({"v": "a"}, {"v": None})

TYPES: dict[pa.DataType, tuple[Any, Any]] = {
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), TEXT),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (b"a", b"\0" * 20)),
    pa.binary(2): (b"ab", b"\0\0"),
    **dict.fromkeys((pa.int8(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()), (3, 5)),
    **dict.fromkeys((pa.float16(), pa.float32(), pa.float64()), (0.5, -2.0)),
    pa.bool_(): (True, False),
    **dict.fromkeys((pa.decimal32(6, 2), pa.decimal64(12, 2)), (Decimal("1.25"), Decimal(-3))),
    **dict.fromkeys((pa.decimal128(30, 2), pa.decimal256(60, 2)), (Decimal("1.25"), Decimal(-3))),
    **dict.fromkeys((pa.date32(), pa.date64()), (0, 11_323)),
    **dict.fromkeys((pa.time32("s"), pa.time64("ns")), (0, 3_600 * 10**9)),
    **dict.fromkeys((pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Asia/Tokyo")), (0, 3_600 * 10**9)),
    pa.duration("ms"): (0, 10**6),
    pa.month_day_nano_interval(): (pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, 0, -1])),
    pa.null(): (None, None),
    pa.uuid(): (b"a" * 16, b"b" * 16),
    pa.bool8(): (1, 0),
    **dict.fromkeys((pa.list_(pa.int8()), pa.large_list(pa.int8())), LISTS),
    **dict.fromkeys((pa.list_view(pa.int8()), pa.large_list_view(pa.int8())), LISTS),
    pa.list_(pa.int8(), 2): ([1, None], [2, 3]),
    pa.list_(pa.string_view(), 2): (["a", None], ["b", "c"]),
    pa.map_(pa.string(), pa.int8()): ([("a", 1)], []),
    pa.map_(pa.string_view(), pa.list_view(pa.int8())): ([("a", [1])], []),
    pa.sparse_union([pa.field("n", pa.int8()), pa.field("s", pa.string())]): (1, "a"),
    pa.dense_union([pa.field("n", pa.int8()), pa.field("s", pa.string())]): (1, "a"),
    pa.sparse_union([pa.field("n", pa.int8()), pa.field("s", pa.string_view())]): (1, "a"),
    **dict.fromkeys((pa.struct([("v", kind)]) for kind in (pa.string(), pa.string_view())), STRUCTS),
    pa.struct([("v", pa.dictionary(pa.int8(), pa.string()))]): STRUCTS,
    pa.struct([("v", pa.run_end_encoded(pa.int32(), pa.string()))]): STRUCTS,
    pa.struct([("v", pa.list_view(pa.int8()))]): ({"v": [1]}, {"v": None}),
    pa.list_(pa.string_view()): (["a", None], []),
    pa.list_(pa.dictionary(pa.int8(), pa.string_view())): (["a", None], []),
    pa.list_view(pa.run_end_encoded(pa.int16(), pa.int64())): ([1, 1, None], []),
    pa.list_(pa.struct([("v", pa.list_view(pa.string_view()))])): ([{"v": ["a"]}], [None]),
    **{pa.dictionary(index, pa.string()): TEXT for index in (pa.int8(), pa.uint64())},
    pa.dictionary(pa.int32(), pa.string(), True): TEXT,
    pa.dictionary(pa.int8(), pa.string_view()): TEXT,
    pa.dictionary(pa.int8(), pa.uuid()): (b"a" * 16, b"b" * 16),
    pa.dictionary(pa.int8(), pa.timestamp("us")): (0, 3_600 * 10**9),
    pa.dictionary(pa.int8(), pa.list_(pa.int8())): LISTS,
    pa.dictionary(pa.int8(), pa.struct([("v", pa.string_view())])): STRUCTS,
    **{pa.run_end_encoded(ends, pa.string()): TEXT for ends in (pa.int16(), pa.int64())},
    pa.run_end_encoded(pa.int32(), pa.string_view()): TEXT,
    pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())): TEXT,
    pa.run_end_encoded(pa.int32(), pa.int64()): (3, 5),
    pa.run_end_encoded(pa.int32(), pa.timestamp("s")): (0, 3_600 * 10**9),
    pa.run_end_encoded(pa.int32(), pa.list_view(pa.int8())): LISTS,
}


def _is_key(kind: pa.DataType) -> bool:
    kind = behind(kind)
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or kind == pa.month_day_nano_interval())


def _is_clock(kind: pa.DataType) -> bool:
    kind = behind(kind)
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)


def _is_kept(kind: pa.DataType) -> bool:
    union = pa.types.is_union(kind)
    return not union or (kind.mode == "sparse" and not any(pa.types.is_string_view(field.type) for field in kind))


LACKS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "key": (_is_key, "cannot be keys"),
    "payload": (_is_kept, "union"),
    "event time": (_is_clock, "time columns must"),
    "filtered": (_is_kept, "union"),
}
"""By role: whether a type can have it, and the error message if not."""

ROWS = 24
STEP = 3_600 * 10**9


class FailingCondition:
    """A condition that holds for all rows, but fails while `due`, so that a push is undone after its walk."""

    __name__ = "failure"
    due = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        if self.due:
            raise ValueError("as asked")
        return pa.array(np.ones(len(batch), bool))


FAILURE = FailingCondition()


def _query(kind: pa.DataType, role: str) -> eddy.Query:
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64()), ("t", pa.timestamp("ns")), ("x", kind)])
    time = "x" if role == "event time" else "t"
    known = eddy.Predicate(lambda batch: np.asarray(pc.is_valid(batch["n"])), ["n"])
    given = eddy.Predicate(lambda batch: np.ones(len(batch), bool), ["x"])
    keep = [given, pc.field("n") != 7, known] if role == "filtered" else None
    where = [eddy.Predicate(FAILURE, ["S.x"]), *([pc.field("R.n") != 5] if role == "filtered" else [])]
    streams = [eddy.Stream(name, schema, window=eddy.Rows(100), time=time, filter=keep) for name in "RS"]
    if role == "payload":
        # Only windows by time have late rows.
        streams = [eddy.Stream(name, schema, window=eddy.Range(timedelta(hours=1000)), time=time) for name in "RS"]
    key = "x" if role == "key" else "k"
    return eddy.Query(streams, [f"R.{key} = S.{key}"], where=where)


def _rows(query: eddy.Query, role: str, start: int, values: Sequence[Any]) -> tuple[list[dict[str, Any]], pa.Table]:
    """Return rows as plain values, and as a table of two chunks that are slices."""
    schema = query.streams[0].schema
    rows = []
    for n in range(start, start + ROWS):
        time = STEP * (n - 2 * (n % 5))
        x = values[n % 2] if role == "event time" or n % 7 else None
        rows.append({"n": n, "k": n % 6, "t": time, "x": x})
    padded = [rows[0], *rows, rows[0]]
    every = pa.RecordBatch.from_arrays(
        [to_arrow([row[field.name] for row in padded], field.type) for field in schema], schema=schema
    )
    return rows, pa.Table.from_batches([every.slice(1, 10), every.slice(11, ROWS - 10)])


def _expected(role: str, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    key = "x" if role == "key" else "k"
    if role == "filtered":
        left, right = ([row for row in rows if row["n"] != 7] for rows in (left, right))
    texts = [[tuple(map(to_text, row.values())) for row in rows] for rows in (left, right)]
    return [
        r_text + s_text
        for r, r_text in zip(left, texts[0], strict=True)
        for s, s_text in zip(right, texts[1], strict=True)
        if r[key] is not None and r[key] == s[key] and (role != "filtered" or r["n"] != 5)
    ]


@pytest.mark.campaign(90)
@pytest.mark.parametrize("role", LACKS)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_works_on_every_path_or_the_query_is_refused(kind: pa.DataType, role: str) -> None:
    able, refusal = LACKS[role]
    if not able(kind) or not _is_kept(kind):
        with pytest.raises(eddy.QueryError, match=refusal if _is_kept(kind) else "union"):
            _query(kind, role)
        return
    query = _query(kind, role)
    for output in ("append", "changelog"):
        runtime = eddy.Runtime(query, output=output, renumber_at=60)
        taken: dict[str, list[dict[str, Any]]] = {"R": [], "S": []}
        tables = []
        for start, shape in ((0, "table"), (ROWS, "small pushes"), (2 * ROWS, "batches")):
            rows, table = _rows(query, role, start, TYPES[kind])
            FAILURE.due = True
            with pytest.raises(eddy.InputError, match="as asked"):
                runtime.push({"R": table, "S": table}, [0] * ROWS + [1] * ROWS)
            FAILURE.due = False
            runtime.check()
            if shape == "small pushes":
                for k in range(0, ROWS, 6):
                    tables.append(runtime.push({"R": table.slice(k, 6), "S": table.slice(k, 6)}, [0, 1] * 6))
                lost = runtime.late()
            elif shape == "table":
                # By event time: the push sorts its rows.
                tables.append(runtime.push({"R": table, "S": table}))
                lost = runtime.late()
                assert not lost
            else:
                part = table.combine_chunks().to_batches()
                assert len(part) == 1
                tables.append(runtime.push({"R": part[0], "S": part[0]}, [0] * ROWS + [1] * ROWS))
                lost = runtime.late()
            for name in taken:
                gone = {row["n"] for row in lost[name].to_pylist()} if name in lost else set()
                if name in lost:
                    assert lost[name].schema == query.streams[0].schema
                    late = [row["x"] for row in rows if row["n"] in gone]
                    assert list(map(to_text, to_plain(lost[name]["x"]))) == list(map(to_text, late))
                taken[name] += [row for row in rows if row["n"] not in gone]
            if role == "payload" and shape != "table":
                assert lost
            data = runtime.snapshot()
            runtime = eddy.Runtime.restore(data, query)
            assert runtime.snapshot() == data
            runtime.check()
        results = pa.concat_tables(tables)
        assert results.schema == runtime.output_schema
        results.validate(full=True)
        if output == "changelog":
            assert set(results["op"].to_pylist()) <= {"+I"}
            results = results.drop_columns(["op"])
        assert_same(text_rows(results), _expected(role, taken["R"], taken["S"]), f"{output} results")


def test_the_matrix_has_values_that_its_types_hold() -> None:
    for kind, values in TYPES.items():
        if not _is_kept(kind):
            continue
        assert all(holds(kind, value) for value in values), kind
        array = to_arrow([*values, None], kind)
        assert array.type == kind
        assert list(map(to_text, to_plain(array))) == list(map(to_text, [*values, None]))
