"""The parent of the Python workers of a broken job: its workers pass a trap when they speak in a meeting.

The setting `spark.python.daemon.module` names this module; the variable EDDY_TRAPS names the directory of the traps.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from eddy.spark.streaming.worker.meeting import Seat
from tests.spark.streaming.faults.traps import pass_by

MODULE, TRAPS = "tests.spark.streaming.faults.daemon", "EDDY_TRAPS"
PARENTS = "parents"
"""File with the numbers of such processes."""


def install(root: Path) -> None:
    """Put a trap before the words of a task that has logged its rows, and one before its last word."""
    say, leave = Seat.say, Seat.leave

    def wrapped_say(seat: Seat, said: Any) -> Any:
        if said is not None:
            pass_by(root, "meet")
        return say(seat, said)

    def wrapped_leave(seat: Seat) -> None:
        pass_by(root, "leave")
        leave(seat)

    Seat.say = wrapped_say  # type: ignore[method-assign]
    Seat.leave = wrapped_leave  # type: ignore[method-assign]


if __name__ == "__main__":
    root = Path(os.environ[TRAPS])
    with open(root / PARENTS, "a") as file:
        file.write(f"{os.getpid()}\n")
    install(root)
    runpy.run_module("eddy.spark.environment.daemon", run_name="__main__")
