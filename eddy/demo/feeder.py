"""A thread that drops files into directories while a job reads them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class Feeder:
    """A thread that drops a Parquet file into the directory of each stream, at intervals of `pause_s` seconds or more.

    folder   gets a directory for each stream, and `.begun`, in which files are written; a complete file is renamed into
             its directory, so that no reader sees a partial file
    batches  per batch a table for each stream
    """

    def __init__(self, folder: Path, batches: Sequence[Mapping[str, pa.Table]], pause_s: float) -> None:
        self.folder = folder
        self._batches = batches
        self._pause_s = pause_s
        self._allowed = 0
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="eddy demo feeder", daemon=True)
        self._problem: OSError | None = None
        self.dropped = 0
        """Batches dropped so far."""
        (folder / ".begun").mkdir(parents=True)
        for name in batches[0]:
            (folder / name).mkdir()

    @property
    def done(self) -> bool:
        """Whether all batches are dropped. Raises the OSError that ended the thread early."""
        if self._problem is not None:
            raise self._problem
        return self.dropped == len(self._batches)

    def start(self) -> None:
        """Start the thread, which drops no file before `allow`."""
        self._thread.start()

    def allow(self, batches: int) -> None:
        """Allow this many batches in all, so that the files do not run ahead of a slow job."""
        with self._changed:
            self._allowed = batches
            self._changed.notify()

    def stop(self) -> None:
        """End the thread at any point of its work. The thread writes nothing afterwards."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            for k, batch in enumerate(self._batches):
                if not self._wait(k):
                    return
                for name, rows in batch.items():
                    file = f"{k:06d}.parquet"
                    begun = self.folder / ".begun" / f"{name}-{file}"
                    pq.write_table(rows, begun)
                    begun.rename(self.folder / name / file)
                self.dropped = k + 1
        except OSError as problem:
            self._problem = problem

    def _wait(self, batch: int) -> bool:
        """Wait until a batch is due and allowed; return False if the thread is to end."""
        with self._changed:
            if batch and self._changed.wait_for(lambda: self._over, self._pause_s):
                return False
            self._changed.wait_for(lambda: self._over or batch < self._allowed)
            return not self._over
