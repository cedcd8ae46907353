"""The program of a join over tables that is broken.

python -m tests.spark.streaming.faults.tables_driver DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import eddy
from tests.spark.streaming.faults.driver import ProgramRun, main
from tests.spark.streaming.faults.tables_workload import tables_query


class TablesDriver(ProgramRun):
    """One run of the program."""

    PLACES = False
    REFUSED = (*ProgramRun.REFUSED, "is a table: all changes of a row have to meet")

    def _joined(self) -> tuple[eddy.Query, dict[str, Any]]:
        return tables_query(self._root), {}


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), TablesDriver)
    sys.stdout.flush()
    os._exit(code)
