"""An exception at any line of a push: the push did not happen, or it did and `last_push` has its results.

A tracer raises at the first line of ours that it has not raised at yet. The push is done again until it goes through,
so that each line it passes is the last one once, those of taking a push back among them (some pushes fail by
themselves). What follows is what the oracle gives.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import eddy
from jisc.strategies import STRATEGIES
from tests.cases import Arrival, Case, Push, StreamCase, assert_changes, changes, feed
from tests.eddy.test_failed_push import fragile
from tests.oracle import Oracle

ROOT = Path(eddy.__file__).parents[1]
OURS = (*(str(ROOT / package) for package in ("eddy", "jisc", "stairs")), "sortedcontainers")
KEY, NUMBER, TIME, VALUE, TEXT = "k", "j", "t", "v", "p"
PLANS = ("((R S) T) U", "((U T) S) R", "(R S) (T U)")


class Interrupted(BaseException):
    """What the tracer and the signal handlers raise."""


Line = tuple[str, int]


class Tracer:
    """Raises at a line that is not in `seen` yet, once; `raised` tells where."""

    def __init__(self, seen: set[Line]) -> None:
        self.seen = seen
        self.raised: Line | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Follow the calls of our own code."""
        name = frame.f_code.co_filename
        return self.line if any(part in name for part in OURS) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        """Raise at a new line."""
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in self.seen:
            self.seen.add(place)
            self.raised = place
            raise Interrupted(f"{Path(place[0]).name}:{place[1]}")
        return self.line


def make_case() -> Case:
    """Give a query with keys of both kinds, windows of all kinds, payload of all kinds, and a filter that can fail."""
    kinds = {KEY: pa.string(), NUMBER: pa.int64(), TIME: pa.int64(), VALUE: pa.int64(), TEXT: pa.string()}
    own = {"R": (KEY,), "S": (KEY, NUMBER), "T": (KEY, NUMBER), "U": (NUMBER,)}
    windows = {"R": ("rows", 4), "S": ("range", 5), "T": ("rows", 5), "U": ("range", 7)}
    streams = tuple(
        StreamCase(name, pa.schema([(c, kinds[c]) for c in (*keys, TIME, VALUE, TEXT)]), *windows[name], time=TIME)
        for name, keys in own.items()
    )
    pairs = [("R", "S", KEY), ("S", "T", KEY), ("T", "U", NUMBER)]
    predicates = tuple((((a, c), (b, c)),) for a, b, c in pairs)
    return Case(streams, predicates, None, fragile("R"), lateness=1)


class Play:
    """A runtime, its oracle, and pushes made up on the way."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self.random = random.Random(seed)
        self.case = make_case()
        self.oracle: Oracle = self.case.oracle()
        self.runtime = eddy.Runtime(self.case.query(), PLANS[0], **options)
        self.output = self.runtime.output
        self.plans = cycle(PLANS)
        self.clock = 0

    def arrivals(self) -> list[Arrival]:
        """Make up some rows; now and then one is late, or has nulls."""
        rows: list[Arrival] = []
        for _ in range(self.random.randrange(1, 9)):
            i = self.random.randrange(4)
            self.clock += self.random.random() < 0.3
            values = {
                KEY: self.random.choice(["a", "b", "a long key, the third one", f"once {self.clock}", None]),
                NUMBER: self.random.choice([1, 2, self.clock]),
                TIME: self.clock - (self.random.random() < 0.1) * 4,
                VALUE: self.random.choice([0, 1, 2, 3, 3, 4, 4, None]),
                TEXT: f"text {self.clock}",
            }
            rows.append((i, {name: values[name] for name in self.case.streams[i].schema.names}))
        return rows

    def plan_ahead(self) -> None:
        """Let the plan change within the next push."""
        if STRATEGIES[self.runtime.strategy].changes and not self.runtime.scheduled():
            at = self.runtime.position + self.random.randrange(1, 4)
            self.runtime.transition(next(self.plans), at=at)

    def push(self, attempt: Callable[[Callable[[], pa.Table]], pa.Table | None]) -> int:
        """Push rows until they are in; `attempt` does it and returns the results, or None when it was interrupted."""
        rows = self.arrivals()
        tried, fails = self.oracle.copy(), False
        try:
            outcomes = feed(self.case, tried, rows)
        except ZeroDivisionError:
            fails = True
        one = Push(tuple(rows), self.random.randrange(7**4))
        batches, order = one.batches(self.case), one.order()
        runtime, tries = self.runtime, 0
        while True:
            tries += 1
            before = runtime.position, runtime.pushes
            try:
                table = attempt(lambda: runtime.push(batches, order))
            except eddy.InputError:
                assert fails
                assert (runtime.position, runtime.pushes) == before
                return tries
            last = runtime.last_push()
            runtime.check()
            if table is None and runtime.pushes == before[1]:
                assert runtime.position == before[0]
                continue
            assert runtime.pushes == before[1] + 1
            assert not fails
            assert last is not None
            assert last.position == runtime.position == sum(map(len, tried.tuples.values()))
            assert table is None or table is last.results
            assert_changes(last.results, changes(self.case, outcomes, tried, self.output, "rows"), "rows")
            self.oracle = tried
            return tries


@pytest.mark.parametrize("output", ["append", "changelog"])
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_an_exception_at_each_line(strategy: str, output: str) -> None:
    options = {"store": ["R S"], "policy": "lottery", "decide_every": 7} if strategy == "eddy" else {}
    play, seen = Play(strategy=strategy, output=output, renumber_at=40, **options), set[Line]()

    def attempt(push: Callable[[], pa.Table]) -> pa.Table | None:
        tracer = Tracer(seen)
        sys.settrace(tracer)
        try:
            return push()
        except Interrupted:
            return None
        finally:
            sys.settrace(None)

    quiet = 0
    while quiet < 12:
        play.plan_ahead()
        quiet = quiet + 1 if play.push(attempt) == 1 else 0
    assert len(seen) > 300


@contextmanager
def alarm(after_s: float) -> Iterator[None]:
    """Let a signal come after so long, if the block is not over by then; its handler raises."""

    def handler(*_: object) -> None:
        raise Interrupted("signal")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("strategy", ["eddy", "jisc", "parallel-track"])
def test_signals_at_any_moment(strategy: str) -> None:
    play, draw, came = Play(1, strategy=strategy, output="changelog", renumber_at=200), random.Random(2), 0

    def attempt(push: Callable[[], pa.Table]) -> pa.Table | None:
        nonlocal came
        try:
            # From before the push has begun to after its end, however fast the machine is.
            with alarm(10 ** draw.uniform(-5, -1)):
                return push()
        except Interrupted:
            came += 1
            return None

    while came < 300:
        play.plan_ahead()
        play.push(attempt)
