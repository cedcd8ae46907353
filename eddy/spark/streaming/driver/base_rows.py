"""The distinct rows of the state of a streaming join: key groups share rows that were copied along a class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eddy.placement.shares import Shares
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.state.manifest import GroupState
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.tasks import LoggedRows


def once(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments without those that name the same bytes again, for a copy in another key group."""
    return list({(segment.file, segment.offset): segment for segment in segments}.values())


def base_rows(groups: Mapping[int, GroupState], tree: SplitTree, shares: Shares, streams: set[int]) -> list[LoggedRows]:
    """Return all rows of some streams in the state, each row once, from the first of its copies in key groups."""
    logged = []
    for group, state in sorted(groups.items()):
        first = {stream for stream in streams if tree.is_first(shares, stream, group)}
        for link in state.chain:
            segments = tuple(segment for segment in link.segments if segment.stream in first)
            if segments:
                logged.append(LoggedRows(group, link.late_below, segments))
    return logged
