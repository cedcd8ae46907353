"""The program of an as-of join that is broken.

python -m tests.spark.streaming.faults.as_of_driver DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import eddy
from tests.spark.streaming.faults.as_of_workload import as_of_query
from tests.spark.streaming.faults.driver import ProgramRun, main


class AsOfDriver(ProgramRun):
    """One run of the program."""

    PLACES = False
    PLANS = (None, "R S", "S R")
    REFUSED = (*ProgramRun.REFUSED, "is a table: all changes of a row have to meet")

    def _joined(self) -> tuple[eddy.Query, dict[str, Any]]:
        return as_of_query(self._root), {}


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), AsOfDriver)
    sys.stdout.flush()
    os._exit(code)
