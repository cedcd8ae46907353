"""Changes of the plan of a simulated cluster: when each was decided, why, and what it was predicted to gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Change:
    """A change of program.

    epoch     the next epoch when it was decided
    version   of the new program
    reason    why
    plan      in words
    before, after   predicted seconds per epoch, under the figures of the change
    at              simulated seconds when it was decided
    """

    epoch: int
    version: int
    reason: str
    plan: str
    before: float
    after: float
    at: float


def change_table(changes: Sequence[Change]) -> pa.Table:
    """Return one row per change. `Change` documents the columns."""
    names = Change.__dataclass_fields__
    kinds = {"epoch": pa.int64(), "version": pa.int64(), "reason": pa.string(), "plan": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in names])
    return pa.table({name: [getattr(one, name) for one in changes] for name in names}, schema=schema)
