"""An exception at any line of a push: the push did not happen, or it did and `last_push` has its results.

A tracer raises at the first line of the library at which it has not raised yet. The push is repeated until it happens,
so that each line is once the last one, including those that take a push back (some pushes fail without the tracer).
Later pushes give the results of the oracle.
"""

from __future__ import annotations

import dis
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count, cycle, dropwhile, islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import eddy
from eddy.fuzz.hunt import time_limit
from eddy.fuzz.oracle import Oracle
from eddy.pipeline.pipeline import Pipeline
from jisc.strategies import STRATEGIES
from stairs.memory.spill import SpillDirectory
from tests.cases import Arrival, BatchedPush, JoinCase, StreamCase, assert_changes, changes, feed
from tests.eddy.test_failed_push import fragile
from tests.tracing import tracing

ROOT = Path(eddy.__file__).parents[1]
TRACED = (*(str(ROOT / package) for package in ("eddy", "jisc", "stairs")), "sortedcontainers")
KEY, NUMBER, TIME, VALUE, TEXT = "k", "j", "t", "v", "p"
PLANS = ("((R S) T) U", "((U T) S) R", "(R S) (T U)")


@pytest.fixture(autouse=True)
def _no_lock_of_a_log_handler_is_left() -> Iterator[None]:
    """Keep records from handlers of pytest: an interrupt between `acquire` and `try` in `logging` leaves the lock held.

    The main thread could log on, and the first other thread that logs would wait for ever.
    """
    log = logging.getLogger("eddy")
    log.propagate = False
    yield
    log.propagate = True


class Interrupted(BaseException):
    """Raised by the tracer and by signal handlers."""


Line = tuple[str, int]
T = TypeVar("T")


WITHOUT_STRATEGY = frozenset(("ingest", "filters", "results", "query"))
"""Folders whose code no strategy changes: one of them is enough to interrupt it."""


def lines_of(code: CodeType) -> frozenset[Line]:
    """Return the lines of a function of the project at which a tracer can raise, none for other code."""
    # By identity: two functions may be equal, and a hash of the code takes longer than all the rest.
    known = _LINES.get(id(code))
    if known is None:
        known = _LINES[id(code)] = code, _lines_of(code)
    return known[1]


_LINES: dict[int, tuple[CodeType, frozenset[Line]]] = {}


def _lines_of(code: CodeType) -> frozenset[Line]:
    name = code.co_filename
    if not any(part in name for part in TRACED):
        return frozenset()
    begun = dropwhile(lambda instruction: instruction.opname != "RESUME", dis.get_instructions(code))
    lines = {instruction.positions.lineno for instruction in islice(begun, 1, None) if instruction.positions}
    return frozenset((name, line) for line in lines if line is not None)


class Seen(set[Line]):
    """The lines at which a tracer has raised. `past`: folders where it never does."""

    def __init__(self, past: frozenset[str] = frozenset()) -> None:
        self.past = past
        self._done: set[int] = set()

    def all_of(self, code: CodeType) -> bool:
        """Return whether no line of a function is left."""
        # Called for each call of a function in a thousand pushes.
        if id(code) in self._done:
            return True
        done = lines_of(code) <= self or Path(code.co_filename).parent.name in self.past
        if done:
            self._done.add(id(code))
        return done


class Tracer:
    """Raises at the first line that is not in `seen`, and adds the line."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Trace a call, unless all lines of its function have raised before: tracing lines is most of the cost."""
        return None if self.seen.all_of(frame.f_code) else self.line

    def line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        """Raise at a new line."""
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in self.seen:
            self.seen.add(place)
            raise Interrupted(f"{Path(place[0]).name}:{place[1]}")
        return self.line


def traced(call: Callable[[], T], seen: Seen) -> T | None:
    """Return the result of a call, or None if it was interrupted; the line is in `seen` from then on."""
    with suppress(Interrupted), tracing(Tracer(seen)):
        return call()
    return None


def pushed(runtime: eddy.Runtime, batches: Mapping[str, Any], seen: Seen) -> tuple[pa.Table, int]:
    """Push until the push has happened; return its results, and how often it was tried."""
    before, tries, table = runtime.pushes, 0, None
    while runtime.pushes == before:
        tries += 1
        table = traced(lambda: runtime.push(batches), seen)
        runtime.check()
    last = runtime.last_push()
    assert last is not None
    assert table is None or table is last.results
    return last.results, tries


def make_case(kind: str) -> JoinCase:
    """Return a query with all kinds of keys, windows and payload, and with a filter that can fail, see `fragile`."""
    kinds = {KEY: pa.string(), NUMBER: pa.int64(), TIME: pa.int64(), VALUE: pa.int64(), TEXT: pa.string()}
    stream_keys = {"R": (KEY,), "S": (KEY, NUMBER), "T": (KEY, NUMBER), "U": (NUMBER,)}
    windows = {"R": ("rows", 4), "S": ("range", 5), "T": ("rows", 5), "U": ("range", 7)}
    streams = tuple(
        StreamCase(name, pa.schema([(c, kinds[c]) for c in (*keys, TIME, VALUE, TEXT)]), *windows[name], time=TIME)
        for name, keys in stream_keys.items()
    )
    pairs = [("R", "S", KEY), ("S", "T", KEY), ("T", "U", NUMBER)]
    predicates = tuple((((a, c), (b, c)),) for a, b, c in pairs)
    return JoinCase(streams, predicates, None, fragile("R", kind), lateness=1)


class InterruptedRuntime:
    """A runtime, its oracle, and random pushes."""

    def __init__(self, seed: int = 0, kind: str = "function", **options: Any) -> None:
        self.random = random.Random(seed)
        self.case = make_case(kind)
        self.oracle: Oracle = self.case.oracle()
        self.runtime = eddy.Runtime(self.case.query(), PLANS[0], **options)
        self.output = self.runtime.output
        self.plans = cycle(PLANS)
        self.clock = 0

    def arrivals(self) -> list[Arrival]:
        """Return random rows; some are late or have nulls."""
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
        """Schedule a change of plan within the next push."""
        if STRATEGIES[self.runtime.strategy].changes and not self.runtime.scheduled():
            at = self.runtime.position + self.random.randrange(1, 4)
            self.runtime.transition(next(self.plans), at=at)

    def push(self, attempt: Callable[[Callable[[], pa.Table]], pa.Table | None]) -> int:
        """Push rows until the push happens; `attempt` returns the results, or None if it was interrupted."""
        rows = self.arrivals()
        tried, fails = self.oracle.copy(), False
        try:
            outcomes = feed(self.case, tried, rows)
        except ZeroDivisionError:
            fails = True
        push = BatchedPush(tuple(rows), self.random.randrange(7**4))
        batches, order = push.batches(self.case), push.order()
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
            except eddy.CapacityError:
                assert (runtime.position, runtime.pushes) == before
                runtime.max_bytes = None
                continue
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
            assert runtime.failed_count == tried.failed
            self.oracle = tried
            return tries


TRIED = sorted(STRATEGIES.keys() - {"eddy-stairs"})
"""eddy-stairs runs the lines of stairs and of eddy-jisc."""


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", TRIED)
def test_an_exception_at_each_line(strategy: str, tmp_path: Path) -> None:
    """A changelog runs almost all lines of append mode, which interrupts the rest."""
    options: dict[str, Any] = {}
    if strategy == "eddy":
        options = {"store": ["R S"], "policy": "lottery", "decide_every": 7}
    seen = Seen() if strategy == "eddy" else Seen(WITHOUT_STRATEGY)
    spill = SpillDirectory(tmp_path, least=1)
    for output, kind, filed in (("changelog", "function", None), ("append", "expression", spill)):
        options |= {"output": output, "renumber_at": 40, "spill": filed}
        play, quiet = InterruptedRuntime(kind=kind, strategy=strategy, **options), 0
        while quiet < 12:
            play.plan_ahead()
            if strategy == "eddy":
                # Sometimes there is room for windows but not for states, which are then dropped one by one.
                play.runtime.max_bytes = play.runtime._pipeline.join.bound.base() + play.random.choice(
                    [3_000, 5_000, 100_000]
                )
            quiet = quiet + 1 if play.push(lambda push: traced(push, seen)) == 1 else 0
    assert len(seen) > (200 if seen.past else 300)


@pytest.mark.campaign(0)
@pytest.mark.parametrize("strategy", ["eddy", "moving-state", "parallel-track"])
def test_a_second_exception_while_the_first_is_dealt_with(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play, seen, again = InterruptedRuntime(5, strategy=strategy, output="changelog", renumber_at=40), Seen(), Seen()
    recover = Pipeline.recover

    def interrupted(self: Pipeline) -> None:
        with tracing(Tracer(again)):
            recover(self)

    def attempt(push: Callable[[], pa.Table]) -> pa.Table | None:
        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "recover", interrupted)
            results = traced(push, seen)
            # The next call continues the recovery, and may be interrupted as well.
            for _ in range(2):
                with suppress(Interrupted):
                    play.runtime.last_push()
        return results

    quiet = 0
    while quiet < 12:
        play.plan_ahead()
        quiet = quiet + 1 if play.push(attempt) == 1 else 0
    assert len(again) > 100


@pytest.mark.campaign(0)
@pytest.mark.parametrize("strategy", [name for name in TRIED if STRATEGIES[name].changes])
def test_an_exception_at_each_line_of_a_change_of_plan(strategy: str) -> None:
    play, seen = InterruptedRuntime(strategy=strategy), Seen()
    runtime, quiet = play.runtime, 0
    while quiet < 6:
        play.push(lambda push: push())
        before, wanted = (runtime.plan, runtime.changes), next(play.plans)
        if traced(lambda plan=wanted: runtime.transition(plan), seen) is not None:
            quiet += 1
        else:
            quiet = 0
            assert (runtime.plan, runtime.changes) in (before, (wanted, before[1] + 1))
        assert runtime.history().num_rows == runtime.changes
        runtime.check()
    assert len(seen) > 50


@pytest.mark.campaign(0)
@pytest.mark.parametrize("strategy", ["eddy", "parallel-track"])
def test_an_exception_at_each_line_of_loading(strategy: str) -> None:
    play, seen = InterruptedRuntime(3), Seen()
    query = play.case.query()
    rows = [row for _ in range(12) for row in play.arrivals()]
    past, later = (BatchedPush(tuple(part)).batches(play.case) for part in (rows[:-10], rows[-10:]))
    options: dict[str, Any] = {"store": ["R S"], "max_bytes": 60_000} if strategy == "eddy" else {}

    def load(runtime: eddy.Runtime) -> bool:
        runtime.load(past)
        return True

    def make() -> eddy.Runtime:
        return eddy.Runtime(query, PLANS[0], strategy=strategy, policy="fixed", ids_only=True, **options)

    whole = make()
    load(whole)
    expected = sorted(map(str, whole.push(later).to_pylist()))
    done = False
    while not done:
        runtime = make()
        done = traced(lambda runtime=runtime: load(runtime), seen) is not None
        runtime.check()
        if not runtime.position:
            load(runtime)
        assert sorted(map(str, runtime.push(later).to_pylist())) == expected
        runtime.check()
    assert len(seen) > 100


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_an_exception_at_each_line_of_late(kind: str) -> None:
    """Each late row is returned once: by the call, by `last_late`, or by the next call."""
    rows = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    streams = [eddy.Stream(name, rows, window=eddy.Range(9), time="t") for name in "RS"]
    on = ["R.k = S.k"]
    left = [eddy.Branch(streams[1:], on, "left")]
    query = eddy.Query(streams, on) if kind == "inner" else eddy.Query(streams[:1], branches=left)
    runtime, seen, quiet = eddy.Runtime(query), Seen(), 0
    returned: list[int] = []
    runtime.push({"S": [{"k": 0, "t": 10_000}]})
    for number in count():
        runtime.push({"R": [{"k": 1, "t": 10_000}, {"k": number, "t": 1}]}, [0, 0])
        late = traced(runtime.late, seen)
        quiet += late is not None
        if late is None:
            late = runtime.last_late()
        if late is None:
            late = runtime.late()
        returned += late["R"]["k"].to_pylist()
        assert returned == list(range(number + 1))
        assert runtime.late() == {}
        assert runtime.last_late() == late
        if quiet == 3:
            break
    assert len(seen) > 25
    assert "turn.py" in {Path(file).name for file, _ in seen}


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", ["eddy", "jisc", "parallel-track"])
def test_signals_at_any_moment(strategy: str) -> None:
    play, draw, came = (
        InterruptedRuntime(1, strategy=strategy, output="changelog", renumber_at=200),
        random.Random(2),
        0,
    )

    def attempt(push: Callable[[], pa.Table]) -> pa.Table | None:
        nonlocal came
        try:
            # From before the beginning of the push to after its end, on a machine of any speed.
            with time_limit(10 ** draw.uniform(-5, -1), Interrupted("signal")):
                return push()
        except Interrupted:
            came += 1
            return None

    while came < 300:
        play.plan_ahead()
        play.push(attempt)
