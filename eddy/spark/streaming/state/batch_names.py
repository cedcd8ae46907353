"""The number of a batch as the names of its files begin with it: 12 digits, so that names sort as batches do."""

from __future__ import annotations

import re

from eddy.spark.errors import StreamingStateError

BATCH_DIGITS = 12
_BATCH = re.compile(rf"(\d{{{BATCH_DIGITS}}})(?!\d)")


def batch_name(batch: int) -> str:
    """Return a batch's number in 12 digits. Raises StreamingStateError for one that has none."""
    if not 0 <= batch < 10**BATCH_DIGITS:
        raise StreamingStateError(f"batch {batch}: batches are numbered from 0, with {BATCH_DIGITS} digits at most")
    return f"{batch:0{BATCH_DIGITS}d}"


def batch_of(name: str) -> int | None:
    """Return the batch that a name begins with, None for none."""
    found = _BATCH.match(name)
    return int(found[1]) if found else None


def batch_named(name: str, ending: str = "") -> int | None:
    """Return the batch whose number, with `ending` behind it, is all of a name; None for any other name."""
    batch = batch_of(name)
    return batch if batch is not None and name == batch_name(batch) + ending else None
