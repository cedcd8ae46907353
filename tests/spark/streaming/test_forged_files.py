"""Altered files of a checkpoint with a right digest are refused by name, or harmless."""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy import Query, Range, Stream
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.hops.saved import UNPLACED
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.fragments import Dealt
from eddy.spark.partitioning.job import make_job
from eddy.spark.partitioning.split_tree import GroupSplit
from eddy.spark.streaming.driver.partition_map import PartitionMap
from eddy.spark.streaming.driver.rebalancing import Load
from eddy.spark.streaming.driver.resume import resume
from eddy.spark.streaming.driver.watermarks import WatermarkRules, Watermarks
from eddy.spark.streaming.sinks.transactions import snapshot
from eddy.spark.streaming.state.identity import _digest, check_identity, write_identity
from eddy.spark.streaming.state.manifest import KIND, GroupState, Manifest, ManifestLink
from eddy.spark.streaming.state.segments import Segment, SegmentReader, SegmentWriter
from tests.eddy.forged_snapshots import VALUES, alter_json, alter_section
from tests.eddy.opened_files import closed, opened
from tests.spark.streaming.manifests import make_manifest, make_segment

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
QUERY = Query([Stream(name, SCHEMA, window=Range(10), time="t") for name in "RS"], ["R.k = S.k"])
JOB = make_job(QUERY, options=EngineOptions(), partitions=4)
WHOLE = make_manifest(3).to_bytes()


@given(st.integers(0, 1 << 32))
def test_a_forged_manifest_is_refused_or_a_manifest(seed: int) -> None:
    rng = random.Random(seed)
    values, contents = opened(WHOLE, KIND)
    if rng.random() < 0.6:
        alter_json(rng.choice((values, values["header"])), rng)
    else:
        alter_section(contents, rng)
    forged = closed(values, contents, KIND)
    try:
        manifest = Manifest.from_bytes(forged)
    except StreamingStateError:
        event("refused")
        return
    event("read")
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    for name in (*manifest.log_files(), *(output.file for output in (*manifest.results, *manifest.late))):
        assert (Path("/root") / name).resolve().is_relative_to("/root")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../b", "", "a\0b"])
def test_names_of_files_stay_in_their_directory(name: str) -> None:
    manifest = make_manifest(3)
    state = GroupState(3, "token", (ManifestLink(3, None, (make_segment(name),)),), None)
    late = replace(manifest.late[0], file=name)
    for forged in (replace(manifest, groups={0: state}), replace(manifest, late=(late,))):
        with pytest.raises(StreamingStateError, match="not a path below its directory"):
            Manifest.from_bytes(forged.to_bytes())


def resumable(**changes: Any) -> Manifest:
    """Return a manifest that fits the join."""
    watermarks = Watermarks.none(2).after((5, 7), 1.0, WatermarkRules("slowest", (0, 0)))
    extra = {"partitions": 2, "load": Load.none(4).to_json(), "options": "x", "taken": None, "placement": UNPLACED}
    segment = make_segment("000000000003-0", group=2, stream=1)
    groups = {2: GroupState(3, "token", (ManifestLink(3, (1, 2), (segment,)),), "R S")}
    given: dict[str, Any] = {"watermarks": watermarks.to_json(), "groups": groups, "extra": extra, **changes}
    return make_manifest(3, **{"partition_map": PartitionMap.even(4, 2).partitions, **given})


def split(segment: Segment) -> dict[str, Any]:
    """Return changes that split group 1, and give its half, group 4, a segment."""
    extra = {**resumable().extra, "load": Load.none(5).to_json()}
    state = GroupState(3, "t", (ManifestLink(3, None, (segment,)),), None)
    return {"splits": (GroupSplit(1, 0),), "partition_map": (0, 0, 1, 1, 1), "extra": extra, "groups": {4: state}}


def fragment(group: int, stream: int, segments: tuple[Segment, ...] = (), parts: int = 2) -> dict[str, Any]:
    """Return changes that give group 1 a place, group 4, with segments, and divide a group by a stream."""
    changes = split(make_segment("f", 4))
    state = GroupState(3, "t", (ManifestLink(3, None, segments),) if segments else (), None)
    return {**changes, "splits": (GroupSplit(1, 1),), "dealt": (Dealt(group, stream, parts),), "groups": {4: state}}


def group(**changes: Any) -> dict[int, GroupState]:
    return {2: replace(resumable().groups[2], **changes)}


def extra(**changes: Any) -> dict[str, Any]:
    return {**resumable().extra, **changes}


def steps(*heads: list[list[int]]) -> dict[str, Any]:
    return {**UNPLACED, "asked": "auto", "steps": list(heads)}


def costs(*point: Any, **others: Any) -> dict[str, Any]:
    """Return a placement in whose costs the grid has a point."""
    return {**UNPLACED, "costs": {"grid": [list(point)], "hops": [], **others}}


def test_a_manifest_that_fits_is_gone_on_from() -> None:
    resumed = resume(resumable(), JOB, Path("manifests"))
    assert (resumed.watermarks.greatest, resumed.partition_map.n, resumed.load.batches) == ((5, 7), 2, 0)
    for segment in (make_segment("f", 1), replace(make_segment("f", 4), splits=1)):
        resumed = resume(Manifest.from_bytes(resumable(**split(segment)).to_bytes()), JOB, Path("manifests"))
        assert resumed.tree.groups == resumed.partition_map.groups == 5
    resumed = resume(Manifest.from_bytes(resumable(**fragment(1, 1)).to_bytes()), JOB, Path("manifests"))
    assert resumed.tree.fragments(1) == [1, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"watermarks": {}}, "watermarks has no 'greatest'"),
        ({"watermarks": Watermarks.none(3).to_json()}, "3 watermarks for 2 streams"),
        ({"watermarks": {**Watermarks.none(2).to_json(), "engine": 1 << 80}}, "watermarks.engine is about 2"),
        ({"extra": {}}, "extra has no 'partitions'"),
        ({"extra": extra(partitions=1)}, "key group 2 cannot be in partition 1"),
        ({"extra": extra(load=Load.none(3).to_json())}, "3 loads of key groups, but the join has 4"),
        ({"extra": extra(load={**Load.none(4).to_json(), "weight": 7})}, "weight=7"),
        ({"extra": extra(taken=[1, 2, 3])}, "positions .1, 2, 3. of inputs for 2 streams"),
        ({"extra": extra(taken=[1, -2])}, "extra.taken"),
        ({"extra": extra(taken=[1, {"0": -2}])}, "extra.taken"),
        ({"extra": extra(placement=None)}, "extra.placement is None, not a mapping"),
        ({"extra": extra(placement={**UNPLACED, "asked": "rounds"})}, "extra.placement.asked is 'rounds'"),
        ({"extra": extra(placement=steps([[1, 0]]))}, "1 heads for 2 streams"),
        ({"extra": extra(placement=steps([[0, 0]], [[0, 0]]))}, "steps.0. does not join each other stream once"),
        ({"extra": extra(placement=steps([[1, 0]], [[0, 5]]))}, "steps.1. joins R by class 5, which has no key there"),
        ({"extra": extra(placement={**UNPLACED, "asked": [["R", [["X", "ship"]]]]})}, "there is no stream 'X'"),
        ({"extra": extra(placement={**UNPLACED, "asked": [["R", [["S", "ship"]]]]})}, "stream S has no plan"),
        ({"extra": extra(placement={"asked": "grid", "steps": None})}, "extra.placement has no 'costs'"),
        ({"extra": extra(placement={**UNPLACED, "costs": {"grid": []}})}, "extra.placement.costs has no 'hops'"),
        ({"extra": extra(placement=costs(1, 4, 9, 9, 9, 9, 0.1))}, r"costs.grid\[0\] is a list of 7, not a list of 8"),
        ({"extra": extra(placement=costs(1, 4, 9, -9, 9, 9, 9, 0.1))}, r"grid\[0\]\[3\] is -9, not a finite number"),
        ({"extra": extra(placement=costs(1, 4, 9, 1e18, 9, 9, 9, 0.1))}, r"grid\[0\]\[3\] is 1e\+18, not a finite"),
        ({"extra": extra(placement=costs(1, 4, 9, "9", 9, 9, 9, 0.1))}, r"costs.grid\[0\]\[3\] is '9', not a finite"),
        ({"extra": extra(placement=costs(1, 4, 9, 9, 9, 9, 9, 0))}, r"costs.grid\[0\]\[7\] is 0, not a finite number"),
        ({"extra": extra(placement=costs(*[1] * 8, hops=None))}, "costs.hops is None, not a list"),
        ({"groups": {9: resumable().groups[2]}}, "key group 9, but the join has 4"),
        ({"groups": group(plan="R R")}, "names stream R twice"),
        ({"groups": group(chain=(ManifestLink(3, (1,), ()),))}, "key group 2 has 1 late marks for 2 streams"),
        (
            {"groups": group(chain=(ManifestLink(3, None, (make_segment("f", 1),)),))},
            "has a segment of group 1, stream 0",
        ),
        (
            {"groups": group(chain=(ManifestLink(3, None, (replace(make_segment("f", 2), splits=1),)),))},
            "segment of group 2",
        ),
        ({"splits": (GroupSplit(2, 0),)}, "4 partitions of key groups, but the join has 5"),
        ({"splits": (GroupSplit(9, 0),)}, "key group 9 does not exist"),
        ({"splits": (GroupSplit(1, 2),)}, "key group 1 cannot be split along class 2"),
        ({"dealt": (Dealt(2, 0, 2),)}, "key group 2 cannot have 2 fragments by stream 0"),
        ({"splits": (GroupSplit(1, 1),)}, "4 partitions of key groups, but the join has 5"),
        (fragment(1, 0, parts=3), "key group 1 cannot have 3 fragments by stream 0"),
        (fragment(4, 0), "key group 4 cannot have 2 fragments"),
        (fragment(1, 2), "key group 1 is in fragments by stream 2"),
        (fragment(1, 0, (make_segment("f", 1),)), "key group 4 is no fragment, or has rows of its own"),
        ({**fragment(1, 0), "dealt": ()}, "key group 4 is no fragment, or has rows of its own"),
        (split(make_segment("f", 2)), "key group 4 has a segment of group 2"),
        (split(make_segment("f", 4)), "key group 4 has a segment of group 4"),
        (split(replace(make_segment("f", 1), splits=1)), "key group 4 has a segment of group 1"),
        (
            {"groups": group(chain=(ManifestLink(3, None, (make_segment("f", 2, 5),)),))},
            "has a segment of group 2, stream 5",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamingStateError, match=f"manifests: the manifest of batch 3 does not fit .*{message}"):
        resume(Manifest.from_bytes(resumable(**changes).to_bytes()), JOB, Path("manifests"))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_costs_that_are_no_numbers_are_refused(number: float) -> None:
    forged = resumable(extra=extra(placement=costs(1, 4, 9, 9, number, 9, 9, 0.1)))
    with pytest.raises(StreamingStateError, match="is not a number"):
        Manifest.from_bytes(forged.to_bytes())
    with pytest.raises(StreamingStateError, match=r"costs.grid\[0\]\[4\] is (nan|inf), not a finite number"):
        resume(forged, JOB, Path("manifests"))


def segment_of(directory: Path, rows: pa.RecordBatch) -> Segment:
    with SegmentWriter(directory, "000000000000-0") as writer:
        writer.add(0, 0, rows, 0, 9)
        (segment,) = writer.finish()
    return segment


def test_strings_of_the_log_stay_in_their_buffer(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 1 << 30, 3], np.int32))
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), text, pa.array([3, 4])], schema=SCHEMA)
    segment = segment_of(tmp_path, rows)
    with pytest.raises(StreamingStateError, match=r"0-0, offset 64 .*column 's': .*[Oo]ffset .*from a backup"):
        SegmentReader(tmp_path, [SCHEMA]).read(segment)


@pytest.mark.parametrize("change", [{"offset": -64}, {"length": -1}, {"offset": 1 << 62}, {"length": 1 << 62}])
def test_segments_stay_in_their_file(tmp_path: Path, change: dict[str, int]) -> None:
    rows = pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"]), pa.array([3, 4])], schema=SCHEMA)
    segment = segment_of(tmp_path, rows)
    with pytest.raises(StreamingStateError, match=r"000000000000-0, offset .*from a backup"):
        SegmentReader(tmp_path, [SCHEMA]).read(replace(segment, **change))


@given(st.integers(0, 1 << 32))
def test_a_forged_identity_is_refused_or_that_of_the_join(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, root = random.Random(seed), tmp_path_factory.getbasetemp() / "identity"
    root.mkdir(exist_ok=True)
    write_identity(root, JOB, 4, "rows", {"policy": "slowest"})
    path = root / "identity.json"
    whole = json.loads(path.read_bytes())
    identity = copy.deepcopy(whole["identity"])
    alter_json(identity, rng)
    whole.update(identity=identity, digest=_digest(identity))
    for place in (path, root / "identity-copy.json"):
        place.write_text(json.dumps(whole))
    try:
        check_identity(root, JOB, 4, "rows", {"policy": "slowest"})
    except StreamingStateError as refused:
        event("refused")
        if str(root) not in str(refused):
            raise
        return
    event("the same")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"format":' * 100_000, b"9" * 10_000, b"NaN", b"\xff"])
def test_an_identity_that_is_no_json(tmp_path: Path, text: bytes) -> None:
    for name in ("identity.json", "identity-copy.json"):
        (tmp_path / name).write_bytes(text)
    with pytest.raises(StreamingStateError, match=r"identity.json: it is damaged, or no identity"):
        check_identity(tmp_path, JOB, 4, "rows")


@pytest.mark.parametrize(
    "entry", [{}, [], {"batch": 0, "files": [{"name": "../../x", "rows": 1, "bytes": 1}]}, {"batch": -1, "files": []}]
)
def test_an_entry_of_the_log_of_results(tmp_path: Path, entry: Any) -> None:
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "000000000000.json").write_text(json.dumps(entry))
    with pytest.raises(SparkJoinError, match=r"000000000000.json is damaged \(.*; restore it"):
        snapshot(tmp_path)


@given(st.sampled_from(sorted(Watermarks.none(2).to_json())), st.sampled_from(VALUES))
def test_watermarks_of_any_json(name: str, value: Any) -> None:
    state = {**Watermarks.none(2).to_json(), name: value}
    try:
        watermarks = Watermarks.from_json(state)
    except eddy.EddyError:
        return
    watermarks.after((1, 2), 5.0, WatermarkRules("slowest", (0, 0))).resumed(9.0)
