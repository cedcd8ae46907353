"""The owner of a directory of results. Two jobs that publish to one directory would overwrite each other's batches."""

from __future__ import annotations

import json
from pathlib import Path

from eddy.spark.errors import SparkJoinError
from eddy.storage.durable import RESULT_FILE, write_whole
from stairs.storage.json_form import FormError, fields, parse, text

_FILE = "_owner.json"


def claim(path: Path, job: str, used: bool) -> None:
    """Record that a directory belongs to a job.

    used   whether the directory has published results

    Raises SparkJoinError if the directory belongs to another job.
    """
    marker = path / _FILE
    if marker.exists():
        try:
            whole = parse(marker.read_bytes())
            fields({"owner": text})(whole, "marker")
            holder = whole["owner"]
        except FormError as problem:
            raise SparkJoinError(f"{marker} is damaged; remove it if {path} holds the results of this job") from problem
    else:
        holder = None
    if holder == job:
        return
    if holder is not None or used:
        whose = f"job {holder}" if holder is not None else "an unknown job"
        raise SparkJoinError(
            f"{path} holds results of {whose}, and this is job {job}; give each job a directory of its own, or resume"
            " the job that ran here from its checkpoint"
        )
    write_whole(marker, json.dumps({"owner": job}).encode(), RESULT_FILE)
