"""The choice of the transport that carries the rows of a join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.transports import TRANSPORTS
from eddy.spark.transports.base import Carried, RowTask, Transport
from eddy.spark.transports.inputs import UnsuitableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddy.spark.transports.parquet_source import BatchInput

AUTO = "auto"


def check_transport(transport: str) -> None:
    """Raise SparkJoinError for a name that is neither "auto" nor the name of a transport."""
    if transport != AUTO and transport not in TRANSPORTS:
        names = [repr(name) for name in (AUTO, *sorted(TRANSPORTS, reverse=True))]
        raise SparkJoinError(f"transport={transport!r}: pass {', '.join(names[:-1])} or {names[-1]}")


def carry(transport: str, task: RowTask, inputs: Sequence[BatchInput]) -> Carried:
    """Return a DataFrame that runs `task` on its streams; its remark names the transport and the reason of the choice.

    transport   a name, or "auto" for the first transport that can carry every DataFrame
    inputs      batch DataFrames, one for each of `task.streams`

    Raises SparkJoinError if the requested transport cannot carry one of the DataFrames.
    """
    return _carried(transport, lambda carrier: carrier.carry_batch(task, inputs))


def carry_streams(transport: str, task: RowTask, frames: Sequence[DataFrame], root: Path) -> Carried:
    """Return the same as `carry` for streaming DataFrames; `root` is the directory of the checkpoint."""
    return _carried(transport, lambda carrier: carrier.carry_stream(task, frames, root))


def _carried(transport: str, carry_by: Callable[[Transport], Carried]) -> Carried:
    reason = "as asked"
    for name in TRANSPORTS if transport == AUTO else [transport]:
        carrier = TRANSPORTS[name]
        try:
            carried = carry_by(carrier)
        except UnsuitableError as problem:
            reason = str(problem)
            if transport != AUTO:
                raise SparkJoinError(
                    f"transport={name!r} cannot be used: {problem}; pass transport='auto' or another transport"
                ) from problem
            continue
        return carried._replace(remark=f"{name}: {carried.remark or reason}", transport=name)
    raise SparkJoinError(f"no transport can carry these DataFrames: {reason}")
