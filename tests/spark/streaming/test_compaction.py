"""Compaction does not change the meaning of a chain, and it costs little."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.spark.partitioning.pieces import PIECE_ROWS
from eddy.spark.streaming.state.compaction import DEAD_ROWS, MERGED, MERGED_SEGMENTS, Horizon, compact, part, prune
from eddy.spark.streaming.state.manifest import ManifestLink
from eddy.spark.streaming.state.segments import SegmentReader, SegmentWriter
from tests.spark.streaming.manifests import make_segment

SCHEMA = pa.schema([("t", pa.int64()), ("n", pa.int32()), ("s", pa.string())])
SCHEMAS = (SCHEMA, SCHEMA)
ENDLESS = Horizon(None, (None, None))
Row = tuple[int, int, int]
"""(stream, event time, number)"""


def times_of(rows: pa.RecordBatch, stream: int) -> np.ndarray:
    return rows.column("t").to_numpy()


def no_times(rows: pa.RecordBatch, stream: int) -> None:
    return None


def batch(rows: Sequence[tuple[int, int]], wide: int = 1) -> pa.RecordBatch:
    columns = {"t": [t for t, _ in rows], "n": [n for _, n in rows], "s": ["x" * wide] * len(rows)}
    return pa.record_batch(columns, schema=SCHEMA)


def live_rows(
    reader: SegmentReader, chain: Sequence[ManifestLink], frontier: int | None, spans: Sequence[int | None]
) -> Counter[Row]:
    """Return the rows that are neither late nor dead, by definition."""
    counts: Counter[Row] = Counter()
    for link in chain:
        for segment in link.segments:
            s, span = segment.stream, spans[segment.stream]
            for row in reader.read(segment).to_pylist():
                late = link.late_below is not None and row["t"] < link.late_below[s]
                dead = frontier is not None and span is not None and frontier - row["t"] > span
                if not late and not dead:
                    counts[s, row["t"], row["n"]] += 1
    return counts


TIMES = st.integers(0, 40)
LINKS = st.tuples(
    st.none() | st.tuples(TIMES, TIMES),
    st.lists(st.tuples(st.integers(0, 1), st.lists(TIMES, min_size=1, max_size=6).map(sorted)), max_size=4),
)


@settings(max_examples=50)
@given(
    st.lists(LINKS, min_size=1, max_size=5),
    st.none() | TIMES,
    st.tuples(*[st.none() | st.integers(0, 20)] * 2),
    st.none() | TIMES,
)
def test_a_chain_means_the_same_before_and_after(
    links: list[tuple[tuple[int, int] | None, list[tuple[int, list[int]]]]],
    frontier: int | None,
    spans: tuple[int | None, ...],
    later: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as place:
        log, number, chain = Path(place), 0, []
        for b, (late_below, pieces) in enumerate(links):
            with SegmentWriter(log, f"{b:012d}.log") as writer:
                for stream, times in pieces:
                    rows = [(t, number := number + 1) for t in times]
                    writer.add(3, stream, batch(rows), times[0], times[-1])
                chain.append(ManifestLink(b, late_below, tuple(writer.finish())))
        whole, horizon = tuple(chain), Horizon(frontier, spans)
        with SegmentReader(log, SCHEMAS) as reader:
            expected = live_rows(reader, whole, frontier, spans)
            pruned = prune(whole, horizon)
            assert live_rows(reader, pruned, frontier, spans) == expected
            assert prune(pruned, horizon) is pruned
            for link in whole:
                if not prune((link,), horizon):
                    assert not live_rows(reader, [link], frontier, spans)
            assert (pruned is whole) == (pruned == whole)
            with SegmentWriter(log, f"{99:012d}.log") as writer:
                link = compact(reader, whole, times_of, horizon, writer, 3)
                assert writer.finish() == list(link.segments)
            assert (link.batch, link.late_below) == (len(links) - 1, None)
            # No late or dead row is left in it.
            assert live_rows(reader, [link], None, spans) == expected
            for segment in link.segments:
                assert segment.group == 3
                times = reader.read(segment).column("t").to_pylist()
                assert times == sorted(times)
                assert (segment.first, segment.last) == (times[0], times[-1])
            assert len({segment.stream for segment in link.segments}) == len(link.segments)
            if later is not None and (frontier is None or later >= frontier):
                assert live_rows(reader, [link], later, spans) == live_rows(reader, whole, later, spans)


def test_without_event_times_all_rows_stay(tmp_path: Path) -> None:
    chain = []
    for b in range(3):
        with SegmentWriter(tmp_path, f"{b:012d}.log") as writer:
            writer.add(0, b % 2, batch([(9 - b, b)]), 0, 0)
            chain.append(ManifestLink(b, None, tuple(writer.finish())))
    with SegmentReader(tmp_path, SCHEMAS) as reader, SegmentWriter(tmp_path, f"{5:012d}.log") as writer:
        link = compact(reader, chain, no_times, ENDLESS, writer, 0)
        writer.finish()
        assert [(segment.stream, segment.rows, segment.first, segment.last) for segment in link.segments] == [
            (0, 2, 0, 0),
            (1, 1, 0, 0),
        ]
        assert reader.read(link.segments[0]).column("n").to_pylist() == [0, 2]


@pytest.mark.parametrize(
    ("rows", "wide", "segments"), [(PIECE_ROWS, 1, 1), (PIECE_ROWS + 1, 1, 2), (2_000, 20_000, 5), (3, 9 << 20, 3)]
)
def test_segments_have_a_greatest_size(tmp_path: Path, rows: int, wide: int, segments: int) -> None:
    with SegmentWriter(tmp_path, f"{0:012d}.log") as writer:
        writer.add(0, 0, batch([(n, n) for n in range(rows)], wide), 0, rows - 1)
        chain = [ManifestLink(0, None, tuple(writer.finish()))]
    with SegmentReader(tmp_path, SCHEMAS) as reader, SegmentWriter(tmp_path, f"{1:012d}.log") as writer:
        link = compact(reader, chain, times_of, ENDLESS, writer, 0)
        writer.finish()
        assert len(link.segments) == segments
        numbers = [n for segment in link.segments for n in reader.read(segment).column("n").to_pylist()]
        assert numbers == list(range(rows))
        assert part((link,), ENDLESS) is None


def test_dead_segments_are_not_read(tmp_path: Path) -> None:
    chain = (
        ManifestLink(0, None, (make_segment("gone.log", first=0, last=9),)),
        ManifestLink(1, (50, 0), (make_segment("gone.log"),)),
    )
    with SegmentReader(tmp_path, SCHEMAS) as reader, SegmentWriter(tmp_path, f"{1:012d}.log") as writer:
        link = compact(reader, chain, times_of, Horizon(30, (20, None)), writer, 0)
        assert writer.finish() == []
    assert link == ManifestLink(1, None, ())
    assert prune((link,), ENDLESS) == ()


@pytest.mark.parametrize(("frontier", "gone"), [(29, False), (30, True)])
def test_a_window_includes_its_end(frontier: int, gone: bool) -> None:
    link = ManifestLink(0, None, (make_segment("a", last=9),))
    assert prune((link,), Horizon(frontier, (20, None))) == (() if gone else (link,))
    assert prune((link,), Horizon(frontier, (None, None))) == (link,)


def test_a_link_that_dies_in_part() -> None:
    dead, live = make_segment("a", stream=0, last=9), make_segment("a", stream=1, last=9)
    chain = (ManifestLink(0, (1, 2), (dead, live)), ManifestLink(1, None, (live,)))
    assert prune(chain, Horizon(100, (20, None))) == (ManifestLink(0, (1, 2), (live,)), chain[1])


# --- when to compact --------------------------------------------------------------------------------------------------


def test_short_chains_stay() -> None:
    assert part((), ENDLESS) is None
    assert part(tuple(ManifestLink(b, None, (make_segment(f"{b}"),)) for b in range(MERGED - 1)), ENDLESS) is None
    assert part(tuple(ManifestLink(b, None, (make_segment(f"{b}"),)) for b in range(MERGED)), ENDLESS) == slice(
        0, MERGED
    )


def test_a_large_link_is_left_alone() -> None:
    large = ManifestLink(0, None, (make_segment("large", rows=1000),))
    small = tuple(ManifestLink(b, None, (make_segment(f"{b}"),)) for b in range(1, MERGED + 1))
    assert part((large, *small), ENDLESS) == slice(1, MERGED + 1)


def test_a_batch_of_many_tasks() -> None:
    tasks = tuple(make_segment(f"{task}") for task in range(MERGED_SEGMENTS + 1))
    large = ManifestLink(0, None, (make_segment("large", rows=10**6),))
    assert part((large, ManifestLink(1, None, tasks)), ENDLESS) == slice(1, 2)
    assert part((large, ManifestLink(1, None, tasks[1:])), ENDLESS) is None
    # Segments that compaction wrote are as large as possible.
    assert part((ManifestLink(1, None, (make_segment("one"),) * 999),), ENDLESS) is None


def test_dead_rows_alone_make_it_pay() -> None:
    rows = 2 * DEAD_ROWS
    chain = tuple(ManifestLink(b, None, (make_segment(f"{b}", rows=rows, first=0, last=99),)) for b in range(2))
    assert part(chain, ENDLESS) is None
    assert part(chain, Horizon(60, (20, None))) is None
    assert part(chain, Horizon(70, (20, None))) == slice(0, 2)
    assert part(chain, Horizon(70, (None, None))) is None


@pytest.mark.parametrize("expiry", [None, 100])
def test_what_it_costs_over_time(expiry: int | None) -> None:
    """Over many batches chains stay short, and each row is rewritten only a few times."""
    batches, rows = 600, 100
    chain: tuple[ManifestLink, ...] = ()
    longest = rewritten = 0
    for b in range(batches):
        chain = (*chain, ManifestLink(b, None, (make_segment(f"{b}", rows=rows, first=b, last=b),)))
        if expiry is not None:
            chain = prune(chain, Horizon(b, (expiry, None)))
        longest = max(longest, len(chain))
        chosen = part(chain, Horizon(b, (expiry, None)))
        if chosen is not None:
            segments = [segment for link in chain[chosen] for segment in link.segments]
            total = sum(segment.rows for segment in segments)
            first = segments[0].first if expiry is None else max(segments[0].first, b - expiry)
            left = total if expiry is None else min(total, (b - first + 1) * rows)
            rewritten += left
            merged = make_segment(f"merged {b}", rows=left, first=first, last=b)
            chain = (*chain[: chosen.start], ManifestLink(b, None, (merged,)), *chain[chosen.stop :])
    assert longest <= MERGED + 10
    assert rewritten <= 8 * batches * rows
    assert sum(segment.rows for link in chain for segment in link.segments) <= rows * (
        batches if expiry is None else 2.5 * expiry
    )
