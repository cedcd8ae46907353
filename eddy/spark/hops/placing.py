"""The placement of the steps of a join: one round over a grid, several hops, or a choice by predicted costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.operators import why_unplaced

Placement = Literal["grid", "hops", "auto"] | Mapping[str, Sequence[tuple[str, str]]]
"""`placement` of `eddy.spark.join`."""
KINDS = ("grid", "hops", "auto")


def check_placement(placement: object) -> None:
    """Raise SparkJoinError for a value that is no placement."""
    if not isinstance(placement, Mapping) and not (isinstance(placement, str) and placement in KINDS):
        raise SparkJoinError(
            f'placement={placement!r}: pass "grid", "hops", "auto", or {{head: [(stream, "ship" or "window"), …]}}'
        )


def why_one_round(query: Query, job: Job) -> str | None:
    """Return why a join can only run in one round; None if it can run in hops."""
    if job.options.max_bytes is not None:
        return "max_bytes= bounds engines, and hops have none"
    return why_unplaced(query)
