"""Which transport carries the rows of a join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.transports import TRANSPORTS
from eddy.spark.transports.base import Carried, RowTask, UnsuitableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AUTO = "auto"


def check_transport(transport: str) -> None:
    """Raise SparkJoinError for a name that is neither "auto" nor that of a transport."""
    if transport != AUTO and transport not in TRANSPORTS:
        names = [repr(name) for name in (AUTO, *sorted(TRANSPORTS, reverse=True))]
        raise SparkJoinError(f"transport={transport!r}: pass {', '.join(names[:-1])} or {names[-1]}")


def carry(transport: str, task: RowTask, frames: Sequence[DataFrame], *, root: Path | None = None) -> Carried:
    """Return a DataFrame that runs `task` on its streams; its remark names the transport and the reason for it.

    transport   a name, or "auto" for the first transport that can carry every DataFrame
    frames      one for each of `task.streams`
    root        of a streaming join: the directory of its checkpoint

    Raises SparkJoinError if the transport that was asked for cannot carry one of the DataFrames.
    """
    reason = "as asked"
    for name in TRANSPORTS if transport == AUTO else [transport]:
        one = TRANSPORTS[name]
        try:
            carried = one.carry_batch(task, frames) if root is None else one.carry_stream(task, frames, root)
        except UnsuitableError as problem:
            reason = str(problem)
            if transport != AUTO:
                raise SparkJoinError(
                    f"transport={name!r} cannot be used: {problem}; pass transport='auto' or another transport"
                ) from problem
            continue
        return carried._replace(remark=f"{name}: {carried.remark or reason}", transport=name)
    raise SparkJoinError(f"no transport can carry these DataFrames: {reason}")
