"""Damaged or lost files are restored, or skipped if Spark replays their batch, or refused; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.recovery import recover
from tests.spark.streaming.checkpoints import filled, manifest_files, spark_log
from tests.spark.streaming.manifests import make_manifest

# --- damage ----------------------------------------------------------------------------------------------------------


def spoiled(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


@pytest.mark.parametrize("damage", [spoiled, lambda data: b"", lambda data: data[:-1], None])
@pytest.mark.parametrize("which", [0, 1])
def test_one_damaged_copy_is_put_back(tmp_path: Path, which: int, damage: Callable[[bytes], bytes] | None) -> None:
    checkpoint = filled(tmp_path, 3)
    path = manifest_files(checkpoint, 2)[which]
    whole = path.read_bytes()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(whole))
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(2)
    assert path.read_bytes() == whole
    (said,) = again.recoveries
    assert said.startswith(str(path))
    assert Checkpoint(tmp_path).recoveries == []


def test_two_damaged_copies_fall_back(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 3)
    for path in manifest_files(checkpoint, 2):
        path.write_bytes(spoiled(path.read_bytes()))
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(1)
    assert again.newest_number() == 2
    (said,) = again.recoveries
    assert all(str(path) in said for path in manifest_files(checkpoint, 2))
    assert again.newest() == make_manifest(1)
    assert len(again.recoveries) == 1
    # Spark replays the batch; its manifest replaces the damaged one.
    again.commit(make_manifest(2, extra={"again": 1}))
    assert Checkpoint(tmp_path).newest() == make_manifest(2, extra={"again": 1})
    assert again.damaged == {}


def test_a_manifest_under_a_wrong_name_is_damage(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 2)
    for path in manifest_files(checkpoint, 2):
        path.write_bytes(make_manifest(0).to_bytes())
    again = Checkpoint(tmp_path)
    assert again.newest() == make_manifest(1)
    assert "it is the manifest of batch 0, not of 2" in again.recoveries[0]


def test_two_whole_manifests_that_differ_are_refused(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 2)
    manifest_files(checkpoint, 1)[1].write_bytes(make_manifest(1, extra={"other": 1}).to_bytes())
    with pytest.raises(StreamingStateError, match="both whole but differ: one of them belongs to another checkpoint"):
        Checkpoint(tmp_path).newest()


# --- recovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifests", "planned", "committed"),
    [(0, None, None), (0, 0, None), (1, 0, None), (3, 2, 2), (3, 2, 1), (3, 3, 2)],
)
def test_recovery_after_a_stop_at_any_time(
    tmp_path: Path, manifests: int, planned: int | None, committed: int | None
) -> None:
    checkpoint = filled(tmp_path, manifests)
    spark_log(checkpoint, planned, committed)
    assert (checkpoint.spark_planned(), checkpoint.spark_committed()) == (planned, committed)
    assert recover(checkpoint) == (make_manifest(manifests - 1) if manifests else None)


@pytest.mark.parametrize("number", [1, 3])
def test_a_lost_batch_that_spark_gives_again(tmp_path: Path, number: int) -> None:
    checkpoint = filled(tmp_path, number)
    spark_log(checkpoint, number - 1, number - 2 if number > 1 else None)
    for path in manifest_files(checkpoint, number - 1):
        path.write_bytes(b"")
    recovered = recover(Checkpoint(tmp_path))
    assert recovered == (make_manifest(number - 2) if number > 1 else None)


def test_a_lost_batch_that_spark_does_not_give_again(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path, 4)
    spark_log(checkpoint, 3, 3)
    for batch in (2, 3):
        for path in manifest_files(checkpoint, batch):
            path.write_bytes(spoiled(path.read_bytes()))
    with pytest.raises(StreamingStateError) as refused:
        recover(Checkpoint(tmp_path))
    message = str(refused.value)
    for batch in (2, 3):
        assert all(str(path) in message for path in manifest_files(checkpoint, batch))
    for part in ("state after batch 3", "newest whole one is of batch 1", "batches 2 to 3", "from a backup"):
        assert part in message


def test_manifests_that_are_gone(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    spark_log(checkpoint, 5, 5)
    with pytest.raises(StreamingStateError, match=r"000000000005.manifest: it is missing.*none is whole"):
        recover(checkpoint)


@pytest.mark.parametrize("planned", [None, 1])
def test_another_checkpoint_of_spark(tmp_path: Path, planned: int | None) -> None:
    checkpoint = filled(tmp_path, 3)
    spark_log(checkpoint, planned, planned)
    with pytest.raises(StreamingStateError, match=r"has batch 2, but Spark's checkpoint .* has (no batch|batches)"):
        recover(checkpoint)
