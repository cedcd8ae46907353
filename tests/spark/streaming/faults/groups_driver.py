"""The program of the groups of a join over tables that is broken.

python -m tests.spark.streaming.faults.groups_driver DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import eddy
from tests.spark.streaming.faults.driver import main
from tests.spark.streaming.faults.tables_driver import TablesDriver
from tests.spark.streaming.faults.tables_workload import groups_query


class GroupsDriver(TablesDriver):
    """One run of the program."""

    def _joined(self) -> tuple[eddy.Query, dict[str, Any]]:
        return groups_query(self._root), {}


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), GroupsDriver)
    sys.stdout.flush()
    os._exit(code)
