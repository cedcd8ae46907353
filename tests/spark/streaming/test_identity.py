"""A checkpoint resumes only with the join that created it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Query, Range, Stream, Unbounded
from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.streaming.state.identity import (
    SavedChoices,
    check_identity,
    has_identity,
    saved_choices,
    write_identity,
)

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("ms")), ("v", pa.float64())])
KEY_GROUPS = 12
SETTINGS = {"delay R": 5, "delay S": 7}
SELECT = ("R.a", "R.v", "S.b", "S.v")


def make(
    names: str = "RS",
    *,
    schema: pa.Schema = SCHEMA,
    window: Any = timedelta(seconds=5),
    accept: Any = None,
    predicates: tuple[str, ...] = ("R.a = S.a", "R.b = S.b"),
    key_groups: int = KEY_GROUPS,
    weights: dict[str, float] | None = None,
    plan: str | None = None,
    **options: Any,
) -> Job:
    window = Range(window) if isinstance(window, timedelta) else window
    first = Stream(names[0], schema, window=window, time="t", filter=accept)
    second = Stream(names[1], SCHEMA, window=Range(timedelta(seconds=5)), time="t")
    query = Query([first, second], list(predicates), **{"select": SELECT, **options})
    return make_job(query, partitions=key_groups, weights=weights, options=EngineOptions(plan))


def positive(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater(rows.column("a"), 0)


def negative(rows: pa.RecordBatch) -> pa.Array:
    return pc.less(rows.column("a"), 0)


def test_the_same_join_written_anew(tmp_path: Path) -> None:
    assert not has_identity(tmp_path)
    assert saved_choices(tmp_path) is None
    write_identity(tmp_path, make(accept=positive), KEY_GROUPS, "rows", SETTINGS)
    assert has_identity(tmp_path)
    assert saved_choices(tmp_path) == SavedChoices(make().shares.counts, "rows")
    same = make(
        accept=positive,
        schema=SCHEMA.with_metadata({"made": "elsewhere"}),
        window=timedelta(milliseconds=5000),
        predicates=("S.a = R.a", "S.b = R.b"),
    )
    assert check_identity(tmp_path, same, KEY_GROUPS, "rows", SETTINGS) == ()


@pytest.mark.parametrize(
    "free",
    [
        {"plan": "S R"},
        {"lateness": timedelta(seconds=3)},
        {"select": {"x": "R.v", "y": "S.v", "z": "R.a"}},
        {"where": pc.field("R.v") > pc.field("S.v")},
        {"select": ("S.v",), "where": pc.field("R.v") > 1},
    ],
    ids=lambda free: " ".join(free),
)
def test_what_may_change(tmp_path: Path, free: dict[str, Any]) -> None:
    write_identity(tmp_path, make(), KEY_GROUPS, "rows")
    check_identity(tmp_path, make(**free), KEY_GROUPS, "rows")


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "stream": (
        {"names": "QS", "predicates": ("Q.a = S.a", "Q.b = S.b"), "select": ("Q.a", "Q.v", "S.b", "S.v")},
        "streams: R, S in the checkpoint, Q, S in the query",
    ),
    "window": (
        {"window": timedelta(seconds=6)},
        "stream R, window: RANGE 5000 ticks in the checkpoint, RANGE 6000 ticks in the query",
    ),
    "unbounded": ({"window": Unbounded()}, "RANGE 5000 ticks in the checkpoint, UNBOUNDED in the query"),
    "type": (
        {"schema": SCHEMA.set(0, pa.field("a", pa.int32()))},
        "stream R, column 'a': int64 in the checkpoint, int32 in the query",
    ),
    "fewer columns": (
        {"select": ("R.a", "S.b", "S.v")},
        "stream R, column 'v': double in the checkpoint, absent in the query",
    ),
    "predicate": (
        {"predicates": ("R.a = S.a", "R.b = S.b", "R.v = S.v")},
        "predicates: (R.a, R.b) = (S.a, S.b) in the checkpoint, (R.a, R.b, R.v) = (S.a, S.b, S.v) in the query",
    ),
    "filter": ({"accept": negative}, "stream R, filter: "),
    "no filter": ({"accept": None}, "in the checkpoint, none now"),
    "key groups": ({"key_groups": 6}, "number of key groups: 12 in the checkpoint, 6 now"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_join_is_refused_with_the_difference(tmp_path: Path, other: str) -> None:
    changes, message = OTHERS[other]
    write_identity(tmp_path, make(accept=positive), KEY_GROUPS, "rows")
    job = make(**{"accept": positive, **changes})
    with pytest.raises(StreamingStateError) as refused:
        check_identity(tmp_path, job, changes.get("key_groups", KEY_GROUPS), "rows")
    assert f"the checkpoint {tmp_path} belongs to another join: " in str(refused.value)
    assert message in str(refused.value)


def test_another_grid_of_key_groups(tmp_path: Path) -> None:
    schemas = {"R": ["a", "b"], "S": ["b", "c"], "T": ["c"], "U": ["a"]}

    def job(weights: dict[str, float]) -> Job:
        streams = [Stream(name, pa.schema([(c, pa.int64()) for c in columns])) for name, columns in schemas.items()]
        query = Query(streams, ["R.b = S.b", "S.c = T.c", "R.a = U.a"])
        return make_job(query, partitions=KEY_GROUPS, weights=weights)

    first, other = job({"R": 1e6, "S": 1, "T": 1, "U": 1e6}), job({"R": 1, "S": 1e6, "T": 1e6, "U": 1})
    assert first.shares.counts != other.shares.counts
    write_identity(tmp_path, first, KEY_GROUPS, "rows")
    with pytest.raises(StreamingStateError, match=r"shares of .* along \[.*\]: \d+ in the checkpoint, \d+ now"):
        check_identity(tmp_path, other, KEY_GROUPS, "rows")
    assert saved_choices(tmp_path) == SavedChoices(first.shares.counts, "rows")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay R": 6, "delay S": 7}, "watermark setting 'delay R': 5 in the checkpoint, 6 now"),
        ({"delay R": 5}, "watermark setting 'delay S': 7 in the checkpoint, absent now"),
        ({**SETTINGS, "more": 1}, "watermark setting 'more': absent in the checkpoint, 1 now"),
        (None, "watermark setting 'delay R': 5 in the checkpoint, absent now"),
    ],
)
def test_settings_of_watermarks(tmp_path: Path, settings: dict[str, Any] | None, message: str) -> None:
    write_identity(tmp_path, make(), KEY_GROUPS, "rows", SETTINGS)
    with pytest.raises(StreamingStateError, match=message):
        check_identity(tmp_path, make(), KEY_GROUPS, "rows", settings)


def test_damage(tmp_path: Path) -> None:
    with pytest.raises(StreamingStateError, match=r"has no whole identity: .*identity.json is missing"):
        check_identity(tmp_path, make(), KEY_GROUPS, "rows")
    write_identity(tmp_path, make(), KEY_GROUPS, "rows", SETTINGS)
    paths = [tmp_path / "identity.json", tmp_path / "identity-copy.json"]
    whole = paths[0].read_bytes()
    assert paths[1].read_bytes() == whole
    job = make()
    # White space between the words may change.
    places = [at for at in range(0, len(whole), 37) if not whole[at : at + 1].isspace()]
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places]
    for damaged in [b"", whole[:-1], b"[]", *changed]:
        for path in paths:
            path.write_bytes(damaged)
        with pytest.raises(StreamingStateError, match="from a backup"):
            check_identity(tmp_path, job, KEY_GROUPS, "rows", SETTINGS)
        assert saved_choices(tmp_path) is None
    for damaged in (b"", whole[: len(whole) // 2]):
        for path in paths:
            path.write_bytes(damaged)
            (paths[0] if path == paths[1] else paths[1]).write_bytes(whole)
            (said,) = check_identity(tmp_path, job, KEY_GROUPS, "rows", SETTINGS)
            assert said.startswith(str(path))
            assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [({"format": "something"}, "has format 'something'"), ({"version": 9}, "format version 9, .* reads 8")],
)
def test_another_format(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_identity(tmp_path, make(), KEY_GROUPS, "rows")
    path = tmp_path / "identity.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    (tmp_path / "identity-copy.json").unlink()
    with pytest.raises(StreamingStateError, match=message):
        check_identity(tmp_path, make(), KEY_GROUPS, "rows")
