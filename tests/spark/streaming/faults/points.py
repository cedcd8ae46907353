"""Exact places at which a test can end the driver, as wrappers around the job's own functions."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy.spark.streaming.driver.micro_batch import MicroBatches
from eddy.spark.streaming.sinks import CallbackSink, ParquetSink, TransactionSink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import Manifest
from tests.spark.streaming.faults.traps import Injected, Traps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Points:
    """The places of one driver.

    stop_asked  set when the query is to be stopped in the middle of a batch
    """

    def __init__(self, root: Path, traps: Traps, chance: random.Random) -> None:
        self._traps = traps
        self._chance = chance
        self._out = root / "out"
        self._ready = root / "ready"
        self._failing = self._committing = False
        self.stop_asked = threading.Event()

    def reach(self, place: str) -> None:
        """Spring a trap at a place, if there is one."""
        trap = self._traps.spring(place)
        if trap is None:
            return
        if trap.action == "killall":
            os.killpg(os.getpgid(0), signal.SIGKILL)
            time.sleep(60)
        if trap.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise Injected(f"injected: {trap.name}")

    def install(self) -> None:
        """Wrap the job's functions."""
        self._around_batches()
        self._around_renames()
        mark, commit = Checkpoint.mark_published, Checkpoint.commit

        def wrapped_commit(checkpoint: Checkpoint, manifest: Manifest) -> None:
            self._committing = True
            try:
                commit(checkpoint, manifest)
            finally:
                self._committing = False

        def mark_published(checkpoint: Checkpoint, batch: int) -> None:
            mark(checkpoint, batch)
            self.reach("marked")

        Checkpoint.commit = wrapped_commit  # type: ignore[method-assign]
        Checkpoint.mark_published = mark_published  # type: ignore[method-assign]
        for kind in (ParquetSink, TransactionSink, CallbackSink):
            self._around_publish(kind)

    def _around_batches(self) -> None:
        call, plan, join, run = (
            MicroBatches.__call__,
            MicroBatches._plan,
            MicroBatches._manifest,
            MicroBatches._run_tasks,
        )

        def wrapped_call(batches: MicroBatches, frame: DataFrame, batch: int) -> None:
            self._traps.at(batch)
            self._ready.touch()
            if self._traps.spring("stop"):
                threading.Timer(self._chance.uniform(0.0, 0.7), self.stop_asked.set).start()
            call(batches, frame, batch)
            self.reach("done")

        def wrapped_plan(batches: MicroBatches, *given: Any) -> Any:
            self.reach("logged")
            return plan(batches, *given)

        def wrapped_join(batches: MicroBatches, *given: Any) -> Any:
            self.reach("joined")
            return join(batches, *given)

        def wrapped_run(batches: MicroBatches, *given: Any) -> Any:
            attempts = [run(batches, *given)]
            if self._traps.spring("twice"):
                # Of two attempts, each with its own files, either may win.
                attempts.append(run(batches, *given))
            return self._chance.choice(attempts)

        MicroBatches.__call__ = wrapped_call  # type: ignore[method-assign]
        MicroBatches._plan = wrapped_plan  # type: ignore[method-assign]
        MicroBatches._manifest = wrapped_join  # type: ignore[method-assign]
        MicroBatches._run_tasks = wrapped_run  # type: ignore[method-assign]

    def _around_renames(self) -> None:
        replace, rename = os.replace, os.rename

        def wrapped_replace(source: Any, target: Any, **options: Any) -> None:
            path = Path(target)
            # The repair of a manifest at a start is not a commit.
            manifest = self._committing and path.suffix == ".manifest"
            if manifest and path.parent.name == "manifests":
                self.reach("unrenamed")
            self._fail_publishing(path)
            replace(source, target, **options)
            if manifest:
                self.reach("copied" if path.parent.name == "copies" else "renamed")

        def wrapped_rename(source: Any, target: Any, **options: Any) -> None:
            self._fail_publishing(Path(target))
            rename(source, target, **options)

        os.replace = wrapped_replace
        os.rename = wrapped_rename

    def _fail_publishing(self, path: Path) -> None:
        if self._failing and path.is_relative_to(self._out) and self._chance.random() < 0.5:
            self.fail_once(lambda: OSError(errno.ENOSPC, "injected: no space left on device"))

    def fail_once(self, error: Callable[[], Exception]) -> None:
        """Raise an error if publishing is to fail."""
        if self._traps.spring("publish"):
            self._failing = False
            raise error()

    def _around_publish(self, kind: type[ParquetSink] | type[TransactionSink] | type[CallbackSink]) -> None:
        publish = kind.publish

        def wrapped(sink: Any, batch: int, files: Any, spark: Any = None) -> None:
            self._failing = bool(self._traps.waiting("publish"))
            try:
                publish(sink, batch, files, spark)
            finally:
                self._failing = False
            self.reach("published")

        kind.publish = wrapped  # type: ignore[method-assign]
