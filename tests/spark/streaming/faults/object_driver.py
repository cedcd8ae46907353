"""The program that is broken, with its checkpoint in an object store.

python -m tests.spark.streaming.faults.object_driver DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.spark.streaming.faults.damage import Damage
from tests.spark.streaming.faults.driver import ProgramRun, main

SERVER = "server.json"
"""File with the settings of the store."""


class ObjectDriver(ProgramRun):
    """One run of the program. No file is damaged: the working directory is not the state."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)

        def inflict(name: str) -> Damage | None:
            return None

        self._damager.inflict = inflict  # type: ignore[method-assign]

    def _checkpoint(self) -> dict[str, Any]:
        options = json.loads((self._root / SERVER).read_text())
        # The servers of one process share their objects.
        return {"checkpoint": f"s3://checkpoints/job/{self._config['seed']}", "checkpoint_options": options}


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), ObjectDriver)
    sys.stdout.flush()
    os._exit(code)
