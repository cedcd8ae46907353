"""Changes of the plan of a simulated cluster: the time, the reason and the predicted gain of each change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class ProgramChange:
    """A change of program.

    epoch     the next epoch at the time of the decision
    version   version of the new program
    reason    reason of the change
    plan      the new plan as text
    before, after   predicted seconds per epoch, with the figures at the time of the change
    at              simulated seconds at the time of the decision
    """

    epoch: int
    version: int
    reason: str
    plan: str
    before: float
    after: float
    at: float


def change_table(changes: Sequence[ProgramChange]) -> pa.Table:
    """Return one row per change. `ProgramChange` documents the columns."""
    names = ProgramChange.__dataclass_fields__
    kinds = {"epoch": pa.int64(), "version": pa.int64(), "reason": pa.string(), "plan": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in names])
    return pa.table({name: [getattr(change, name) for change in changes] for name in names}, schema=schema)
