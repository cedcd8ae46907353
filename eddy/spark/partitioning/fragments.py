"""Fragments of a key group: rows of one key divided among tasks, although no partitioning by key can divide them.

One stream is *dealt*: each of its rows in the group goes to one fragment, which a hash of the whole row determines.
Rows of the other streams in the group go to all fragments. A result has exactly one row of the dealt stream, and the
fragment of this row has the rows of all other streams. So exactly this fragment finds the result.

    stream R (dealt)       r0 r1 r2 r3      fragment 0: r0 r3     fragment 1: r1 r2
    S, T (replicated)      s0 s1, t0        both: s0 s1, t0

A fragment corresponds to a cell of a grid with one more class, which only the dealt stream has. The hash depends only
on the row, so a row goes to the same fragment in a replay, and when the log is read.

A stream can be dealt only if each result has *exactly one* row of it (`why_undealt`). A stream in a branch cannot be
dealt: whether a left, semi or anti join emits a row depends on all partners of the row, and a fragment has only some of
them. A full outer join has two cores, and each core has results without a row of the other core, so none of its streams
can be dealt. A table is not dealt, because all changes of a row have to meet. Windows of event time do not depend on
the other rows in an engine, and streaming joins have no other windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.keys import KeyEncoder
from eddy.query.query import Query
from eddy.streams.key_types import unified
from eddy.streams.keyed import KeyedInput
from stairs.kernels.stable_hashes import mix_words


class Dealt(NamedTuple):
    """A key group in fragments.

    group   the key group, which is the first fragment
    stream  position of the stream whose rows are dealt; rows of the other streams are in each fragment
    parts   number of fragments
    """

    group: int
    stream: int
    parts: int


def why_undealt(query: Query, stream: int) -> str | None:
    """Return why the rows of a stream cannot be dealt to fragments; None if they can be dealt."""
    if isinstance(query.streams[stream], KeyedInput):
        return f"{query.streams[stream].name} is a table: all changes of a row have to meet"
    if query.branches:
        if len(query.cores) > 1:
            return "a full outer join has results without a row of any one stream"
        if stream not in query.cores[0].streams:
            name = query.streams[stream].name
            return f"stream {name} is in a branch: its rows in one fragment do not tell who has no partner at all"
    return None


def row_hashes(rows: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Return a hash of each row, uint64[rows], from all columns whose type can be a key. O(rows * columns)."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        key_type = unified([kind])
        if key_type is not None:
            column_hashes, _ = KeyEncoder("", [[name]], [key_type]).hashes(rows)
            mix_words(column_hashes.view(np.int64), hashes)
    return hashes


def keep_part(rows: pa.RecordBatch, parts: int, part: int, keep: npt.NDArray[np.bool_]) -> None:
    """Clear `keep` bool[rows] of the rows that are dealt to other fragments than number `part` of `parts`."""
    coordinate = (row_hashes(rows) >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)
    keep &= coordinate == np.uint64(part)
