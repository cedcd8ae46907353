"""The rule by which the watermark of a query follows its rows: the decisive stream, lateness, silent streams."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, get_args

import pyarrow as pa

from eddy.streams.event_time import ticks
from eddy.streams.stream import Stream
from stairs.errors import QueryError

WatermarkOf = Literal["slowest", "fastest"]
"""The stream that the watermark follows."""


class ClockRule(NamedTuple):
    """The rule, with all spans in ticks (docs/guide/semantics.md, "Late rows").

    slowest     whether the watermark follows the slowest stream, and not the fastest
    lateness    per stream, the span by which a row may be older than the newest row of the stream
    idle_after  the span of event time without rows of a stream after which it is idle; None = no stream is ever idle
    """

    slowest: bool
    lateness: tuple[int, ...]
    idle_after: int | None = None

    @property
    def exact(self) -> bool:
        """Whether the watermark is the greatest event time that came, as long as the caller gives no watermark."""
        return not self.slowest and not any(self.lateness)


def checked_watermark(watermark: object, idle_after: object) -> WatermarkOf:
    """Return which stream the watermark follows. Raises QueryError for other values, and an idle_after without use."""
    if watermark not in get_args(WatermarkOf):
        raise QueryError(
            f"watermark={watermark!r}: it follows the 'slowest' stream or the 'fastest'; pass one of these two"
        )
    if watermark == "fastest" and idle_after is not None:
        raise QueryError(
            f"idle_after={idle_after!r} has no effect with watermark='fastest', which waits for no stream; leave it out"
        )
    return watermark  # type: ignore[return-value]


def clock_rule(
    streams: Sequence[Stream],
    time_type: pa.DataType,
    watermark: WatermarkOf,
    lateness: int | timedelta,
    idle_after: int | timedelta | None,
) -> ClockRule:
    """Return the rule for streams with event times. Raises QueryError for spans that are no ticks of `time_type`."""
    spans = [
        ticks(lateness, time_type, None, "lateness")
        if stream.lateness is None
        else ticks(stream.lateness, time_type, None, f"stream {stream.name}, lateness")
        for stream in streams
    ]
    idle = None if idle_after is None else ticks(idle_after, time_type, None, "idle_after")
    return ClockRule(watermark == "slowest", tuple(spans), idle)
