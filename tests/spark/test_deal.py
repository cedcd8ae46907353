"""Results dealt to the parts of an operator: all of a group to one part, in every process alike."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.spark.groups.deal import Deal
from eddy.spark.groups.operators import operator_of

ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(30, 2)),
        ("b", pa.bool_()),
        ("u", pa.dictionary(pa.int32(), pa.string())),
    ]
)
STREAMS = [eddy.Stream(name, ROWS) for name in "RS"]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(-3, 3),
    "x": st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, math.inf]),
    "s": st.sampled_from(["", "a", "b", "ab"]),
    "d": st.sampled_from([Decimal(0), Decimal("12345678901234567890.12"), Decimal(-1)]),
    "b": st.booleans(),
    "u": st.sampled_from(["", "a", "b"]),
}


def grouped(by: Any, **more: Any) -> eddy.Query:
    more = {"aggregates": {"n": agg.count()}, **more}
    return eddy.Query(STREAMS, ["R.k = S.k"], group_by=by, expiry="final", **more)


def parts_of(query: eddy.Query, rows: pa.RecordBatch, parts: int = 5) -> list[pa.RecordBatch]:
    """Return the results of each part, in one batch each."""
    dealt: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for part, piece in Deal(query, parts).pieces(rows):
        dealt[part].append(piece)
    assert all(0 <= part < parts for part in dealt)
    return [pa.Table.from_batches(pieces).combine_chunks().to_batches()[0] for pieces in dealt.values()]


def canonical(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@given(st.data(), st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
def test_all_results_of_a_group_meet_in_one_part(data: st.DataObject, names: list[str]) -> None:
    query = grouped([f"R.{name}" for name in names])
    schema = operator_of(query).rows
    columns = {f"R.{name}": st.none() | values for name, values in VALUES.items()}
    drawn = st.fixed_dictionaries({name: columns[name] for name in schema.names if name in columns})
    rows = pa.RecordBatch.from_pylist(data.draw(st.lists(drawn, min_size=1, max_size=30)), schema)
    seen: dict[tuple[Any, ...], int] = {}
    dealt = parts_of(query, rows)
    for part, piece in enumerate(dealt):
        for row in piece.to_pylist():
            # 0.0 and -0.0 are one group, and so are all NaN.
            assert seen.setdefault(tuple(canonical(row[f"R.{name}"]) for name in names), part) == part
    assert sum(piece.num_rows for piece in dealt) == rows.num_rows


def results(query: eddy.Query, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, operator_of(query).rows)


def test_a_group_that_cannot_be_computed_goes_to_the_first_part() -> None:
    query = grouped({"q": pc.divide(pc.field("R.k"), pc.field("S.k"))})
    rows = [{"R.k": k % 40, "S.k": k % 4} for k in range(400)]
    dealt = list(Deal(query, 5).pieces(results(query, rows)))
    failing = [part for part, piece in dealt for row in piece.to_pylist() if row["S.k"] == 0]
    assert failing == [0] * 100
    assert len({part for part, _ in dealt}) > 2
    assert sum(piece.num_rows for _, piece in dealt) == 400


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (grouped([]), 1),
        (grouped(["R.s"]), 5),
        (grouped(["R.s", "S.b"], top=eddy.Top(2, "R.s", "n desc")), 5),
        (grouped(["R.s", "S.b"], top=eddy.Top(2, order="n desc")), 1),
        (grouped({"t": "R.s", "b": "S.b"}, top=eddy.Top(2, "t", "n desc")), 5),
        (eddy.Query(STREAMS, ["R.k = S.k"], top=eddy.Top(2, "R.s", "S.k"), expiry="final"), 5),
        (eddy.Query(STREAMS, ["R.k = S.k"], top=eddy.Top(2, order="S.k"), expiry="final"), 1),
    ],
)
def test_what_is_ranked_together_meets(query: eddy.Query, parts: int) -> None:
    assert Deal(query, 5).parts == parts
