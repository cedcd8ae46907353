"""Groups of some results merged into others: the outcome is that of all results in one operator, bit for bit."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.spark.groups.deal import Deal
from eddy.spark.groups.operators import operator_of
from eddy.spark.groups.partial import SAMPLE, PartialGroups
from eddy.spark.streaming.worker.operator_files import GROUPS
from tests.cases import text_rows

ROWS = pa.schema(
    [("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("d", pa.decimal128(30, 2)), ("t", pa.int64())]
)
STREAMS = [eddy.Stream(name, ROWS, window=eddy.Range(20), time="t") for name in "RS"]
FUNCTIONS: dict[str, Any] = {
    "n": agg.count(),
    "there": agg.count("S.x"),
    "total": agg.sum("S.x"),
    "exact": agg.sum("S.d"),
    "mean": agg.avg("R.x"),
    "least": agg.min("S.s"),
    "most": agg.max("R.x"),
    "first": agg.first("S.s", "R.d"),
    "last": agg.last("R.d"),
    "kinds": agg.count_distinct("S.s"),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 2),
    "x": st.sampled_from([0.1, -0.0, 1e17, -1e17, 1e300, 5e-324, math.nan, math.inf]),
    "s": st.sampled_from(["", "a", "b", "longer than a word"]),
    "d": st.sampled_from([Decimal("0.10"), Decimal("12345678901234567890.12"), Decimal(-1)]),
    "t": st.integers(0, 40),
}


def query(by: list[str], window: Any, **more: Any) -> eddy.Query:
    ends: dict[str, Any] = {"expiry": "final"} if window is None else {"group_window": window}
    return eddy.Query(STREAMS, ["R.k = S.k"], group_by=by, aggregates=FUNCTIONS, **ends, **more)


QUERIES = {
    "windows": query(["R.s"], eddy.Hopping(12, 4, time="S.t")),
    "sessions": query(["R.k"], eddy.Session(3, time="S.t")),
    "windows alone": query([], eddy.Tumbling(7, time="S.t")),
    "changelog": query(["R.s", "S.d"], None),
    "one group": query([], None),
    "having": query(["R.x"], None, having=pc.field("n") > 2),
}


def drawn(data: st.DataObject, schema: pa.Schema, after: int | None) -> pa.Table:
    """Return results of a batch, whose event times are after a time."""
    columns = {
        name: VALUES["t"] if name.endswith(".t") else st.none() | VALUES[name.partition(".")[2]]
        for name in schema.names
    }
    rows = data.draw(st.lists(st.fixed_dictionaries(columns), max_size=12))
    for row in rows:
        row["S.t"] += 0 if after is None else after
    return pa.Table.from_pylist(rows, schema)


@pytest.mark.parametrize("kind", QUERIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_merged_groups_are_those_of_all_results(kind: str, data: st.DataObject) -> None:
    asked = QUERIES[kind]
    whole, parted = operator_of(asked), operator_of(asked)
    for batch in range(3):
        # Results of windows that were given do not come: windows wait for the watermark and the slack of the query.
        given_rows = [drawn(data, whole.rows, 40 * batch) for _ in range(3)]
        taken, others = PartialGroups(asked), [PartialGroups(asked), PartialGroups(asked)]
        taken.add(given_rows[0])
        for other, part in zip(others, given_rows[1:], strict=True):
            other.add(part)
            for _, groups in other.pieces(Deal(asked, 3)):
                taken.merge(GROUPS.unpack(GROUPS.pack(groups)))
        expected = whole.follow(pa.concat_tables(given_rows), 40 * batch, batch)
        followed = parted.follow_groups(taken, 40 * batch)
        assert sorted(text_rows(followed.rows)) == sorted(text_rows(expected.rows))
        assert (parted.due is None) == (whole.due is None)


@pytest.mark.parametrize("kind", ["windows", "changelog"])
def test_groups_go_to_the_part_of_their_results(kind: str) -> None:
    asked, chance = QUERIES[kind], random.Random(1)
    taken, deal, schema = PartialGroups(asked), Deal(asked, 7), operator_of(asked).rows
    drawn_values = {"t": range(9), "k": range(9), "s": ["a", "b", "c", None], "d": [Decimal(1), None], "x": [None]}
    rows = [{name: chance.choice(drawn_values[name[-1]]) for name in schema.names} for _ in range(400)]
    table = pa.Table.from_pylist(rows, schema)
    taken.add(table)
    assert taken.pays
    of_results = {}
    pieces: dict[int, list[pa.RecordBatch]] = {}
    for part, piece in deal.pieces(table.combine_chunks().to_batches()[0]):
        pieces.setdefault(part, []).append(piece)
    for part, batches in pieces.items():
        alone = PartialGroups(asked)
        alone.add(pa.Table.from_batches(batches))
        of_results[part] = len(alone.groups.state)
    of_groups = {}
    for part, groups in taken.pieces(deal):
        other = PartialGroups(asked)
        other.merge(GROUPS.unpack(GROUPS.pack(groups)))
        of_groups[part] = len(other.groups.state)
    assert of_groups == of_results
    assert len(of_groups) > 2


def test_what_is_taken_back_is_not_merged() -> None:
    live = eddy.Query(STREAMS, ["R.k = S.k"], group_by=["R.k"], aggregates={"n": agg.count()})
    assert operator_of(live).partial() is None
    ranked = eddy.Query(STREAMS, ["R.k = S.k"], top=eddy.Top(2, "R.k", "S.t"), expiry="final")
    assert operator_of(ranked).partial() is None


@pytest.mark.parametrize(("groups", "pays"), [(1000, True), (100_000, False)])
def test_groups_pay_if_they_are_few(groups: int, pays: bool) -> None:
    asked = eddy.Query(STREAMS, ["R.k = S.k"], group_by=["R.k"], aggregates={"n": agg.count()}, expiry="final")
    taken = PartialGroups(asked)
    taken.add(pa.table([pa.array(np.arange(SAMPLE) % groups)], ["R.k"]))
    assert taken.pays is pays
