"""Batch numbers in the names of files: 12 digits at the beginning, so that names sort in the order of batches."""

from __future__ import annotations

import re

from eddy.spark.errors import StreamingStateError

BATCH_DIGITS = 12
_BATCH = re.compile(rf"(\d{{{BATCH_DIGITS}}})(?!\d)")


def batch_name(batch: int) -> str:
    """Return a batch number in 12 digits. Raises StreamingStateError for a negative or too large number."""
    if not 0 <= batch < 10**BATCH_DIGITS:
        raise StreamingStateError(f"batch {batch}: batches are numbered from 0, with at most {BATCH_DIGITS} digits")
    return f"{batch:0{BATCH_DIGITS}d}"


def batch_of(name: str) -> int | None:
    """Return the batch at the beginning of a name, None for any other name."""
    match = _BATCH.match(name)
    return int(match[1]) if match else None


def batch_named(name: str, ending: str = "") -> int | None:
    """Return the batch of a name that is exactly its number and `ending`; None for any other name."""
    batch = batch_of(name)
    return batch if batch is not None and name == batch_name(batch) + ending else None
