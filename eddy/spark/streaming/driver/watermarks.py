"""Which rows of the next batch are late, and what the engines may forget.

Time passes for the job from batch to batch: the marks of a batch follow from the batches before it only. So a row is
late or not whatever the number of partitions, and a batch that is run again decides as it did the first time.

    lateness 5      greatest R    greatest S    marks for the next batch
                                                slowest       per-source     engines forget by
    batch 0         100           40            R 35, S 35    R 95, S 35     35
    batch 1         120           90            R 85, S 85    R 115, S 85    85

"slowest": one watermark for all streams, that of the stream farthest behind. "per-source": a stream is measured against
its own rows, which finds late rows of a fast stream sooner; engines still wait for the slowest, since its rows may
match old ones of the others.

A source that is silent holds the watermark where it is. With `idle_after_s` it does so for that long only; then the
others go on without it, and what it sends later is late if it is older than what the engines have forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from eddy.query.numbers import whole
from eddy.spark.errors import SparkJoinError
from eddy.storage.json_form import FormError, fields, finite, integer, list_of, optional

if TYPE_CHECKING:
    from eddy.query.query import Query

Policy = Literal["slowest", "per-source"]
LEAST = -(1 << 63)
"""The mark of a stream that has none: no event time is older."""
_TICK = optional(integer(LEAST, -LEAST - 1))
_FORM = fields(
    {
        "greatest": list_of(_TICK),
        "rows_at": list_of(optional(finite())),
        "marks": list_of(_TICK),
        "engine": _TICK,
        "begun_at": optional(finite()),
        "last_at": optional(finite()),
    }
)


@dataclass(frozen=True)
class WatermarkRules:
    """How marks follow from event times.

    policy        "slowest": one watermark for all streams; "per-source": each stream has its own mark
    lateness      per stream, ticks of the common time type that a row may be older than the greatest before its batch
    idle_after_s  seconds of processing time without rows after which a source holds nothing back; None: it always does
    """

    policy: Policy
    lateness: tuple[int, ...]
    idle_after_s: float | None = None

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise SparkJoinError(f"watermark={self.policy!r}: it is one of {', '.join(map(repr, get_args(Policy)))}")
        for stream, ticks in enumerate(self.lateness):
            if ticks < 0:
                raise SparkJoinError(f"lateness of stream number {stream}: {ticks} is negative; give 0 or more ticks")
        if self.idle_after_s is not None and not 0 < self.idle_after_s < math.inf:
            raise SparkJoinError(
                f"idle_after={self.idle_after_s!r}: give a time above 0, or None if a silent source is to be waited for"
            )


@dataclass(frozen=True)
class Watermarks:
    """The state after some batches; it never changes, `after` gives the next one.

    Sequences have one entry per stream, event times are ticks of the common time type, the rest seconds since epoch.

    greatest   the greatest event time that arrived; None before the first row
    rows_at    when the stream last had rows; None before the first
    marks      a row older than this is late; None while none is
    engine     no later row that is not late is older than this, over all streams; None while nothing is known
    begun_at   when the first batch was
    last_at    when the newest batch was
    """

    greatest: tuple[int | None, ...]
    rows_at: tuple[float | None, ...]
    marks: tuple[int | None, ...]
    engine: int | None = None
    begun_at: float | None = None
    last_at: float | None = None

    @classmethod
    def none(cls, streams: int) -> Watermarks:
        """Return the state before the first batch."""
        nothing = (None,) * streams
        return cls(nothing, nothing, nothing)

    @property
    def late_below(self) -> tuple[int, ...] | None:
        """Per stream, a row of the next batch is late iff its event time is less than this.

        None while no row can be late; the least int64 for a single stream of which that is true.
        """
        if all(mark is None for mark in self.marks):
            return None
        return tuple(LEAST if mark is None else mark for mark in self.marks)

    def after(self, batch_greatest: Sequence[int | None], now_s: float, rules: WatermarkRules) -> Watermarks:
        """Return the state after a batch at processing time `now_s` (seconds since epoch).

        `batch_greatest` has the greatest event time of each stream in the batch, late rows counted, None for a stream
        without rows. In a query without a RANGE window no row is late: give None for every stream. O(streams).
        """
        streams = len(self.greatest)
        for what, given in (("greatest event times", batch_greatest), ("spans of lateness", rules.lateness)):
            if len(given) != streams:
                raise SparkJoinError(f"{len(given)} {what} for {streams} streams; give one per stream, as in the query")
        begun = now_s if self.begun_at is None else self.begun_at
        rows_at = tuple(old if new is None else now_s for old, new in zip(self.rows_at, batch_greatest, strict=True))
        greatest = tuple(_later(old, new) for old, new in zip(self.greatest, batch_greatest, strict=True))
        # What each stream promises by itself; None from one that has promised nothing.
        own = [
            None if most is None else max(LEAST, most - ticks)
            for most, ticks in zip(greatest, rules.lateness, strict=True)
        ]

        def waited_for(stream: int) -> bool:
            if batch_greatest[stream] is not None or rules.idle_after_s is None:
                return True
            last = rows_at[stream]
            return now_s - (begun if last is None else last) < rules.idle_after_s

        if rules.policy == "per-source":
            # A mark that went ahead while its source was idle, or under other rules, stays ahead.
            own = [_later(old, new) for old, new in zip(self.marks, own, strict=True)]
        held = [own[stream] for stream in range(streams) if waited_for(stream)]
        known = [mark for mark in held if mark is not None]
        engine = self.engine
        if known and len(known) == len(held):
            engine = _later(engine, min(known))
        marks = own if rules.policy == "per-source" else list(self.marks)
        # What the engines forgot cannot be matched: no stream may go on sending what is older.
        return Watermarks(greatest, rows_at, tuple(_later(mark, engine) for mark in marks), engine, begun, now_s)

    def resumed(self, now_s: float) -> Watermarks:
        """Return the state for a job that starts again at `now_s`: the time it stood still makes no source idle.

        Without this a source whose rows waited while the job was down would count as silent for as long.
        """
        if self.begun_at is None or self.last_at is None:
            return self
        stood = max(0.0, now_s - self.last_at)
        return replace(
            self,
            rows_at=tuple(None if at is None else at + stood for at in self.rows_at),
            begun_at=self.begun_at + stood,
            last_at=self.last_at + stood,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state as objects that JSON has."""
        return {
            "greatest": list(self.greatest),
            "rows_at": list(self.rows_at),
            "marks": list(self.marks),
            "engine": self.engine,
            "begun_at": self.begun_at,
            "last_at": self.last_at,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Watermarks:
        """Return the state that `to_json` described. Raises SparkJoinError naming the part that is not as written."""
        try:
            _FORM(data, "watermarks")
            lengths = {name: len(data[name]) for name in ("greatest", "rows_at", "marks")}
            if len(set(lengths.values())) > 1:
                raise FormError(f"watermarks have one entry per stream each, not {lengths}")
        except FormError as problem:
            raise SparkJoinError(
                f"{problem}; the file they were read from is damaged or of another version"
            ) from problem
        return cls(
            tuple(data["greatest"]),
            tuple(data["rows_at"]),
            tuple(data["marks"]),
            data["engine"],
            data["begun_at"],
            data["last_at"],
        )


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else int(other)  # NumPy's integers are none that JSON has
    return max(one, int(other))


def make_rules(
    query: Query,
    watermark: Policy = "slowest",
    lateness: timedelta | int | Mapping[str, timedelta | int] | None = None,
    idle_after: timedelta | float | None = None,
) -> WatermarkRules:
    """Return the rules for a query.

    watermark   "slowest" or "per-source"
    lateness    a timedelta, or ticks of the common time type; a mapping from names of streams to such, in which streams
                left out have the query's own lateness; None: the query's lateness for all
    idle_after  how long a source may be silent before it holds nothing back: a timedelta or seconds; None: for ever

    Raises SparkJoinError, or QueryError for a span that is no whole number of ticks; naming the stream and the value.
    """
    names = [stream.name for stream in query.streams]
    spans: dict[str, timedelta | int] = {}
    if isinstance(lateness, Mapping):
        for name, span in lateness.items():
            if name not in names:
                raise SparkJoinError(f"lateness: there is no stream {name!r}; the streams are {', '.join(names)}")
            spans[name] = span
    elif lateness is not None:
        spans = dict.fromkeys(names, lateness)
    ticks = dict.fromkeys(names, query.graph.lateness)
    for name, span in spans.items():
        ticks[name] = _span_ticks(query, name, span)
    idle = idle_after.total_seconds() if isinstance(idle_after, timedelta) else idle_after
    if idle is not None and (isinstance(idle, bool) or not isinstance(idle, int | float | np.integer)):
        raise SparkJoinError(f"idle_after={idle_after!r}: give a timedelta, or seconds as a number")
    return WatermarkRules(watermark, tuple(ticks[name] for name in names), None if idle is None else float(idle))


def _span_ticks(query: Query, name: str, span: timedelta | int) -> int:
    what = f"lateness of stream {name}"
    number = span if isinstance(span, timedelta) else whole(span)
    if number is None:
        raise SparkJoinError(f"{what}: {span!r} is neither a timedelta nor a whole number of ticks")
    span = number
    if (span < timedelta(0)) if isinstance(span, timedelta) else (span < 0):
        raise SparkJoinError(f"{what}: {span} is negative; give 0 if no row may be older than those before its batch")
    if span and not query.graph.timed:
        raise SparkJoinError(f"{what}: {span} without a RANGE window: only event-time windows have late rows")
    return query.ticks(span, None, what) if query.graph.timed else 0
