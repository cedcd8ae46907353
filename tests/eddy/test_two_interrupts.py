"""Two exceptions in one call, at sampled lines: figures that are read before the next call are those after it."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import eddy
from tests.eddy.test_interrupts import Interrupted, lines_of
from tests.tracing import tracing

NEVER = 10**9
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


@pytest.fixture(autouse=True)
def _no_lock_of_a_log_handler_is_left() -> Iterator[None]:
    """See the fixture of `test_interrupts`."""
    log = logging.getLogger("eddy")
    log.propagate = False
    yield
    log.propagate = True


class Counter:
    """A tracer that raises at the lines of some numbers, counted over a call."""

    def __init__(self, *numbers: int) -> None:
        self.left, self.count = list(numbers), 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Trace the functions of the project, but for one that holds a lock.

        A tracer may raise between the last line of a `with` block and its end. No signal comes there.
        """
        return self.line if lines_of(frame.f_code) and frame.f_code.co_name != "_claim" else None

    def line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        """Raise at a line whose number has come."""
        if event == "line":
            self.count += 1
            if self.left and self.count >= self.left[0]:
                # An exception ends the tracing of this function, but not that of its callers and of later calls.
                self.left.pop(0)
                raise Interrupted
        return self.line


def interrupted(call: Callable[[], object], first: int, second: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Call with an exception at the line `first`, and at the line `second` of what then makes the state consistent.

    Returns the number of lines that ran.
    """
    tracer = Counter(first)
    with monkeypatch.context() as patch:
        for kind in (eddy.Runtime, eddy.Engine):
            settle = kind._settle

            def again(self: Any, settle: Callable[[Any], None] = settle) -> None:
                # Python ends the tracing with the first exception.
                if not tracer.left:
                    sys.settrace(Counter(second))
                settle(self)

            patch.setattr(kind, "_settle", again)
        with suppress(Interrupted), tracing(tracer):
            call()
    return tracer.count


def streams(size: int) -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=eddy.Range(size), time="t") for name in "RS"]


def inner() -> eddy.Runtime:
    return eddy.Runtime(eddy.Query(streams(9), ["R.k = S.k"]), store=[], output="changelog")


def left() -> eddy.Runtime:
    r, s = streams(9)
    return eddy.Runtime(eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")]))


def engine() -> eddy.Engine:
    made = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    made.start("q", eddy.Query(streams(9), ["R.k = S.k"]))
    made.start("changelog", eddy.Query(streams(5), ["R.k = S.k"]), output="changelog")
    return made


def figures(of: eddy.Runtime | eddy.Engine) -> list[Any]:
    common: list[Any] = [of.position, of.late_counts, of.watermark, of.nbytes, of.history()]
    if isinstance(of, eddy.Runtime):
        return [*common, of.pushes, of.plan, of.changes]
    return [*common, {name: query.state for name, query in of.queries.items()}]


@pytest.mark.parametrize("make", [inner, left, engine])
@pytest.mark.parametrize("first", ["position", "late_counts", "watermark", "nbytes"])
def test_figures_settle_first(
    make: Callable[[], eddy.Runtime | eddy.Engine], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, chance, at, happened = make(), random.Random(3), 0, 0

    def rows() -> dict[str, list[dict[str, int]]]:
        nonlocal at
        at += 2
        late = {"k": 0, "t": 0}
        return {"R": [{"k": at % 3, "t": at}, late], "S": [{"k": at % 3, "t": at + 1}]}

    for _ in range(3):
        most = interrupted(lambda: runner.push(rows(), [0, 1, 0]), NEVER, NEVER, monkeypatch)
    for _ in range(60):
        given, before = rows(), runner.position
        begin = chance.randrange(1 if chance.random() < 0.4 else most * 4 // 5, most + 1)
        interrupted(lambda given=given: runner.push(given, [0, 1, 0]), begin, chance.randrange(1, 60), monkeypatch)  # type: ignore[misc]
        early = getattr(runner, first), *figures(runner)
        last = runner.last_push()
        assert early == (getattr(runner, first), *figures(runner))
        happened += runner.position > before
        assert (runner.position > before) == (last is not None and last.position == before + 2)
        if runner.position == before:
            runner.push(given, [0, 1, 0])
    assert 5 < happened < 55


CALLS: dict[str, Callable[[eddy.Engine], object]] = {
    "push": lambda made: made.push({"R": [{"k": 1, "t": 3}], "S": [{"k": 1, "t": 4}]}, [0, 1]),
    "start": lambda made: made.start("r", eddy.Query(streams(7), ["R.k = S.k"]), warm=True),
    "change": lambda made: made["q"].change(eddy.Query(streams(4), ["R.k = S.k"]), "handover"),
    "drain": lambda made: made["q"].stop("drain"),
    "pause": lambda made: made["q"].pause(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_engine_is_undone_whatever_interrupts_that(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun() -> eddy.Engine:
        made = engine()
        made.push({"R": [{"k": 1, "t": 1}], "S": [{"k": 1, "t": 2}]}, [0, 1])
        return made

    calm = begun()
    before = calm.snapshot()
    most = interrupted(lambda: CALLS[call](calm), NEVER, NEVER, monkeypatch)
    after, undone = calm.snapshot(), 0
    for number in range(180):
        # The end of a call, where a push has happened, and all of it.
        first, second = most - (number * 5 % most if number % 2 else number % min(40, most)), number // 2
        made = begun()
        interrupted(lambda made=made: CALLS[call](made), first, second, monkeypatch)  # type: ignore[misc]
        saved = made.snapshot()
        assert saved in (before, after)
        undone += saved == before
        # What was left of the call may show when it is made again.
        if saved == before:
            CALLS[call](made)
            assert made.snapshot() == after
        made.check()
    assert undone


def test_a_query_resumes_only_after_a_pause_that_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    most = interrupted(engine()["q"].pause, NEVER, NEVER, monkeypatch)
    refused = 0
    for number in range(240):
        made = engine()
        running = made["q"]
        interrupted(running.pause, most - number * 7 % most, 1 + number // 4, monkeypatch)
        # Nothing that settles comes first.
        with suppress(eddy.InputError):
            running.resume()
        events = made.history()["event"].to_pylist()
        assert ("resume" in events) == ("pause" in events)
        refused += "resume" not in events
        assert made.push({"R": [{"k": 1, "t": 3}], "S": [{"k": 1, "t": 4}]}, [0, 1])["q"].num_rows == 1
    assert 0 < refused < 240


def test_failed_rows_are_treated_as_the_newest_version_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(made: eddy.Engine) -> None:
        made["q"].change(eddy.Query(streams(4), ["R.k = S.k"], failed="count"), "immediate")

    calm, seen = engine(), set()
    most = interrupted(lambda: change(calm), NEVER, NEVER, monkeypatch)
    for first in (*range(1, most, 40), *range(most - 40, most)):
        made = engine()
        interrupted(lambda made=made: change(made), first, NEVER, monkeypatch)  # type: ignore[misc]
        seen.add(made["q"].versions[-1].query.failed)
        assert made.position == 0
        assert made["q"].failures.choices == (made["q"].query.failed,)
    assert len(seen) == 2
