"""Compaction: turns many small segments of a chain into a few large ones, without late and dead rows.

Of a table, a change that a newer change of its key among the merged ones replaces is dead, too, and so is a version of
a versioned table that a newer one among them ends before each event time for which a row may still ask.

A row of stream s with event time t is *dead* once frontier - t > spans[s] (`Horizon`): the frontier guarantees that no
later arrival is older, so no later result depends on the row. An engine that rebuilds its state would forget the same
rows, so compaction does not change the meaning of a chain.

Rule (`part`): a rewrite of the whole chain every few links would rewrite each row many times. So links are merged as in
a log-structured merge tree. The candidates are the last links of a chain, from the first link that is not larger than
all later links together. They are merged once they are MERGED links, or have MERGED_SEGMENTS more small segments than
needed. A row moves only into a link twice as large, so it is rewritten about log2(rows of the group / rows of a batch)
times. A chain has about that many links, plus MERGED. In addition, the whole chain is rewritten once an estimated half
of its rows are dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from eddy.spark.partitioning.pieces import PIECE_BYTES, PIECE_ROWS
from eddy.spark.streaming.state.manifest import ManifestLink
from eddy.spark.streaming.state.segments import Segment, SegmentReader, SegmentWriter

MERGED = 8
MERGED_SEGMENTS = 64
DEAD_ROWS = 4096  # fewer links do not justify a new file

Positions = Callable[[pa.RecordBatch, int], np.ndarray | None]
"""(rows, stream) -> event time of each row in ticks, int64[n]; None when the query has no event times."""
Restrict = Callable[[Segment, pa.RecordBatch], pa.RecordBatch]
"""(segment, its rows) -> the rows that belong to the key group, since a segment may be older than a split."""
Chosen = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Rows of a stream -> those among them that count, or all of them in another order."""
Chain = tuple[ManifestLink, ...]


@dataclass(frozen=True)
class Horizon:
    """The event times before which rows are dead.

    frontier   event time below which no later arrival comes; None if it is unknown
    spans      `Query.spans`: the RANGE of each stream in ticks, more in a query with branches; None for a stream whose
               rows never die
    latest     by table, what returns the changes among some that no newer one of their key replaces
    ties       by versioned table, what orders rows of one micro-batch, whose order decides which version is valid
    """

    frontier: int | None
    spans: Sequence[int | None]
    latest: Mapping[int, Chosen] = field(default_factory=dict)
    ties: Mapping[int, Chosen] = field(default_factory=dict)

    def least(self, link: ManifestLink, stream: int) -> int | None:
        """Return the event time below which the rows of a link are dead or late; None if no row is."""
        span = self.spans[stream]
        dead_below = None if self.frontier is None or span is None else self.frontier - span
        if link.late_below is None:
            return dead_below
        return link.late_below[stream] if dead_below is None else max(dead_below, link.late_below[stream])


def compact(
    reader: SegmentReader,
    chain: Sequence[ManifestLink],
    positions: Positions,
    horizon: Horizon,
    writer: SegmentWriter,
    group: int,
    restrict: Restrict | None = None,
    splits: int = 0,
) -> ManifestLink:
    """Write the live rows of adjacent links of a key group as one link; return it, with the batch of the last link.

    chain      one or more links: a whole chain or a part of it (`chain[part(…)]`)
    positions  `Job.positions`
    writer     takes the segments, which are valid after the caller calls `finish`; may take other groups as well
    restrict   None = all rows belong to the key group
    splits     splits of key groups that `restrict` applies

    The rows of each stream are sorted by event time, rows of equal time in order of arrival, in segments of up to
    65 536 rows or about 8 MB. Cost: one read of each segment that is not entirely dead, and twice the memory of one
    stream's rows. Raises StreamingStateError for segments that cannot be read.
    """
    written: list[Segment] = []
    everything = ((link, piece) for link in chain for piece in link.segments)
    reader.expect(piece for link, piece in everything if not _is_below(piece, horizon.least(link, piece.stream)))
    for stream in range(len(horizon.spans)):
        parts = list[pa.RecordBatch]()
        for link in chain:
            below, of_link = horizon.least(link, stream), list[pa.RecordBatch]()
            for segment in link.segments:
                if segment.stream != stream or _is_below(segment, below):
                    continue
                rows = reader.read(segment)
                if restrict is not None:
                    rows = restrict(segment, rows)
                at = None if below is None else positions(rows, stream)
                if at is not None and not (live := at >= below).all():
                    rows = rows.filter(pa.array(live))
                if rows.num_rows:
                    of_link.append(rows)
            if stream in horizon.ties and of_link:
                of_link = [horizon.ties[stream](pa.concat_batches(of_link))]
            parts += of_link
        if parts:
            merged = pa.concat_batches(parts)
            if stream in horizon.latest:
                merged = horizon.latest[stream](merged)
            written += _write(merged, positions(merged, stream), writer, group, stream, splits)
    return ManifestLink(chain[-1].batch, None, tuple(written))


def prune(chain: Chain, horizon: Horizon) -> Chain:
    """Return the chain without segments whose rows are all dead or late, and without links that become empty.

    Reads no file. O(segments). Returns the same object if nothing changes.
    """
    left: list[ManifestLink] = []
    same = True
    for link in chain:
        live = tuple(
            segment for segment in link.segments if not _is_below(segment, horizon.least(link, segment.stream))
        )
        same = same and bool(live) and len(live) == len(link.segments)
        if live:
            left.append(link if len(live) == len(link.segments) else ManifestLink(link.batch, link.late_below, live))
    return chain if same else tuple(left)


def part(chain: Chain, horizon: Horizon) -> slice | None:
    """Return the links to merge now, None if no links are due; the module docstring states the rule. O(segments).

    With `chain[part]` compacted to `link` the chain is `(*chain[: part.start], link, *chain[part.stop :])`.
    """
    rows = [sum(segment.rows for segment in link.segments) for link in chain]
    dead = sum(_dead_rows(segment, horizon.least(link, segment.stream)) for link in chain for segment in link.segments)
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
    splits: int,
) -> list[Segment]:
    if times is not None and (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        rows, times = rows.take(pa.array(order)), times[order]
    # The log stage writes pieces of the same size.
    step = max(1, min(PIECE_ROWS, PIECE_BYTES * rows.num_rows // max(1, rows.nbytes)))
    written = []
    for low in range(0, rows.num_rows, step):
        piece = rows.slice(low, step)
        first, last = (0, 0) if times is None else (int(times[low]), int(times[low + piece.num_rows - 1]))
        written.append(writer.add(group, stream, piece, first, last, splits))
    return written


def _is_below(segment: Segment, below: int | None) -> bool:
    return below is not None and segment.last < below


def _dead_rows(segment: Segment, below: int | None) -> int:
    """Estimate the number of rows of a segment below an event time, assuming that rows are spread evenly over its
    time."""
    if below is None or below <= segment.first:
        return 0
    if below > segment.last:
        return segment.rows
    return segment.rows * (below - segment.first) // (segment.last - segment.first + 1)


def _spare_segments(chain: Sequence[ManifestLink]) -> int:
    """Estimate how many segments a merge of the links would save: those below half of the maximal size.

    A link that compaction wrote has all its segments in one file, and saves none.
    """
    segments = [segment for link in chain for segment in link.segments]
    if len({segment.file for segment in segments}) < 2:
        return 0
    small = [
        segment.stream for segment in segments if 2 * segment.rows <= PIECE_ROWS and 2 * segment.length <= PIECE_BYTES
    ]
    return len(small) - len(set(small))
