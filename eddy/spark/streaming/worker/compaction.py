"""Shortens chains: many small segments, with rows that are late or dead among them, become few without such rows.

A row of stream s with event time t is *dead* once frontier - t > spans[s]: the frontier promises that no later arrival
is older, so none can have it in its window. `spans[s]` is the RANGE of the stream in ticks, None for an unbounded one,
whose rows never die. What is dropped here the engine would drop when it rebuilds its windows; a chain means the same
before and after.

When it pays (`part`). Rewriting the whole chain each time it got a few links costs every row again and again. So links
are merged as in a log-structured merge tree: the last links of a chain, from the first one on that is not larger than
all behind it, once they are MERGED links or hold MERGED_SEGMENTS small segments more than need be. A row is rewritten
only into a link twice as large, so about log2(rows of the group / rows of a batch) times, and a chain has about as many
links, plus MERGED. And all of a chain is rewritten when half of its rows are dead by estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from eddy.spark.partitioning.split import BLOB_BYTES, BLOB_ROWS
from eddy.spark.streaming.state.manifest import Link
from eddy.spark.streaming.state.segments import Segment, SegmentReader, SegmentWriter

MERGED = 8
MERGED_SEGMENTS = 64
DEAD_ROWS = 4096  # fewer are not worth a new file

Positions = Callable[[pa.RecordBatch, int], np.ndarray | None]
"""(rows, stream) -> event time of each row in ticks, int64[n]; None when the query has no event times."""
Chain = tuple[Link, ...]


def compact(
    reader: SegmentReader,
    chain: Sequence[Link],
    schemas: Sequence[pa.Schema],
    positions: Positions,
    frontier: int | None,
    spans: Sequence[int | None],
    writer: SegmentWriter,
    group: int,
) -> Link:
    """Write the live rows of adjacent links of a key group as one link; return it, with the batch of the last one.

    chain      one link or more: a whole chain or a part of it (`chain[part(…)]`)
    schemas    per stream, as the reader has them
    positions  `Job.positions`
    spans      per stream its RANGE in ticks, None for an unbounded one
    frontier   no later arrival has an event time below it, None when nothing is known
    writer     its file holds the segments once the caller has called `finish`; it may take other groups as well

    Per stream the rows are sorted by event time, equal ones in the order they came, in segments of up to 65 536 rows or
    about 8 MB. Cost: one read of the segments that are not dead as a whole; memory for the rows of one stream, twice.
    Raises StreamingStateError for segments that cannot be read.
    """
    written: list[Segment] = []
    for stream in range(len(schemas)):
        parts, times = [], []
        dead_below = _dead_below(frontier, spans[stream])
        for link in chain:
            below = _least(dead_below, link.late_below, stream)
            for segment in link.segments:
                if segment.stream != stream or _is_below(segment, below):
                    continue
                rows = reader.read(segment)
                own = positions(rows, stream)
                if own is not None:
                    if below is not None and not (live := own >= below).all():
                        rows, own = rows.filter(pa.array(live)), own[live]
                    times.append(own)
                if rows.num_rows:
                    parts.append(rows)
        if parts:
            merged = pa.concat_batches(parts)
            written += _write(merged, np.concatenate(times) if times else None, writer, group, stream)
    return Link(chain[-1].batch, None, tuple(written))


def prune(chain: Chain, frontier: int | None, spans: Sequence[int | None]) -> Chain:
    """Return the chain without segments no row of which can be matched, and without links that have none left.

    Reads nothing. O(segments); the very same chain when nothing goes.
    """
    left: list[Link] = []
    same = True
    for link in chain:
        live = tuple(one for one in link.segments if not _is_gone(link, one, frontier, spans))
        same = same and bool(live) and len(live) == len(link.segments)
        if live:
            left.append(link if len(live) == len(link.segments) else Link(link.batch, link.late_below, live))
    return chain if same else tuple(left)


def part(chain: Chain, frontier: int | None = None, spans: Sequence[int | None] = ()) -> slice | None:
    """Return which links should become one now, None for none; the rule stands at the top. O(segments).

    Without `spans` no row counts as dead. With `chain[part]` compacted to `link` the chain is
    `(*chain[: part.start], link, *chain[part.stop :])`.
    """
    rows = [sum(segment.rows for segment in link.segments) for link in chain]
    dead = sum(_dead_rows(link, segment, frontier, spans) for link in chain for segment in link.segments)
    if dead >= DEAD_ROWS and 2 * dead >= sum(rows):
        return slice(0, len(chain))
    begin, behind = max(0, len(chain) - 1), 0
    for i in range(len(chain) - 1, -1, -1):
        if rows[i] <= behind:
            begin = i
        behind += rows[i]
    merged = chain[begin:]
    if len(merged) >= MERGED or _spare_segments(merged) >= MERGED_SEGMENTS:
        return slice(begin, len(chain))
    return None


def _write(
    rows: pa.RecordBatch,
    times: np.ndarray | None,
    writer: SegmentWriter,
    group: int,
    stream: int,
) -> list[Segment]:
    if times is not None and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        rows, times = rows.take(pa.array(order)), times[order]
    # As large as a blob on its way to a worker: one must fit beside others.
    step = max(1, min(BLOB_ROWS, BLOB_BYTES * rows.num_rows // max(1, rows.nbytes)))
    written = []
    for low in range(0, rows.num_rows, step):
        piece = rows.slice(low, step)
        first, last = (0, 0) if times is None else (int(times[low]), int(times[low + piece.num_rows - 1]))
        written.append(writer.add(group, stream, piece, first, last))
    return written


def _dead_below(frontier: int | None, span: int | None) -> int | None:
    """Return the event time below which rows are dead, None when none are."""
    return None if frontier is None or span is None else frontier - span


def _least(dead_below: int | None, late_below: tuple[int, ...] | None, stream: int) -> int | None:
    """Return the event time from which on rows are neither dead nor late, None for all of them."""
    if late_below is None:
        return dead_below
    return late_below[stream] if dead_below is None else max(dead_below, late_below[stream])


def _is_below(segment: Segment, below: int | None) -> bool:
    return below is not None and segment.last < below


def _is_gone(link: Link, segment: Segment, frontier: int | None, spans: Sequence[int | None]) -> bool:
    return _is_below(segment, _least(_dead_below(frontier, spans[segment.stream]), link.late_below, segment.stream))


def _dead_rows(link: Link, segment: Segment, frontier: int | None, spans: Sequence[int | None]) -> int:
    """Estimate how many rows of a segment are dead or late, as if they were spread evenly over its time."""
    span = spans[segment.stream] if spans else None
    below = _least(_dead_below(frontier, span), link.late_below, segment.stream)
    if below is None or below <= segment.first:
        return 0
    if below > segment.last:
        return segment.rows
    return segment.rows * (below - segment.first) // (segment.last - segment.first + 1)


def _spare_segments(chain: Sequence[Link]) -> int:
    """Return about how many segments fewer the links would have as one: those less than half as large as they may be.

    None in a link that compaction wrote, whatever its segments look like: all of them are in one file.
    """
    segments = [segment for link in chain for segment in link.segments]
    if len({one.file for one in segments}) < 2:
        return 0
    small = [one.stream for one in segments if 2 * one.rows <= BLOB_ROWS and 2 * one.length <= BLOB_BYTES]
    return len(small) - len(set(small))
