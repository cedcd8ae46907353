"""Versions of changes: which changes are stale, where they go, what is remembered of deletes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.table_oracle import TableInput, TableOracle

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("z", pa.int64())])
Row = dict[str, Any]


def make_runtime(schema: pa.Schema = SCHEMA, max_bytes: int | None = None, **options: Any) -> eddy.Runtime:
    table = eddy.Table("T", schema, **{"key": "id", "version": "z", "ops": "column", **options})
    ids = eddy.Stream("S", SCHEMA.remove(2), window=eddy.Rows(2))
    query = eddy.Query([table, ids], ["T.id = S.id"], select=["T.id"])
    return eddy.Runtime(query, output="changelog", max_bytes=max_bytes)


def row(z: Any, op: str = "c", key: Any = 1) -> Row:
    return {"id": key, "name": f"name {key}", "z": z, "op": op}


def push(runtime: eddy.Runtime, *rows: Row) -> list[str]:
    """Push changes; return the operations of those that change a row with id 1 or 2."""
    if not runtime.position:
        runtime.push({"S": [{"id": 1, "name": ""}, {"id": 2, "name": ""}]})
    ops = [change["op"] for change in runtime.push({"T": list(rows)}).to_pylist()]
    runtime.check()
    return ops


def test_stale_changes_go_to_the_side_output(caplog: pytest.LogCaptureFixture) -> None:
    runtime = make_runtime()
    assert push(runtime, row(5), row(3), row(5, "d"), row(4, "d"), row(4)) == ["+I", "-D"]
    assert "table T: a change was stale" in caplog.text
    late = runtime.late()["T"].to_pylist()
    assert [(change["z"], change["op"]) for change in late] == [(3, "+I"), (4, "-D"), (4, "+I")]
    assert runtime.late_counts["T"] == 3
    assert runtime.position == 4


def test_a_function_takes_stale_changes() -> None:
    seen: list[Any] = []
    runtime = make_runtime(late=lambda name, rows: seen.append((name, rows.column("z").to_pylist())))
    push(runtime, row(5), row(3), row(4, key=2), row(1, key=2))
    assert seen == [("T", [3, 1])]
    assert make_runtime(late="count").late() == {}


def test_a_tombstone_ends_when_versions_are_further() -> None:
    for tombstones, arrives in ((4, False), (3, True)):
        runtime = make_runtime(tombstones=tombstones)
        push(runtime, row(5), row(6, "d"), row(10, key=2))
        assert push(runtime, row(2)) == (["+I"] if arrives else [])
        # What stands has no tombstone.
        assert push(runtime, row(9, key=2)) == []


@pytest.mark.parametrize(
    ("kind", "versions", "span"),
    [
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, k, tzinfo=UTC) for k in (3, 1, 2)], timedelta(days=1)),
        (pa.date32(), [date(2026, 1, k) for k in (3, 1, 2)], timedelta(days=1)),
        (pa.uint16(), [3, 1, 2], 1),
        (pa.dictionary(pa.int8(), pa.int64()), [3, 1, 2], 1),
    ],
)
def test_versions_of_each_type(kind: pa.DataType, versions: list[Any], span: Any) -> None:
    runtime = make_runtime(pa.schema([("id", pa.int64()), ("name", pa.string()), ("z", kind)]), tombstones=span)
    push(runtime, *[row(version) for version in versions])
    assert runtime.late_counts["T"] == 2


def test_a_change_without_a_version_is_refused() -> None:
    runtime = make_runtime()
    push(runtime, row(1))
    before = runtime.snapshot()
    with pytest.raises(eddy.InputError, match="table T, column z: the version of row 1 of the push is null"):
        push(runtime, row(7, key=2), row(None))
    assert runtime.snapshot() == before
    assert push(runtime, row(0, key=2)) == ["+I"]


def test_the_lsn_of_an_envelope() -> None:
    table = eddy.Table("T", SCHEMA.remove(2), key="id", version="lsn", ops="debezium")
    counted = eddy.Query([table], aggregates={"n": eddy.agg.count()})

    def envelope(op: str, lsn: int | None, place: str = "source") -> Row:
        image = {"id": 1, "name": "x"}
        where = {"source": {"lsn": lsn, "db": "shop"}} if place == "source" else {"lsn": lsn, "source": {"db": ""}}
        rows = (image, None) if op == "d" else (None, image)
        return {"op": op, "lsn": None, **dict(zip(("before", "after"), rows, strict=True)), **where}

    rows = [envelope("c", 5), envelope("u", 4), envelope("d", 7, "envelope")]
    rows += [{"key": {"id": 1}, "op": None}, envelope("c", 6)]
    for pushed in (rows, pa.Table.from_pylist(rows)):
        runtime = eddy.Runtime(counted, output="changelog")
        assert runtime.push({"T": pushed}).to_pylist() == [{"op": "+I", "n": 0}]
        assert runtime.late()["T"].column("op").to_pylist() == ["+I", "+I"]
    with pytest.raises(eddy.InputError, match="row 1 of the push has no version"):
        runtime.push({"T": [envelope("c", 8), envelope("u", None)]})


def test_a_position_counts_within_its_file() -> None:
    table = eddy.Table("T", SCHEMA.remove(2), key="id", version="pos", ops="debezium")
    rows = [
        {"op": "u", "after": {"id": 1, "name": name}, "source": {"file": f"bin.{number:06}", "pos": at}}
        for name, number, at in [("old", 9, 1 << 31), ("new", 10, 4), ("stale", 9, 1 << 33), ("newest", 10, 5)]
    ]
    for pushed in (rows, pa.Table.from_pylist(rows)):
        runtime = eddy.Runtime(eddy.Query([eddy.Stream("S", SCHEMA), table], ["S.id = T.id"]), output="changelog")
        runtime.push({"T": pushed})
        assert runtime.late()["T"].column("name").to_pylist() == ["stale"]
        assert runtime.push({"S": [row(0, key=1)]})["T.name"].to_pylist() == ["newest"]
    for file in ("bin", None):
        with pytest.raises(eddy.InputError, match=rf"'file' in the 'source' of row 0 of the push is {file!r}; "):
            runtime.push({"T": [{**rows[0], "source": {"file": file, "pos": 6}}]})


KEYS = {
    "n": (pa.int32(), [1, 2, -1]),
    "s": (pa.string(), ["", "a", "aa", "ab"]),
    "u": (pa.large_string(), ["", "a", "b", "ba"]),
    "d": (pa.decimal128(30, 2), [Decimal("1.00"), Decimal("-2.5"), Decimal(0)]),
    "f": (pa.float64(), [0.0, -0.0, 1.5]),
    "b": (pa.binary(), [b"", b"a", b"\0"]),
    "x": (pa.dictionary(pa.int8(), pa.string()), ["", "a", "b"]),
    "t": (pa.timestamp("ms"), [datetime(2026, 1, 1), datetime(2026, 1, 2)]),
}


@given(st.data())
def test_keys_of_each_type_and_their_combinations(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    schema = pa.schema([(name, KEYS[name][0]) for name in names] + [("z", pa.int64())])
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: st.sampled_from(KEYS[name][1]) for name in names} | {"z": st.integers(0, 9)})
        )
    )
    table = eddy.Table("T", schema, key=names, version="z")
    runtime = eddy.Runtime(eddy.Query([table], aggregates={"n": eddy.agg.count()}), output="changelog")
    oracle = TableOracle([TableInput("T", tuple(names), version="z")], [])
    stale = 0
    for start in range(0, len(rows), 3):
        runtime.push({"T": rows[start : start + 3]})
        stale += sum(oracle.is_stale("T", change) for change in rows[start : start + 3])
        runtime = eddy.Runtime.restore(runtime.snapshot(), runtime.query)
        runtime.check()
    assert runtime.late_counts == {"T": stale}


def test_versions_count_in_the_bound() -> None:
    runtime = make_runtime()
    push(runtime, *[row(1, "d", key=k) for k in range(2000)])
    without = make_runtime(version=None)
    push(without, *[row(1, "d", key=k) for k in range(2000)])
    assert runtime.nbytes > without.nbytes + 2000 * 30
    bounded = make_runtime(max_bytes=without.nbytes)
    push(bounded, row(1))
    before = bounded.snapshot()
    with pytest.raises(eddy.CapacityError):
        push(bounded, *[row(1, "d", key=n) for n in range(20_000)])
    assert bounded.snapshot() == before
    assert push(bounded, row(2, "d")) == ["-D"]


def test_ended_tombstones_give_their_memory_back() -> None:
    runtime = make_runtime(tombstones=100)
    sizes = []
    for k in range(40):
        push(runtime, *[row(n, op, key=n) for n in range(500 * k, 500 * k + 500) for op in ("c", "d")])
        sizes.append(runtime.nbytes)
    assert sizes[-1] <= sizes[10]


def test_load_leaves_stale_changes_out() -> None:
    runtime = make_runtime()
    runtime.load({"T": [row(5), row(3, "d"), row(4, key=2)], "S": [{"id": 1, "name": ""}, {"id": 2, "name": ""}]})
    assert push(runtime, row(4)) == []
    assert push(runtime, row(6, "d"), row(7, "d", key=2)) == ["-D", "-D"]


def test_another_version_is_another_query() -> None:
    saved = make_runtime(tombstones=4).snapshot()
    for options in ({"tombstones": 5}, {"version": None}):
        with pytest.raises(eddy.SnapshotError, match="another query"):
            eddy.Runtime.restore(saved, make_runtime(**options).query)


@given(st.permutations(range(12)), st.integers(1, 12), st.booleans())
def test_the_answer_does_not_depend_on_the_order_of_changes(order: list[int], size: int, atomic: bool) -> None:
    changes = [row(k, "d" if k % 3 == 2 else "c", key=k % 4) for k in range(12)]
    table = eddy.Table("T", SCHEMA, key="id", version="z", ops="column")
    query = eddy.Query([table], group_by={"z": "T.z"}, aggregates={"n": eddy.agg.count()})
    runtime, total = eddy.Runtime(query, output="changelog"), Counter[int]()
    for start in range(0, 12, size):
        for change in runtime.push({"T": [changes[k] for k in order[start : start + size]]}, atomic=atomic).to_pylist():
            total[change["z"]] += 1 if change["op"] == "+I" else -1
    # Of the newest changes 8 to 11 of the four keys, 8 and 11 are deletes.
    assert +total == Counter([9, 10])
