"""Tables that read envelopes of Debezium: the changes of an envelope, in each form of input, and what is refused."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy

SCHEMA = pa.schema([("id", pa.int32()), ("city", pa.string())])
STREAM = pa.schema([("id", pa.int64())])
Envelope = dict[str, Any]


def make_runtime(schema: pa.Schema = SCHEMA, key: str | list[str] = "id") -> eddy.Runtime:
    table = eddy.Table("T", schema, key=key, ops="debezium")
    query = eddy.Query([table, eddy.Stream("S", STREAM)], ["T.id = S.id"], select=["T.id", "T.city"])
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"id": k} for k in range(10)]})
    return runtime


def row(k: int, city: str | None = "Oslo") -> Envelope:
    return {"id": k, "city": city}


def changes(runtime: eddy.Runtime, rows: Any, order: list[int] | None = None) -> list[tuple[Any, ...]]:
    changed = [tuple(change.values()) for change in runtime.push({"T": rows}, order).to_pylist()]
    runtime.check()
    return changed


def test_each_operation() -> None:
    runtime = make_runtime()
    assert changes(runtime, [{"op": "c", "after": row(1)}]) == [("+I", 1, "Oslo")]
    assert changes(runtime, [{"op": "r", "before": None, "after": row(2)}]) == [("+I", 2, "Oslo")]
    # Without the row before: `before` is never needed.
    assert changes(runtime, [{"op": "u", "after": row(1, "Bodø")}]) == [("-U", 1, "Oslo"), ("+U", 1, "Bodø")]
    moved = {"op": "u", "before": row(1), "after": row(3, "Rome")}
    assert sorted(changes(runtime, [moved])) == [("+I", 3, "Rome"), ("-D", 1, "Bodø")]
    assert changes(runtime, [{"op": "m"}, {"op": "d", "before": row(3, None), "after": None}]) == [("-D", 3, "Rome")]
    # The message without a value that follows a delete, and one that comes alone.
    assert changes(runtime, [{"key": {"id": 3}}, {"key": {"id": 2}}]) == [("-D", 2, "Oslo")]
    assert changes(runtime, [{"op": "m"}]) == []
    assert changes(runtime, []) == []
    # Some connectors write the row before without its key.
    assert changes(runtime, [{"op": "c", "after": row(4), "before": {}}]) == [("+I", 4, "Oslo")]
    assert changes(runtime, [{"op": "d", "before": {"city": "Oslo"}, "key": {"id": 4}}]) == [("-D", 4, "Oslo")]


def test_frames_of_pandas_with_what_they_take_for_missing() -> None:
    runtime = make_runtime()
    assert changes(runtime, pd.DataFrame({"op": [], "after": []})) == []
    frame = pd.DataFrame([{"op": "c", "after": row(1)}, {"op": "c", "after": row(2)}, {"key": {"id": 1}}])
    assert changes(runtime, frame) == [("+I", 1, "Oslo"), ("+I", 2, "Oslo"), ("-D", 1, "Oslo")]
    assert changes(runtime, pd.DataFrame({"op": ["m", "d"], "after": pd.NA, "before": [pd.NA, row(2)]})) == [
        ("-D", 2, "Oslo")
    ]


@pytest.mark.parametrize("kind", [pa.uuid(), pa.float16(), pa.dictionary(pa.int8(), pa.string()), pa.decimal128(9, 2)])
@pytest.mark.parametrize("atomic", [False, True])
def test_keys_of_each_type_are_compared(kind: pa.DataType, atomic: bool) -> None:
    values: Any = {pa.uuid(): [b"0" * 16, b"1" * 16], pa.float16(): [0.5, 1.5]}.get(kind, ["1", "2"])
    values = [Decimal(value) for value in values] if pa.types.is_decimal(kind) else values
    values = [np.float16(value) for value in values] if kind == pa.float16() else values
    schema = pa.schema([("id", kind), ("n", pa.int64())])
    table = eddy.Table("T", schema, key="id", ops="debezium")
    query = eddy.Query([table, eddy.Stream("S", STREAM)], ["T.n = S.id"], select=["T.n"])
    runtime = eddy.Runtime(query, output="changelog")
    runtime.push({"S": [{"id": k} for k in range(3)]})
    before, other = ({"id": value, "n": n} for n, value in enumerate(values))
    rows = [{"op": "c", "after": before}, {"op": "u", "before": before, "after": {**before, "n": 2}}]
    ends = [{"op": "u", "before": before, "after": other}]
    answers = [runtime.push({"T": part}, atomic=atomic).to_pylist() for part in (rows, ends)]
    first = [("+I", 2)] if atomic else [("+I", 0), ("-D", 0), ("+I", 2)]
    assert [[tuple(row.values()) for row in part] for part in answers] == [first, [("-D", 2), ("+I", 1)]]


ENVELOPES: list[Envelope] = [
    {"op": "c", "before": None, "after": row(1), "key": {"id": 1}, "ts_ms": 5},
    {"op": "u", "before": row(1), "after": row(2, "Rome"), "key": {"id": 2}, "ts_ms": 6},
    {"op": "m", "before": None, "after": None, "key": None, "ts_ms": 7},
    {"op": "d", "before": None, "after": None, "key": {"id": 5}, "ts_ms": 8},
    {"op": "c", "before": None, "after": row(4, None), "key": {"id": 4}, "ts_ms": 9},
]
WIDE = pa.struct([("city", pa.large_string()), ("more", pa.int8()), ("id", pa.int64())])
ARROW = pa.schema([("ts_ms", pa.int64()), ("op", pa.large_string()), ("before", WIDE), ("after", WIDE), ("key", WIDE)])


@pytest.mark.parametrize(
    "rows",
    [
        ENVELOPES,
        {name: [envelope[name] for envelope in ENVELOPES] for name in ENVELOPES[0]},
        pd.DataFrame(ENVELOPES),
        pa.Table.from_pylist(ENVELOPES, schema=ARROW),
        pa.RecordBatch.from_pylist(ENVELOPES, schema=ARROW).slice(0),
        pa.Table.from_batches([pa.RecordBatch.from_pylist([envelope], schema=ARROW) for envelope in ENVELOPES]),
    ],
    ids=["dicts", "columns", "pandas", "table", "batch", "chunks"],
)
def test_each_form_of_input(rows: Any) -> None:
    runtime = make_runtime()
    answer = changes(runtime, rows, [0] * 5)
    assert answer == [("+I", 1, "Oslo"), ("-D", 1, "Oslo"), ("+I", 2, "Rome"), ("+I", 4, None)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"op": "x", "after": row(1)}], r"row 0 .* is 'x'; an envelope of Debezium has c, r, u, d, t or m"),
        ([{"op": "m"}, {"after": row(1)}], r"row 1 .* is None; an envelope"),
        ([{"op": "c"}], r"row 0 .* is an upsert without a row 'after'"),
        ([{"op": "c", "after": row(1)}, {"op": "t"}], r"row 1 .*truncation.*push a delete for each row"),
        ([{"op": "d"}], r"row 0 .* is a delete, and neither 'before' nor 'key' has the key"),
        ([{"op": "m"}, {"op": "d", "key": {"id": None}}], r"row 1 of the push has no key: id=None"),
        ([{"op": "c", "after": {"id": 1}}], r"column 'city' is missing in 'after' of row 0, {'id': 1}"),
        ([{"op": "c", "after": "{}"}], r"'after' of row 0 of the push is '{}'; give a dict or None, which json.loads"),
        ([{"op": "c", "after": row(1)}, None], r"row 1 of the push is None, .* push {'key': …}"),
        ([{"schema": {}, "payload": {"op": "c"}}], r"no column 'op', 'after' or 'key'; push envelopes .* the payload"),
        ([{"id": 1, "city": "x"}], r"no column 'op', 'after' or 'key'; .* need ops='column' or no ops"),
        ({"op": "c", "after": row(1)}, r"column 'after' is {'id': 1.*; give a sequence with a value for each row"),
        ({"op": ["c"], "after": 5}, r"column 'after' is 5; give a sequence"),
        (pa.table([["c"], [row(1)], [row(2)]], ["op", "after", "after"]), r"column 'after' occurs twice"),
        ([{"op": "d", "before": {"city": "x"}}], r"row 0 .* is a delete, and neither 'before' nor 'key'"),
        ([{"op": "c", "after": 7}], r"'after' of row 0 of the push is 7; give a dict or None"),
        ({"op": ["c"], "after": []}, r"different lengths: {'op': 1, 'after': 0,"),
        (pa.table({"op": ["c"], "after": [1]}), r"'after' is int64; in an envelope of Debezium it is a struct"),
        (pa.table({"op": ["c"], "after": [{"id": 1}]}), r"column 'city' is missing in the columns \['id'\]"),
        (pa.table({"op": ["c"], "after": [{"id": "1", "city": ""}]}), r"'id' is string, the query declares int32"),
        (pa.table({"op": ["c"], "after": [{"id": 1 << 40, "city": ""}]}), r"'id' is int64, .* a value does not fit"),
        ([{"op": "c", "after": row(1 << 40)}], r"column 'id' of type int32"),
        (7, r"cannot read envelopes of Debezium from int"),
    ],
)
def test_what_is_no_change_is_refused(rows: Any, message: str) -> None:
    runtime = make_runtime()
    runtime.push({"T": [{"op": "c", "after": row(1)}]})
    before = runtime.snapshot()
    with pytest.raises(eddy.InputError, match=r"table T: .*" + message):
        runtime.push({"T": rows})
    assert runtime.snapshot() == before


KEYS = st.tuples(st.integers(0, 1), st.sampled_from("xy"))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("cru"), st.none() | KEYS, KEYS, st.integers(0, 9)),
            st.tuples(st.just("d"), KEYS, st.none(), st.none()),
            st.tuples(st.sampled_from(["m", None]), KEYS, st.none(), st.none()),
        ),
        max_size=20,
    ),
    st.booleans(),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_envelopes_do_what_the_deletes_and_upserts_do_that_they_stand_for(
    drawn: list[tuple[str | None, tuple[int, str] | None, tuple[int, str] | None, int | None]],
    arrow: bool,
    cuts: list[int],
) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("city", pa.int64())])
    pair = pa.struct([("id", pa.int64()), ("part", pa.string())])
    envelopes, plain = list[Envelope](), list[list[Envelope]]()
    for op, before, after, city in drawn:
        old = None if before is None else {"id": before[0], "part": before[1]}
        new = None if after is None else {"id": after[0], "part": after[1], "city": city}
        envelopes.append({"op": op, "before": None if op is None else old, "after": new, "key": old})
        plain_changes: list[Envelope] = []
        if op in ("d", None) or (after is not None and before not in (None, after)):
            assert before is not None
            plain_changes.append({"id": before[0], "part": before[1], "city": None, "op": "d"})
        if new is not None:
            plain_changes.append({**new, "op": "c"})
        plain.append(plain_changes)
    runtimes = []
    for ops in ("debezium", "column"):
        table = eddy.Table("T", schema, key=["id", "part"], ops=ops)  # type: ignore[arg-type]
        query = eddy.Query([table, eddy.Stream("S", STREAM)], ["T.id = S.id"])
        runtimes.append(eddy.Runtime(query, output="changelog"))
        runtimes[-1].push({"S": [{"id": k} for k in range(4)]})
    bounds = sorted({0, len(drawn), *(min(cut, len(drawn)) for cut in cuts)})
    for first, end in pairwise(bounds):
        rows: Any = envelopes[first:end]
        if arrow:
            kinds = {"op": pa.string(), "before": pair, "after": pa.struct([*schema]), "key": pair}
            rows = pa.Table.from_pylist(rows, schema=pa.schema([*kinds.items()]))
        others = [change for group in plain[first:end] for change in group]
        tables = [
            runtime.push({"T": pushed}, [0] * len(pushed))
            for runtime, pushed in zip(runtimes, (rows, others), strict=True)
        ]
        assert tables[0].to_pylist() == tables[1].to_pylist()
        runtimes[0].check()


def test_the_remedies_name_settings_that_debezium_has() -> None:
    """The setting in the message is that of Debezium's connectors: a typing error would mislead."""
    with pytest.raises(eddy.InputError) as caught:
        make_runtime().push({"T": [{"op": "t"}]})
    assert re.search(r"\(skipped\.operations=t\)", str(caught.value))
