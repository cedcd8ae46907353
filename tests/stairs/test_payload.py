"""Payload columns of every width and kind, compared with lists: append, gather, undo, resize, a late first null."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stairs.rings
from stairs import result_blocks
from stairs.kernels.payload import gather
from stairs.memory.segments import LEAST_RESERVED
from stairs.memory.spill import SpillDirectory
from stairs.payload import Payload, fixed_width
from stairs.result_blocks import FEW, ResultBlocks

KINDS: dict[pa.DataType, tuple[Any, ...]] = {
    pa.int8(): (-128, 127, 0),
    pa.uint8(): (0, 255),
    pa.bool_(): (True, False),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.float16(): (0.5, -2.0),
    pa.int32(): (-(2**31), 2**31 - 1, 5),
    pa.float32(): (0.5, -0.25),
    pa.date32(): (0, 20_000),
    pa.time32("ms"): (0, 86_399_999),
    pa.int64(): (-(2**63), 2**63 - 1, 7),
    pa.uint64(): (0, 2**64 - 1),
    pa.float64(): (0.1, -1e300),
    pa.timestamp("ns", "UTC"): (0, 10**18),
    pa.duration("us"): (0, -1),
    pa.decimal128(38, 2): (Decimal("-1.25"), Decimal(10) ** 35),
    pa.decimal256(60, 0): (Decimal(10) ** 59, Decimal(-3)),
    pa.string(): ("", "a", "a string of some length"),
    pa.large_binary(): (b"\0", b"xyz"),
    pa.binary(3): (b"abc", b"\0\0\0"),
    pa.list_(pa.int16()): ([], [1, None]),
    pa.struct([("x", pa.int8()), ("y", pa.string())]): ({"x": 1, "y": None}, {"x": None, "y": "b"}),
    pa.dictionary(pa.int8(), pa.string()): ("red", "green"),
}
RING_BYTES = {
    **dict.fromkeys((pa.int8(), pa.uint8(), pa.bool_()), 1),
    **dict.fromkeys((pa.int16(), pa.float16()), 2),
    **dict.fromkeys((pa.int32(), pa.float32(), pa.date32(), pa.time32("ms")), 4),
    **dict.fromkeys((pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("ns", "UTC"), pa.duration("us")), 8),
    pa.decimal128(38, 2): 16,
}


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return an array that is a slice of a longer one, as rows from users can be."""
    padded = [values[-1], *values, values[0]]
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        made = pa.array(padded, pa.int64()).cast(kind)
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        made = pa.array(padded, pa.int32()).cast(kind)
    elif pa.types.is_float16(kind):
        made = pa.array([None if value is None else np.float16(value) for value in padded], kind)
    else:
        made = pa.array(padded, kind)
    return made.slice(1, len(values))


class PayloadColumns:
    """Payload of some streams, filled as by the loader, and the same values as lists by arrival number."""

    def __init__(self, kinds: list[list[pa.DataType]], room: int = 4, spill: SpillDirectory | None = None) -> None:
        self.payload = Payload(kinds, [room] * len(kinds), None, spill)
        self.kinds = kinds
        self.values: list[list[list[Any]]] = [[[] for _ in stream_kinds] for stream_kinds in kinds]
        self.low = [0] * len(kinds)

    def rows(self, i: int) -> int:
        return len(self.values[i][0])

    def write(self, i: int, columns: list[pa.Array]) -> None:
        """Append rows to stream i and make room for them."""
        payload, n, first = self.payload, len(columns[0]), self.rows(i)
        room = payload.room[i]
        while room < first - self.low[i] + n:
            room *= 2
        if room != payload.room[i]:
            payload.resize(i, room, self.low[i], first, [4 * size for size in payload.room])
        for k, column in enumerate(columns):
            if fixed_width(column.type):
                payload.append(i, k, column, first & (room - 1))
            else:
                payload.append_log(i, k, column, first)

    def push(self, i: int, rows: list[list[Any]], kept: bool = True) -> None:
        """Push rows, column by column, and commit or undo the push."""
        self.payload.begin()
        self.write(i, [array(values, kind) for values, kind in zip(rows, self.kinds[i], strict=True)])
        if not kept:
            self.payload.undo()
            return
        for column, values in zip(self.values[i], rows, strict=True):
            column += values

    def expire(self, i: int, low: int) -> None:
        self.low[i] = low
        self.payload.expire(self.low)

    def check(self, arrivals: list[tuple[int, ...]], bases: list[int]) -> None:
        """Gather results with these components and compare them; sequence numbers begin at the bases."""
        self.payload._cold += len(arrivals) % 2
        ids = (np.array(arrivals, np.int64).reshape(-1, len(self.kinds)) - bases).astype(np.int32).reshape(-1)
        # There may be more room for ids than results.
        gathered = self.payload.gather(np.append(ids, np.int32(-7)), len(arrivals), np.array(bases, np.int64))
        for i, stream_kinds in enumerate(self.kinds):
            for k, kind in enumerate(stream_kinds):
                assert gathered[i, k].type == kind
                expected = [self.values[i][k][result[i]] for result in arrivals]
                gathered[i, k].validate(full=True)
                wanted = array(expected, kind) if expected else pa.array([], kind)
                if pa.types.is_dictionary(kind):
                    # The order of a dictionary is arbitrary.
                    assert gathered[i, k].to_pylist() == wanted.to_pylist()
                else:
                    assert gathered[i, k].equals(wanted)


def test_which_types_lie_in_rings() -> None:
    for kind in KINDS:
        assert fixed_width(kind) == RING_BYTES.get(kind, 0), kind


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("least", [None, 1, 60])
def test_every_kind_of_column(kind: pa.DataType, nulls: bool, least: int | None, tmp_path: Path) -> None:
    rng = random.Random(1)
    spill = None if least is None else SpillDirectory(tmp_path, least)
    columns = PayloadColumns([[kind], [pa.int64(), kind]], spill=spill)
    domain = [*KINDS[kind], None] if nulls else list(KINDS[kind])
    for n in (1, 3, 2, 9, 40, 1):
        for i, stream_kinds in enumerate(columns.kinds):
            columns.push(i, [[rng.choice(domain) if k == kind else n for _ in range(n)] for k in stream_kinds])
        for i in range(2):
            columns.expire(i, max(columns.low[i], columns.rows(i) - 12))
        results = [tuple(rng.randrange(columns.low[i], columns.rows(i)) for i in range(2)) for _ in range(30)]
        columns.check(results, [0, 0])


@given(data=st.data(), least=st.sampled_from([LEAST_RESERVED, 16]), filed=st.sampled_from([None, 1, 100, 2000]))
@settings(max_examples=120)
def test_appends_undone_and_kept_resizes_and_gathers(data: st.DataObject, least: int, filed: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(stairs.rings, "LEAST_RESERVED", least)
        _play(data, None if filed is None else SpillDirectory(directory, filed))


def _play(data: st.DataObject, spill: SpillDirectory | None) -> None:
    kind = st.sampled_from(tuple(KINDS))
    columns = PayloadColumns(
        data.draw(st.lists(st.lists(kind, min_size=1, max_size=3), min_size=2, max_size=3)), 2, spill
    )
    for _ in range(data.draw(st.integers(1, 6))):
        i = data.draw(st.integers(0, len(columns.kinds) - 1))
        n = data.draw(st.integers(1, 20))
        with_nulls = data.draw(st.booleans())
        rng = random.Random(data.draw(st.integers(0, 9)))
        rows = [
            [rng.choice([*KINDS[column_kind], None] if with_nulls else KINDS[column_kind]) for _ in range(n)]
            for column_kind in columns.kinds[i]
        ]
        columns.push(i, rows, kept=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            columns.expire(i, data.draw(st.integers(columns.low[i], columns.rows(i))))
        live = [range(low, columns.rows(i)) for i, low in enumerate(columns.low)]
        if all(live):
            bases = [
                data.draw(st.integers(0, 1)) * (window[0] // columns.payload.room[i]) for i, window in enumerate(live)
            ]
            bases = [base * columns.payload.room[i] for i, base in enumerate(bases)]
            columns.check([tuple(rng.choice(window) for window in live) for _ in range(rng.randrange(8))], bases)


def test_the_first_null_of_a_column_moves_all_rings_and_loses_nothing() -> None:
    columns = PayloadColumns([[pa.int8(), pa.decimal128(38, 2)], [pa.bool_()]])
    columns.push(0, [[1, 2], [Decimal(1), Decimal(2)]])
    columns.push(1, [[True, False]])
    before = columns.payload.laid_out
    columns.push(0, [[3, 4], [None, Decimal(4)]])
    assert columns.payload.laid_out == before + 1
    columns.push(1, [[None, True]])
    assert [columns.payload.keeps_nulls(*place) for place in ((0, 0), (0, 1), (1, 0))] == [False, True, True]
    columns.push(0, [[5], [Decimal(5)]])
    columns.check([(s, s % 4) for s in (4, 3, 2, 1, 0)], [0, 0])


def test_bytes_are_those_of_rings_and_arrays() -> None:
    payload = Payload([[pa.int64(), pa.bool_(), pa.string()], [pa.decimal128(9, 2)]], [1024, 512])
    assert payload.logged
    assert payload.bytes_of(0) == 1024 * 9
    assert payload.bytes_of(1) == 512 * 16
    assert payload.nbytes == payload.bytes_of(0) + payload.bytes_of(1)
    payload.append_log(0, 2, pa.array(["x" * 1000]), 0)
    assert payload.bytes_of(0) >= 1024 * 9 + 1000
    assert payload.nbytes == payload.bytes_of(0) + payload.bytes_of(1)
    assert not Payload([[pa.int64()], []], [4, 4]).logged


def test_no_results_and_no_columns() -> None:
    columns = PayloadColumns([[pa.int64(), pa.string()], [pa.bool_()]])
    columns.check([], [0, 0])
    assert Payload([[], []], [4, 4]).gather(np.zeros(0, np.int32), 0, np.zeros(2, np.int64)) == {}


PLAIN = [kind for kind, width in RING_BYTES.items() if width and kind != pa.bool_()]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_few_rows_of_a_block_are_the_rows_gathered_column_by_column(data: st.DataObject) -> None:
    kinds = [data.draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3)) for _ in range(2)]
    columns, rng = PayloadColumns(kinds), random.Random(data.draw(st.integers(0, 99)))
    places = [(i, k) for i, stream_kinds in enumerate(kinds) for k in range(len(stream_kinds))]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=5))
    schema = pa.schema([pa.field(f"c{n}", kinds[i][k], metadata={"n": str(n)}) for n, (i, k) in enumerate(chosen)])
    blocks = ResultBlocks(columns.payload, chosen, schema)
    for _ in range(3):
        for i, stream_kinds in enumerate(kinds):
            columns.push(i, [[rng.choice(KINDS[kind]) for _ in range(3)] for kind in stream_kinds])
        n = data.draw(st.sampled_from([0, 1, 63, 64, 65, 200]))
        ids = np.array([rng.randrange(columns.rows(i)) for _ in range(n) for i in range(2)], np.int32)
        table, wanted = blocks.table(ids, n), columns.payload.gather(ids, n, np.zeros(2, np.int64))
        assert table is not None
        table.validate(full=True)
        assert table.schema.equals(schema, check_metadata=True)
        assert table.equals(pa.Table.from_arrays([wanted[place] for place in chosen], schema=schema))


def test_tables_of_one_block_keep_their_rows_when_later_ones_follow_or_an_exception_comes_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = PayloadColumns([[pa.int64(), pa.int16()]])
    columns.push(0, [[*range(300)], [*range(300)]])
    schema = pa.schema([("a", pa.int64()), ("b", pa.int16())])
    blocks, rng = ResultBlocks(columns.payload, [(0, 0), (0, 1)], schema), random.Random(1)
    tables: list[tuple[pa.Table, list[int]]] = []

    def stop(*given: Any) -> None:
        gather(*given)
        raise KeyboardInterrupt

    for sizes in ([3] * 20, [200, 3, 0, 64, 65, 1], [FEW, 10, FEW, FEW]):
        for n in sizes:
            ids = [rng.randrange(300) for _ in range(n)]
            with monkeypatch.context() as patch:
                patch.setattr(result_blocks, "gather", stop)
                with pytest.raises(KeyboardInterrupt):
                    blocks.table(np.array(ids[::-1], np.int32), n)
            table = blocks.table(np.array(ids, np.int32), n)
            assert table is not None
            tables.append((table, ids))
    for table, ids in tables:
        table.validate(full=True)
        assert table.to_pydict() == {"a": ids, "b": ids}
    # A table keeps little more than its own block, and most of them share one.
    assert len({table["a"].chunk(0).buffers()[1].address for table, ids in tables[:20]}) == 3


def test_a_block_is_left_to_others_when_rows_are_many_or_a_column_has_had_a_null() -> None:
    columns = PayloadColumns([[pa.int64(), pa.int64(), pa.bool_(), pa.string()]])
    columns.push(0, [[1], [2], [True], ["a"]])

    def table(k: int, n: int = 1) -> pa.Table | None:
        schema = pa.schema([("c", columns.kinds[0][k])])
        return ResultBlocks(columns.payload, [(0, k)], schema).table(np.zeros(n, np.int32), n)

    first = ResultBlocks(columns.payload, [(0, 0)], pa.schema([("c", pa.int64())]))
    assert first.table(np.zeros(FEW, np.int32), FEW) is not None
    assert [table(0, FEW + 1), table(2), table(3)] == [None] * 3
    columns.push(0, [[None], [3], [None], [None]])
    assert first.table(np.zeros(1, np.int32), 1) is None
    assert table(1) == pa.table({"c": [2]})
