"""Draw cases and play them until one fails; Hypothesis then shrinks the failing case."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

from eddy.fuzz.as_of.case import AsOfCase
from eddy.fuzz.as_of.draw import as_of_cases
from eddy.fuzz.as_of.play import play as play_as_of
from eddy.fuzz.as_of.script import script as as_of_script
from eddy.fuzz.case import Case, OutputMode
from eddy.fuzz.changing.case import EngineCase
from eddy.fuzz.changing.draw import engine_cases
from eddy.fuzz.changing.play import play as play_engine
from eddy.fuzz.changing.script import script as engine_script
from eddy.fuzz.draw import ALL_POLICIES, cases
from eddy.fuzz.play import Tally, play, refusals
from eddy.fuzz.script import script
from eddy.fuzz.sql.case import SqlCase
from eddy.fuzz.sql.draw import sql_cases
from eddy.fuzz.sql.play import play as play_sql
from eddy.fuzz.sql.script import script as sql_script
from eddy.fuzz.tables.case import TableCase
from eddy.fuzz.tables.draw import table_cases
from eddy.fuzz.tables.play import play as play_table
from eddy.fuzz.tables.play import refusals as table_refusals
from eddy.fuzz.tables.script import script as table_script

Kind = Literal["inner", "branches", "changing", "tables", "as of", "sql"]
KINDS: dict[str, tuple[Kind, ...]] = {
    "all": ("inner", "branches", "changing", "tables", "as of"),
    "inner": ("inner",),
    "branches": ("branches",),
    "changing": ("changing",),
    "tables": ("tables", "as of"),
    "sql": ("sql",),
}
"""Kinds of queries that a run draws, by name."""
ROUND: dict[Kind, int] = {"inner": 200, "branches": 60, "changing": 60, "tables": 60, "as of": 60, "sql": 60}
"""Cases drawn from one seed, shared by the strategies.

Hypothesis keeps every case that it has drawn, so each round starts it anew. It also varies what it has drawn, and so
neglects some members of a list; each strategy has rounds of its own.
"""
SHRINK_SECONDS = 60.0
CASE_SECONDS = 30.0
"""Time limit of a case; a case that takes longer counts as endless. Most cases take some milliseconds."""
SMALL_CASE_SECONDS = 1.0
WAITING = 20
"""Times the limit of a case that it may take if it works for less: a limit on what waits for ever."""


AnyCase = Case | EngineCase | TableCase | AsOfCase | SqlCase


class Enough(KeyboardInterrupt):
    """Raised to end a round. An ordinary exception would make Hypothesis search for a smaller example."""


@contextmanager
def time_limit(seconds: float, error: BaseException | None = None) -> Iterator[None]:
    """Raise `error` in a block that takes longer than `seconds`; by default TimeoutError, if they are seconds of work.

    A process that gets no core, or a machine that sleeps, makes no case endless: a case that waits has `WAITING` times
    as long. A signal raises the error, between two calls of kernels. The limit has no effect outside of the main thread
    and on platforms without `signal.setitimer`.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    worked, began = time.process_time(), time.monotonic()

    def stop(*_: object) -> None:
        waits = time.process_time() - worked < 0.9 * seconds and time.monotonic() - began < WAITING * seconds
        if waits and error is None:
            return
        raise error or TimeoutError(f"the case did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    # The signal comes again: TimeoutError is an OSError, which code that reads files may suppress.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.0 if error else max(seconds / 4, 1.0))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _played(case: AnyCase) -> Tally:
    match case:
        case SqlCase():
            return play_sql(case)
        case EngineCase():
            return play_engine(case)
        case TableCase():
            return play_table(case)
        case AsOfCase():
            return play_as_of(case)
        case Case():
            return play(case)


@dataclass(frozen=True)
class Failure:
    """A case that failed, and its error."""

    case: AnyCase
    error: Exception
    seed: int

    @property
    def message(self) -> str:
        """The type and the text of the error."""
        return f"{type(self.error).__name__}: {self.error}"

    def script(self) -> str:
        """Return the case as a script."""
        title = f"Found by `eddy fuzz --seed {self.seed}` with strategy {self.case.strategy}."
        match self.case:
            case EngineCase():
                return engine_script(self.case, title)
            case SqlCase():
                return sql_script(self.case, title)
            case AsOfCase():
                return as_of_script(self.case, title)
            case TableCase():
                with time_limit(CASE_SECONDS):
                    refused = table_refusals(self.case)
                return table_script(self.case, title, refused)
            case Case():
                with time_limit(CASE_SECONDS):
                    refused = refusals(self.case)
                return script(self.case, title, refused)


@dataclass
class Hunt:
    """A run of the fuzzer: its options, its first failure and the counts of its cases."""

    strategies: Sequence[str]
    outputs: Sequence[OutputMode]
    max_streams: int
    seed: int
    shrink: bool = True
    policies: Sequence[str] = ALL_POLICIES
    kinds: Sequence[Kind] = KINDS["all"]
    failure: Failure | None = None
    seconds: float = 0.0
    tallies: dict[str, Tally] = field(init=False)
    _shrink_until: float = 0.0

    def __post_init__(self) -> None:
        self.tallies = {name: Tally() for name in self.strategies}

    @property
    def total(self) -> Tally:
        """The counts of all strategies together."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total

    def run(self, seconds: float, most: int | None = None, tell: Callable[[], None] = lambda: None) -> None:
        """Play cases for `seconds`, but stop after `most` cases and after a failure; call `tell` after each case."""
        start = time.monotonic()
        end = start + seconds

        def play(case: AnyCase) -> None:
            now = time.monotonic()
            self.seconds = now - start
            if self.failure is None and (now > end or self.total.cases == most):
                raise Enough
            # An endless case uses its whole time limit on each attempt to shrink it, so the limit is lower then.
            endless = self.failure is not None and isinstance(self.failure.error, TimeoutError)
            try:
                with time_limit(SMALL_CASE_SECONDS if endless else CASE_SECONDS):
                    done = _played(case)
            except Exception as error:
                if self.failure is None:
                    self._shrink_until = now + SHRINK_SECONDS
                if now <= self._shrink_until:
                    self.failure = Failure(case, error, self.seed)
                tell()
                if not self.shrink or now > self._shrink_until:
                    raise Enough from error
                raise
            if self.failure is None:
                self.tallies[case.strategy].add(done)
                tell()

        rounds = ((kind, strategy) for kind in self.kinds for strategy in self.strategies)
        try:
            for number, (kind, strategy) in enumerate(itertools.cycle(rounds)):
                if self.failure is not None:
                    break
                self._round(play, kind, strategy, self.seed * 1_000_003 + number)
        except Enough:
            pass
        self.seconds = time.monotonic() - start

    def _round(self, play_case: Callable[[AnyCase], None], kind: Kind, strategy: str, seed: int) -> None:
        drawn: SearchStrategy[Any]
        match kind:
            case "sql":
                drawn = sql_cases([strategy])
            case "changing":
                drawn = engine_cases([strategy], self.max_streams, self.policies)
            case "tables":
                drawn = table_cases([strategy], self.max_streams, self.policies)
            case "as of":
                drawn = as_of_cases([strategy], self.outputs, self.max_streams, self.policies)
            case _:
                branches = kind == "branches"
                drawn = cases(self.strategies, self.outputs, self.max_streams, self.policies, branches, strategy)
        search = settings(
            max_examples=-(-ROUND[kind] // len(self.strategies)),
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        try:
            seeded(seed)(search(given(drawn)(play_case)))()
        except Exception:
            # The last failure is the smallest: Hypothesis plays the smallest case once more at the end.
            if self.failure is None:
                raise
