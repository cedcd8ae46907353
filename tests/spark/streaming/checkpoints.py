"""Checkpoints for tests."""

from __future__ import annotations

from pathlib import Path

from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.spark.streaming.manifests import make_manifest


def filled(root: Path, batches: int) -> Checkpoint:
    """Return a checkpoint with this number of batches, from 0 on."""
    checkpoint = Checkpoint(root)
    for batch in range(batches):
        checkpoint.commit(make_manifest(batch))
    return checkpoint


def spark_log(checkpoint: Checkpoint, planned: int | None, committed: int | None) -> None:
    for name, newest in (("offsets", planned), ("commits", committed)):
        (checkpoint.spark / name).mkdir(parents=True, exist_ok=True)
        for batch in range(-1 if newest is None else newest + 1):
            (checkpoint.spark / name / str(batch)).touch()
            (checkpoint.spark / name / f".{batch}.crc").touch()


def manifest_files(checkpoint: Checkpoint, batch: int) -> tuple[Path, Path]:
    name = f"{batch_name(batch)}.manifest"
    return checkpoint.manifests / name, checkpoint.copies / name
