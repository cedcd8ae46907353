"""Only the user of a streaming job can read its files, and secrets reach workers without a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eddy import InputError
from eddy.routing.policies import Decision, View
from eddy.spark.streaming.state.locations import Locations
from tests.spark.streaming.test_moves import MovesRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counting:
    """A policy that records in a directory how often its engine was saved before it was loaded."""

    name = "counting"

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.kept = 0

    def decide(self, view: View) -> Decision | None:
        return None

    def learnt(self) -> Any:
        return {"kept": self.kept + 1}

    def resume(self, learnt: Any) -> None:
        self.kept = learnt["kept"]
        (self.notes / str(self.kept)).touch()


def test_a_policy_defined_in_a_script_moves_with_its_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers cannot import the module of a script.
    monkeypatch.setattr(Counting, "__module__", "__main__")
    notes = tmp_path / "notes"
    notes.mkdir()
    run = MovesRun(spark, tmp_path)
    running = run.start(partitions=2, rebalance="off", policy=Counting(notes))
    for partition in (1, 0, 1):
        run.batch(running)
        running.move(0, partition)
    run.batch(running)
    figures = running.groups().to_pylist()
    running.stop()
    run.check()
    assert {row["source"] for row in figures if row["batch"] == figures[-1]["batch"]} == {"live"}
    assert {path.name for path in notes.iterdir()} == {"1", "2", "3"}


def test_what_is_in_a_checkpoint_is_for_its_user_alone(spark: SparkSession, tmp_path: Path) -> None:
    run = MovesRun(spark, tmp_path)
    running = run.start(partitions=2)
    for _ in range(2):
        run.batch(running)
    run.inputs.add("R", [{"k": 1, "t": -1000, "n": 0}])
    running.processAllAvailable()
    assert sum(running.batches()["late"].to_pylist()) == 1
    running.stop()
    root = tmp_path / "state"
    ours = [root, *(path for path in root.rglob("*") if path.relative_to(root).parts[0] != "spark")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in ours}
    assert modes == {(True, 0o700), (False, 0o600)}
    parts = {path.relative_to(root).parts[0] for path in ours[1:] if path.is_file()}
    assert parts >= {"log", "late", "manifests", "metrics", "published", "identity.json", "lock"}
    # The umask decides who may read results.
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "out").rglob("*.parquet")} == {0o044}


def test_a_scratch_directory_that_others_can_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    locations = Locations(tmp_path, "job", tmp_path / "scratch")
    assert locations.engine_file(3).parent.stat().st_mode & 0o777 == 0o700
    locations.engines.chmod(0o777)
    for use in (lambda: locations.engine_file(3), locations.delete_old_engines):
        with pytest.raises(InputError, match=r"has mode 0777, so other users can change the files in it"):
            use()
    locations.engines.chmod(0o700)
    locations.engines.parent.chmod(0o777)
    with pytest.raises(InputError, match="other users can replace it"):
        locations.engine_file(3)
