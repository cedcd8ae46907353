"""Watermarks: which rows of the next batch are late, and which rows the engines may evict.

Event time advances from batch to batch: the marks of a batch follow only from the batches before it. So whether a row
is late does not depend on the number of partitions, and a replayed batch decides in the same way.

    lateness 5      greatest R    greatest S    marks for the next batch
                                                slowest       per-source     watermark of the engines
    batch 0         100           40            R 35, S 35    R 95, S 35     35
    batch 1         120           90            R 85, S 85    R 115, S 85    85

"slowest": one watermark for all streams, that of the slowest stream. "per-source": each stream has its own mark, which
finds late rows of a fast stream earlier. The engines still wait for the slowest stream, because its rows may match old
rows of the others.

A silent source holds the watermark back. With `idle_after_s` a silent source does so only for that many seconds. Then
the watermark advances without the source, and later rows of the source that are older than the watermark of the engines
are late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from eddy.log import LOG
from eddy.query.host_limits import check_waits
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import StreamingOptions, WatermarkOf
from eddy.streams.numbers import whole
from stairs.graph import FOREVER
from stairs.storage.json_form import FormError, fields, finite, integer, list_of, optional

if TYPE_CHECKING:
    from eddy.query.query import Query

LEAST = -(1 << 63)
"""The mark of a stream without a mark: no event time is older."""
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
    """Rules by which marks follow from event times.

    policy        "slowest": one watermark for all streams; "per-source": each stream has its own mark
    lateness      per stream, ticks by which a row may be older than the greatest event time of earlier batches; None
                  for a table, whose changes have no event time
    idle_after_s  seconds of processing time without rows after which a source no longer holds the watermark back; None
                  = a source always holds the watermark back
    """

    policy: WatermarkOf
    lateness: tuple[int | None, ...]
    idle_after_s: float | None = None


@dataclass(frozen=True)
class Watermarks:
    """The watermarks after a number of batches. Immutable: `after` returns the next state.

    Sequences have one entry per stream. Event times are ticks of the common time type, other times seconds since epoch.

    greatest   greatest event time that arrived; None before the first row
    rows_at    time of the last batch with rows of the stream; None before the first
    marks      rows older than this are late; None while no row can be late
    engine     watermark of the engines: every later row that is not late has at least this event time; None if unknown
    begun_at   time of the first batch
    last_at    time of the newest batch
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
        """Per stream, the event time below which rows of the next batch are late.

        None while no row can be late; the least int64 for a stream without a mark.
        """
        if all(mark is None for mark in self.marks):
            return None
        return tuple(LEAST if mark is None else mark for mark in self.marks)

    def after(self, batch_greatest: Sequence[int | None], now_s: float, rules: WatermarkRules) -> Watermarks:
        """Return the state after a batch at processing time `now_s` (seconds since epoch).

        `batch_greatest` has the greatest event time of each stream in the batch, late rows included; None for a stream
        without rows. Pass None for every stream of a query without RANGE windows, which has no late rows. O(streams).
        """
        streams = len(self.greatest)
        for what, given in (("greatest event times", batch_greatest), ("spans of lateness", rules.lateness)):
            if len(given) != streams:
                raise SparkJoinError(f"{len(given)} {what} for {streams} streams; give one per stream, in query order")
        begun = now_s if self.begun_at is None else self.begun_at
        rows_at = tuple(old if new is None else now_s for old, new in zip(self.rows_at, batch_greatest, strict=True))
        greatest = tuple(_later(old, new) for old, new in zip(self.greatest, batch_greatest, strict=True))
        # The mark that follows from each stream's own rows; None for a stream without rows so far.
        stream_marks = [
            None if most is None or ticks is None else max(LEAST, most - ticks)
            for most, ticks in zip(greatest, rules.lateness, strict=True)
        ]

        def waited_for(stream: int) -> bool:
            if batch_greatest[stream] is not None or rules.idle_after_s is None:
                return True
            last = rows_at[stream]
            return now_s - (begun if last is None else last) < rules.idle_after_s

        if rules.policy == "per-source":
            # A mark never decreases, even if it advanced while its source was idle, or under other rules.
            stream_marks = [_later(old, new) for old, new in zip(self.marks, stream_marks, strict=True)]
        timed = [stream for stream, ticks in enumerate(rules.lateness) if ticks is not None]
        held = [stream_marks[stream] for stream in timed if waited_for(stream)]
        known = [mark for mark in held if mark is not None]
        engine = self.engine
        if known and len(known) == len(held):
            engine = _later(engine, min(known))
        marks = stream_marks if rules.policy == "per-source" else list(self.marks)
        # The engines have evicted rows before their watermark, so older rows of every stream are late.
        passed = tuple(_later(mark, engine) if i in timed else None for i, mark in enumerate(marks))
        return Watermarks(greatest, rows_at, passed, engine, begun, now_s)

    def ended(self) -> Watermarks:
        """Return the state after the end of the input: event time has passed all rows."""
        return replace(self, engine=FOREVER, marks=(FOREVER,) * len(self.marks))

    @property
    def has_ended(self) -> bool:
        """Whether the input has ended."""
        return self.engine == FOREVER

    def resumed(self, now_s: float) -> Watermarks:
        """Return the state for a job that starts again at `now_s`, without the time for which it was stopped.

        Otherwise a source whose rows waited during the stop would count as silent for that time.
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
        """Return the state as JSON objects."""
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
        """Return the state that `to_json` returned. Raises a SparkJoinError that names a part of another form."""
        try:
            _FORM(data, "watermarks")
            lengths = {name: len(data[name]) for name in ("greatest", "rows_at", "marks")}
            if len(set(lengths.values())) > 1:
                raise FormError(f"watermarks need one entry per stream in each list, not {lengths}")
        except FormError as problem:
            raise SparkJoinError(f"{problem}; the file that holds it is damaged or of another version") from problem
        return cls(
            tuple(data["greatest"]),
            tuple(data["rows_at"]),
            tuple(data["marks"]),
            data["engine"],
            data["begun_at"],
            data["last_at"],
        )


def _later(mark: int | None, other: int | None) -> int | None:
    if mark is None or other is None:
        return mark if other is None else int(other)  # JSON has no NumPy integers
    return max(mark, int(other))


def make_rules(
    query: Query, options: StreamingOptions, declared: Mapping[str, timedelta] | None = None
) -> WatermarkRules:
    """Return the rules for a query.

    declared    stream -> delay that `withWatermark` set on its time column

    A stream without a span in `options.lateness` has its own lateness, or that of the query, if this is not 0; else the
    delay declared for the stream; else 0. A warning names a stream whose lateness is not the declared delay.

        Raises a SparkJoinError that names the stream and the value, and QueryError for a span that is not a whole
    number of ticks, and for a query that does not wait for its slowest stream.
    """
    check_waits(
        query,
        "a streaming join waits for the slowest source. Leave it out, and give join(…, idle_after=…) if a source may be"
        " silent",
    )
    names = [stream.name for stream in query.streams]
    lateness, spans = options.lateness, dict[str, timedelta | int]()
    if isinstance(lateness, Mapping):
        for name, span in lateness.items():
            if name not in names:
                raise SparkJoinError(f"lateness: the query has no stream {name!r}; its streams are {', '.join(names)}")
            spans[name] = span
    elif lateness is not None:
        spans = dict.fromkeys(names, lateness)
    ticks = dict(zip(names, query.clock_rule.lateness, strict=True))
    for name, span in spans.items():
        ticks[name] = _span_ticks(query, name, span)
    if query.graph.timed:
        for name, delay in (declared or {}).items():
            delay_ticks = query.ticks(delay, None, f"delay of withWatermark of stream {name}")
            if name not in spans and not ticks[name]:
                ticks[name] = delay_ticks
            elif ticks[name] != delay_ticks:
                LOG.warning(
                    "stream %s: withWatermark declares a delay of %s, and lateness= has another value, which counts: %d"
                    " ticks of the time column; leave one of them out",
                    name,
                    delay,
                    ticks[name],
                )
    tables = query.tables_changing
    spans_of = tuple(None if name in tables else ticks[name] for name in names)
    return WatermarkRules(options.watermark, spans_of, options.idle_after_s)


def _span_ticks(query: Query, name: str, span: timedelta | int) -> int:
    what = f"lateness of stream {name}"
    number = span if isinstance(span, timedelta) else whole(span)
    if number is None:
        raise SparkJoinError(f"{what}: {span!r} is neither a timedelta nor a whole number of ticks")
    span = number
    if (span < timedelta(0)) if isinstance(span, timedelta) else (span < 0):
        raise SparkJoinError(
            f"{what}: {span} is negative; give 0 to accept no rows older than those of earlier batches"
        )
    if span and not query.graph.timed:
        raise SparkJoinError(f"{what}: {span} without a RANGE window: without event time no row is late; leave it out")
    return query.ticks(span, None, what) if query.graph.timed else 0
