"""Whose results are in a directory: two jobs that publish to one would each take the other's batches for its own."""

from __future__ import annotations

import json
from pathlib import Path

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.durable import RESULT_FILE, write_whole
from eddy.storage.json_form import FormError, fields, parse, text

_FILE = "_owner.json"


def claim(path: Path, owner: str, used: bool) -> None:
    """Note that a directory is a job's.

    `used` says that results were published there. Raises SparkJoinError if they are another job's.
    """
    marker = path / _FILE
    if marker.exists():
        try:
            whole = parse(marker.read_bytes())
            fields({"owner": text})(whole, "marker")
            found = whole["owner"]
        except FormError as problem:
            raise SparkJoinError(f"{marker} is damaged; remove it if {path} holds the results of this job") from problem
    else:
        found = None
    if found == owner:
        return
    if found is not None or used:
        whose = f"job {found}" if found is not None else "a job that is not known"
        raise SparkJoinError(
            f"{path} holds results of {whose}, this is job {owner}; give each job a directory of its own, or go on from"
            " the checkpoint with which that one ran"
        )
    write_whole(marker, json.dumps({"owner": owner}).encode(), RESULT_FILE)
