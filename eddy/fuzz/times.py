"""The event times of a case as the engine gets them: the numbers of the case, or as many seconds as timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from eddy.streams.windows import Range, Window

UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class CaseTimes:
    """The unit of the timestamps of each stream; without units, event times are integers.

    The oracles know numbers only. So windows, spans and event times mean the same in all units.
    """

    units: tuple[str, ...] = ()

    def kind(self, stream: int) -> pa.DataType:
        """Return the type of the event times of a stream."""
        return pa.timestamp(self.units[stream]) if self.units else pa.int64()

    def finest(self, streams: list[int] | None = None) -> int:
        """Return the number of the finest unit of some streams, or of all."""
        chosen = self.units if streams is None or not self.units else [self.units[i] for i in streams]
        return max(map(UNITS.index, chosen), default=0)

    def moment(self, stream: int, time: int) -> int:
        """Return an event time in the unit of a stream."""
        return time * 1000 ** UNITS.index(self.units[stream]) if self.units else time

    def ticks(self, time: int | None, streams: list[int] | None = None) -> int | None:
        """Return an event time in the finest unit of some streams, or of all; None for None."""
        return None if time is None else time * 1000 ** self.finest(streams)

    def span(self, count: int) -> int | timedelta:
        """Return a span of event time."""
        return timedelta(seconds=count) if self.units else count

    def window(self, window: Window | None) -> Window | None:
        """Return a window of a case."""
        return Range(self.span(window.d)) if isinstance(window, Range) and isinstance(window.d, int) else window

    def later(self, count: int, column: str) -> str:
        """Return what a predicate adds to a column, as text."""
        if not self.units or column != "t":
            return f" + {count}"
        return "" if not count else f" {'-' if count < 0 else '+'} INTERVAL '{abs(count)}' SECOND"

    def timing(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a query that decide the watermark."""
        spans = {name: self.span(value) for name, value in options.items() if isinstance(value, int)}
        return {**options, **spans}


def type_text(kind: pa.DataType) -> str:
    """Return a type as a script makes it.

    >>> type_text(pa.timestamp("ms")), type_text(pa.int64())
    ("pa.timestamp('ms')", 'pa.int64()')
    """
    return f"pa.timestamp({kind.unit!r})" if pa.types.is_timestamp(kind) else f"pa.{kind}()"
