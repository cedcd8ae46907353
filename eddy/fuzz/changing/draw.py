"""Draw cases of engines with Hypothesis, as `eddy.fuzz.draw` does: steps are bytes that pick from short lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from eddy.fuzz.case import CHAOS, NAMES, PushStep, Row
from eddy.fuzz.changing.case import (
    EARLIER,
    KEYS,
    BadOrderStep,
    ChangeStep,
    EngineCase,
    EngineQuery,
    EngineReloadStep,
    EngineStreams,
    StartStep,
    Step,
    StopStep,
    StreamUse,
)
from eddy.fuzz.changing.oracle import EngineOracle
from eddy.fuzz.changing.play import EngineModel
from eddy.fuzz.draw import PACES, Pace, event_times, timings
from eddy.queries.changes import CHANGES, How
from eddy.streams.windows import Range, Rows, Unbounded, Window

QUERIES = ("p", "q", "r")
"""Names of queries."""
MOST_RESULTS = 40
"""A row that would complete more results of a version is left out."""
MOST_VERSIONS = 8
"""Versions that an engine may run at a time: each costs the reference a nested loop."""
MOST_STEPS = 30
ROW_BYTES = 5
KEY_VALUES = (0, 0, 0, 0, 1, 1, 2)
HOWS: tuple[How, ...] = tuple(CHANGES)  # type: ignore[arg-type]
SAME = -2
"""Stands for the position of the newest element of the query: which of two elements comes first decides there."""
AHEAD = (None, None, 0, 1, 2, 3, 5, 8, 13, SAME, SAME, EARLIER)
DECIDE_EVERY = (1, 2, 3, 5, 9)
"""Arrivals between decisions of the policy."""
STEP_KINDS = (*["push"] * 6, *["start"] * 2, *["change"] * 3, "stop", "bad", "reload")

DrawnStep = tuple[str, bytes, bytes]
"""A step as it is drawn: its kind, its picks, the picks of its rows."""


def window_of(sources: EngineStreams, kind: int, size: int) -> Window:
    """Return the window that two bytes pick: small ones fill up soon, large ones keep rows of several changes."""
    if kind % 11 == 10:
        return Unbounded()
    return Range(size % 9) if sources.timed and kind % 3 else Rows(1 + size % 5)


def asked_of(sources: EngineStreams, picks: bytes, like: EngineQuery | None = None) -> EngineQuery:
    """Return the query that bytes pick; like another one, it has the same join graph in two cases of three."""
    n = len(sources.windows)
    if like is not None and picks[0] % 3:
        streams, equalities, comparisons = [member.stream for member in like.streams], like.equalities, like.comparisons
    else:
        count = 1 if picks[4] % 8 == 7 else 2 + picks[2] % (n - 1)
        streams = [(picks[1] + k) % n for k in range(count)]
        column = KEYS[picks[3] % 8 == 7]
        pairs = [(streams[picks[4] * k // 7 % k], streams[k]) for k in range(1, len(streams))]
        equalities = tuple((i, j, column) for i, j in pairs)
        comparisons = ((*pairs[0], picks[3] // 16 % 3 - 1),) if pairs and picks[0] % 5 == 4 else ()
    owns = []
    for k, i in enumerate(streams):
        least = picks[10 + k] // 4 % 4 if picks[10 + k] % 4 == 3 else None
        kind = picks[5] if picks[5] % 4 else picks[6 + k]  # in three cases of four all windows are of one kind
        window = window_of(sources, kind, picks[6 + k] // 8)
        if like is not None and picks[0] % 6 == 1:
            window = next((member.window for member in like.streams if member.stream == i), window)
        owns.append(StreamUse(i, window, least))
    return EngineQuery(tuple(owns), equalities, comparisons)


@dataclass
class EngineStepWriter:
    """Turns drawn steps into the steps of a case, one after the other; a model follows them."""

    case: EngineCase
    model: EngineModel = field(init=False)
    asked: dict[str, EngineQuery] = field(default_factory=dict)
    paces: Sequence[Pace] = PACES[0]
    clock: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.model = EngineModel(self.case)

    @property
    def oracle(self) -> EngineOracle:
        """The reference."""
        return self.model.oracle

    def steps(self, drawn: DrawnStep) -> Iterator[Step]:
        """Yield the steps of a drawn step: one, or none."""
        kind, picks, rows = drawn
        ahead = AHEAD[picks[15] % len(AHEAD)] if self.oracle.position else AHEAD[picks[15] % (len(AHEAD) - 1)]
        name = QUERIES[picks[14] % len(QUERIES)]
        if ahead == SAME:
            newest = self.oracle.queries[name].element if name in self.oracle.queries else 0
            ahead = newest - self.oracle.position if newest >= self.oracle.position else None
        match kind:
            case "push":
                yield PushStep(self.rows(rows))
            case "bad":
                clock, number = self.clock, self.number
                yield BadOrderStep(self.rows(rows, arrive=False))
                self.clock, self.number = clock, number
            case "reload":
                self.model.forget_stopped()
                self.asked = {name: query for name, query in self.asked.items() if name in self.oracle.queries}
                yield EngineReloadStep()
            case "start" if self.room:
                yield self.element(StartStep(name, asked_of(self.case.sources, picks), ahead, picks[13] % 3 == 2))
            case "change" if self.room and name in self.asked:
                how = HOWS[picks[13] % len(HOWS)]
                yield self.element(ChangeStep(name, asked_of(self.case.sources, picks, self.asked[name]), how, ahead))
            case "stop" if name in self.asked:
                yield self.element(StopStep(name, "drain" if picks[13] % 2 else "immediate", ahead))

    @property
    def room(self) -> bool:
        """Whether another version may start."""
        return sum(len(query.live) for query in self.oracle.queries.values()) < MOST_VERSIONS

    def element(self, step: StartStep | ChangeStep | StopStep) -> Step:
        """Return a control element; the model takes it."""
        if self.model.take(step) and not isinstance(step, StopStep):
            self.asked[step.name] = step.asked
        return step

    def rows(self, picks: bytes, arrive: bool = True) -> tuple[Row, ...]:
        """Return a row for each ROW_BYTES bytes, without those that would complete too many results."""
        rows = []
        for k in range(len(picks) // ROW_BYTES):
            row_picks = picks[k * ROW_BYTES : (k + 1) * ROW_BYTES]
            i = (k + row_picks[0]) % len(self.case.sources.windows)
            self.clock += row_picks[1] % 3 == 1
            lag, drag = self.paces[i % len(self.paces)]
            age = lag + self.clock * drag // 16
            age += row_picks[2] % 16 % (self.case.sources.lateness + 3) if row_picks[2] % 4 == 3 else 0
            keys = {name: KEY_VALUES[row_picks[3] // (1 + 40 * c) % len(KEY_VALUES)] for c, name in enumerate(KEYS)}
            row = Row(i, keys, self.clock - age, self.number, row_picks[4] % 4)
            self.number += 1
            values = self.case.sources.values(row)
            live = [version for query in self.oracle.queries.values() for version in query.live]
            if any(version.completes_more_than(MOST_RESULTS, NAMES[i], values) for version in live):
                continue
            if arrive:
                self.model.push([row])
            rows.append(row)
        return tuple(rows)


_PICKS = st.binary(min_size=16, max_size=16)
_ROWS = st.binary(max_size=4 * ROW_BYTES) | st.binary(min_size=6 * ROW_BYTES, max_size=20 * ROW_BYTES)
DRAWN_STEPS: st.SearchStrategy[DrawnStep] = st.one_of(
    *(
        st.tuples(
            st.just(kind),
            st.just(bytes(16)) if kind in ("push", "bad", "reload") else _PICKS,
            _ROWS if kind in ("push", "bad") else st.just(b""),
        )
        for kind in STEP_KINDS
    )
)


@st.composite
def sources_drawn(draw: st.DrawFn, max_streams: int = 4) -> EngineStreams:
    """Draw the streams of an engine."""
    n = draw(st.integers(2, max(2, min(max_streams, 4))))
    timed = draw(st.sampled_from((True, True, True, False)))
    kinds: tuple[Window | None, ...] = (None, None, None, Rows(4), Range(5) if timed else Rows(2))
    windows = draw(st.lists(st.sampled_from(kinds), min_size=n, max_size=n))
    if not timed:
        return EngineStreams(tuple(windows), timed)
    timing = draw(timings(n))
    by_stream = zip(NAMES, timing.pop("late_of", ()), strict=False)
    late_of = {name: late for name, late in by_stream if late is not None}
    return EngineStreams(tuple(windows), timed, **timing, late_of=late_of, times=draw(event_times(n)))


@st.composite
def engine_cases(
    draw: st.DrawFn, strategies: Sequence[str], max_streams: int = 4, policies: Sequence[str] = ("fixed", CHAOS)
) -> EngineCase:
    """Draw a case for one of the strategies and one of the policies."""
    case = EngineCase(
        draw(sources_drawn(max_streams)),
        draw(st.sampled_from(list(strategies))),
        policy=draw(st.sampled_from(list(policies))),
        seed=draw(st.integers(0, 255)),
        decide_every=draw(st.sampled_from(DECIDE_EVERY)),
    )
    writer = EngineStepWriter(case, paces=draw(st.sampled_from(PACES)))
    starts = st.lists(st.tuples(st.just("start"), _PICKS, st.just(b"")), min_size=1, max_size=3)
    few, many = st.lists(DRAWN_STEPS, min_size=1, max_size=5), st.lists(DRAWN_STEPS, min_size=8, max_size=MOST_STEPS)
    drawn = [*draw(starts), *draw(few | many)]
    return replace(case, steps=tuple(step for drawn_step in drawn for step in writer.steps(drawn_step)))
