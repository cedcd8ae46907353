"""Traps: faults as files. A process that passes the place of a trap springs it by renaming the file.

    armed/000004-join-kill-2      from micro-batch 4 on, the next worker that joins kills itself
    sprung/000004-join-kill-2     it did

A rename succeeds once, so a fault happens once, whatever processes pass and however often a batch is replayed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

SLEEPS_S = {"sleep": 0.8, "nap": 1.9, "doze": 4.0}
"""Spark ends a worker that goes on for two seconds after its task was given up; a nap is shorter."""
HELD_S = 120.0
"""A worker that is held waits to be released, but not for ever."""


WORKER_KILLED = "worker-killed-"
"""Prefix of the files that count the workers killed at random."""


@dataclass(frozen=True)
class Trap:
    """A fault: the action at a place from this batch on; the number distinguishes equal faults."""

    batch: int
    place: str
    action: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.batch:06d}-{self.place}-{self.action}-{self.number}"

    @classmethod
    def of(cls, name: str) -> Trap:
        batch, place, action, number = name.split("-")
        return cls(int(batch), place, action, int(number))

    @property
    def kind(self) -> str:
        return f"{self.place} {self.action}"


class Traps:
    """The traps below a directory."""

    def __init__(self, root: Path) -> None:
        self.armed = root / "armed"
        self.sprung = root / "sprung"
        self._now = root / "now"

    def arm(self, traps: list[Trap]) -> None:
        for directory in (self.armed, self.sprung):
            directory.mkdir(parents=True, exist_ok=True)
        for trap in traps:
            (self.armed / trap.name).touch()

    def at(self, batch: int) -> None:
        """Set the running batch."""
        unfinished = self._now.with_suffix(".tmp")
        unfinished.write_text(str(batch))
        os.replace(unfinished, self._now)

    def waiting(self, place: str) -> list[Trap]:
        """Return the traps at a place for this batch, in the order in which they spring."""
        try:
            now = int(self._now.read_text())
        except FileNotFoundError:
            return []
        traps = [Trap.of(name) for name in sorted(os.listdir(self.armed))]
        return [trap for trap in traps if trap.place == place and trap.batch <= now]

    def take(self, trap: Trap) -> bool:
        """Take a trap; return False if another process has taken it."""
        try:
            os.rename(self.armed / trap.name, self.sprung / trap.name)
        except FileNotFoundError:
            return False
        return True

    def spring(self, place: str) -> Trap | None:
        """Take and return the first trap at a place, None without one."""
        return next((trap for trap in self.waiting(place) if self.take(trap)), None)

    def release(self) -> None:
        """Release the workers that are held."""
        (self.armed.parent / "released").touch()

    def happened(self) -> list[Trap]:
        return [Trap.of(name) for name in sorted(os.listdir(self.sprung))]

    def left(self) -> list[Trap]:
        return [Trap.of(name) for name in sorted(os.listdir(self.armed))]


class Injected(Exception):
    """An injected fault."""


def pass_by(root: Path, place: str) -> None:
    """Spring the traps at a place in a worker, and record if it is not the first attempt of its task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        (root / f"again-{place}-{context.stageId()}-{context.partitionId()}").touch()
    trap = Traps(root).spring(place)
    if trap is None:
        return
    if trap.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trap.action == "raise":
        raise Injected(f"injected: {trap.name}")
    if trap.action == "hold":
        until = time.monotonic() + HELD_S
        while not (root / "released").exists() and time.monotonic() < until:
            time.sleep(0.01)
    else:
        time.sleep(SLEEPS_S[trap.action])
    (root / f"woke-{trap.name}").touch()
