"""The event time of a result: the greatest event time of its components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.words import Mask, raw_words, valid_rows
from eddy.ingest.keys import unified_column
from stairs.plain_types import Column

Int64s = npt.NDArray[np.int64]
_BEFORE = np.iinfo(np.int64).min


def event_times(columns: Sequence[Column], kind: pa.DataType) -> tuple[Int64s, Mask]:
    """Return the greatest time of each row over some columns, in ticks of a type, and a mask of rows with one.

    kind   the common time type of the query
    """
    n = len(columns[0])
    times, known = np.full(n, _BEFORE, np.int64), np.zeros(n, np.bool_)
    for column in columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        ticks = [raw_words(unified_column(chunk, kind, "event time of a result")) for chunk in chunks]
        valid = valid_rows(column)
        np.maximum(times, np.where(valid, np.concatenate([np.zeros(0, np.int64), *ticks]), _BEFORE), out=times)
        known |= valid
    times[~known] = 0
    return times, known
