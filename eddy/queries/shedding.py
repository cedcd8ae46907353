"""Load shedding: an engine runs cheaper versions of its queries while pushes take longer than their deadline.

The versions are prepared by the user: narrower windows, a sample of the keys, fewer columns, or a pause. Each step from
one version to the next is a change of the query (`eddy.queries.changes`), between two pushes. This is use case 3 of
Sheykh Esmaili and others (SIGMOD 2011), with a rule that decides when.

The rule. Down: the last `patience` pushes were all late. The next step is that of the first query that has one left.
Up: the last `calm` pushes would have been in time at the version above, with a fifth to spare. What a step saves is
measured: the seconds of an arrival before the step and after it, each the median of some pushes. A step up that had to
be taken back soon doubles the wait for the next one, so a load between two versions does not swing between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple, Protocol

from eddy.log import LOG
from eddy.queries.alone import Output, check_change
from eddy.queries.changes import CHANGES, How
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.query.text import difference, query_text
from eddy.streams.numbers import at_least
from stairs.errors import EddyError, InputError

SPARE = 0.8
"""The part of the deadline that a push may take at the version above, for a step up."""
LONGEST = 64
"""The wait for a step up is at most so many times `calm` pushes."""
AGING = 0.8
"""What is left of a measured gain after each wait in which pushes were in time."""


class SteppedQuery(Protocol):
    """The part of a `RunningQuery` that sheds load."""

    name: str
    output: Output
    paused: bool

    @property
    def state(self) -> str: ...

    @property
    def query(self) -> Query: ...

    @property
    def overlaps(self) -> bool: ...

    def step(self, query: Query | None, how: How, direction: str) -> None:
        """Change to a version, None = pause; the history says in which direction."""


class _Move(NamedTuple):
    """A step that was taken, between step `above` of a query and the next one; `before`: seconds of an arrival then."""

    query: str
    above: int
    down: bool
    before: float


class Shedding:
    """The prepared versions of some queries, and when to step between them.

    deadline   seconds that a push may take
    steps      by query its versions, the full one first; None as the last one: a pause. The first query gives way
               first, and is restored last
    how        the kind of change
    patience, calm   see the module

    Which step a query is at follows from the version that it runs, so a query that its user changes to something else
    is left alone, and one that has come from a snapshot continues at its step.
    """

    def __init__(
        self,
        queries: Mapping[str, SteppedQuery],
        sources: Sources,
        deadline: float | timedelta,
        steps: Mapping[str, Sequence[Query | None]],
        how: How,
        patience: int,
        calm: int,
    ) -> None:
        self.deadline = _seconds(deadline)
        self.patience, self.calm = _pushes("patience", patience), _pushes("calm", calm)
        if how not in CHANGES:
            raise InputError(f"shed_load: how is one of {', '.join(map(repr, CHANGES))}, not {how!r}")
        if not steps:
            raise InputError("shed_load: steps has no query; give one at least, or call shed_load(None) to end it")
        self.how = how
        self._steps = {name: list(versions) for name, versions in steps.items()}
        for name, versions in self._steps.items():
            if name not in queries:
                raise InputError(f"shed_load: there is no query {name!r}; there are {', '.join(queries) or 'none'}")
            _check_steps(name, versions, queries[name].output, how, sources)
            if self._step_of(queries[name]) is None:
                raise InputError(
                    f"shed_load: query {name!r} runs none of its steps; the version that it runs has to be one of them"
                )
        self.seconds = 0.0
        """Seconds of the last push."""
        self._late = self._early = self._easy = 0
        """How many of the last pushes were late, would have been in time at the version above, and were in time."""
        self._measured = False
        """Whether the last step has been measured."""
        self._fresh = False
        """Whether the next push is the first one after a step, which may have more work."""
        self._costs: deque[float] = deque(maxlen=self.patience)
        """Seconds of each arrival, of the last pushes with rows since the last step."""
        self._last: _Move | None = None
        self._since = 0
        """Pushes since the last step."""
        self._gains: dict[tuple[str, int], float] = {}
        """Query and step -> how many times the seconds of the next step."""
        self._waits: dict[tuple[str, int], int] = {}
        """Query and step -> pushes before it is tried again."""
        self._told = False

    def step_of(self, queries: Mapping[str, SteppedQuery]) -> dict[str, int | None]:
        """Return by query the step that it is at, from 0, None for one that runs another version or has stopped."""
        return {name: self._step_of(queries[name]) if name in queries else None for name in self._steps}

    def _step_of(self, query: SteppedQuery) -> int | None:
        steps, step = self._steps[query.name], self._place(query)
        if query.paused:
            return len(steps) - 1 if steps[-1] is None and step == len(steps) - 2 else None
        return None if query.state == "stopped" else step

    def _place(self, query: SteppedQuery) -> int | None:
        """Return the place of the newest version of a query among its steps, None if it is none of them."""
        steps, newest = self._steps[query.name], query.query
        for step, version in enumerate(steps):
            if version is newest:
                return step
        text = query_text(newest)  # those of a query from a snapshot may be other objects
        for step, version in enumerate(steps):
            if version is not None and difference(text, version) is None:
                steps[step] = newest
                return step
        return None

    def note(self, queries: Mapping[str, SteppedQuery], seconds: float, arrivals: int) -> None:
        """Take notice of a push, and take a step if it is time for one."""
        self.seconds = seconds
        stepped = [queries[name] for name in self._steps if name in queries]
        if any(query.overlaps for query in stepped):
            # The figures say nothing of either version.
            self._late = self._early = 0
            self._costs.clear()
            return
        if self._fresh:
            self._fresh = False
            return
        self._since += 1
        if arrivals:
            self._costs.append(seconds / arrivals)
        self._measure()
        steps = {query.name: step for query in stepped if (step := self._step_of(query)) is not None}
        steps = {name: step for name, step in steps.items() if queries[name].state not in ("scheduled", "draining")}
        self._late = self._late + 1 if seconds > self.deadline else 0
        if self._late >= self.patience:
            self._down(queries, steps)
            return
        self._told = self._told and bool(self._late)
        upper = [name for name, step in steps.items() if step > 0]
        if upper:
            self._up(queries[upper[-1]], steps[upper[-1]])

    def _measure(self) -> None:
        """Measure what the last step saves, once enough pushes have come since."""
        if self._last is None or self._measured or len(self._costs) < self.patience:
            return
        self._measured = True
        before, after = self._last.before, median(self._costs)
        if before > 0 and after > 0:
            gain = before / after if self._last.down else after / before
            self._gains[self._last.query, self._last.above] = max(gain, 1.0)

    def _up(self, query: SteppedQuery, step: int) -> None:
        """Take a step up of a query if it is time for one."""
        rung, allowed = (query.name, step - 1), SPARE * self.deadline
        wait, gain = self._waits.get(rung, self.calm), self._gains.get(rung, 1.0)
        self._early = self._early + 1 if self.seconds * gain <= allowed else 0
        self._easy = self._easy + 1 if self.seconds <= allowed else 0
        if self._early >= wait:
            self._move(query, step, -1)
        elif self._easy >= wait:
            # An old figure is trusted less and less, because the step above may cost less by now.
            self._gains[rung], self._easy = max(AGING * gain, 1.0), 0

    def _down(self, queries: Mapping[str, SteppedQuery], steps: Mapping[str, int]) -> None:
        for name, step in steps.items():
            if step + 1 < len(self._steps[name]) and self._move(queries[name], step, 1):
                return
        self._late = 0
        if not self._told:
            self._told = True
            LOG.warning(
                "pushes take longer than %g s, the last one %g s, and no query has a cheaper version left",
                self.deadline,
                self.seconds,
            )

    def _move(self, query: SteppedQuery, step: int, by: int) -> bool:
        """Take a step of a query; return whether the engine took it."""
        rung = query.name, min(step, step + by)
        before, last, since = median(self._costs or [0.0]), self._last, self._since
        self._late = self._early = self._easy = 0
        try:
            query.step(self._steps[query.name][step + by], self.how, "down" if by > 0 else "up")
        except EddyError as problem:
            LOG.warning("query %r: a step %s was refused: %s", query.name, "down" if by > 0 else "up", problem)
            return False
        if by > 0:
            # Back soon after a step up: that one came too early.
            soon = last is not None and not last.down and (last.query, last.above) == rung
            wait = self._waits.get(rung, self.calm)
            again = soon and since <= 2 * wait
            self._waits[rung] = min(2 * wait, LONGEST * self.calm) if again else self.calm
        self._costs.clear()
        self._fresh, self._measured, self._since = True, False, 0
        self._last = _Move(query.name, rung[1], by > 0, before)
        LOG.info("query %r: step %s to version %d of its steps", query.name, "down" if by > 0 else "up", step + by)
        return True

    def figures(self, queries: Mapping[str, SteppedQuery]) -> dict[str, Any]:
        """Return the deadline, the seconds of the last push, and by query its step, as JSON values."""
        return {"deadline": self.deadline, "seconds": self.seconds, "steps": self.step_of(queries)}


def _check_steps(name: str, versions: Sequence[Query | None], output: Output, how: How, sources: Sources) -> None:
    """Raise InputError or QueryError for steps that cannot be taken."""
    if len(versions) < 2:
        raise InputError(f"shed_load: query {name!r} needs two steps at least, the full version first")
    queries = [version for version in versions if version is not None]
    if not queries or versions[: len(queries)] != queries or len(versions) - len(queries) > 1:
        raise InputError(f"shed_load: query {name!r}: None, a pause, can only be the last step")
    for query in queries:
        if not isinstance(query, Query):
            raise InputError(f"shed_load: query {name!r}: a step is a Query or None, not {type(query).__name__}")
        sources.check(query)
    for above, below in pairwise(queries):
        check_change(name, above, below, how, output, sources)
        check_change(name, below, above, how, output, sources)
        if CHANGES[how].warm and (missing := sources.unkept(above)) is not None:
            raise InputError(
                f"shed_load: query {name!r}: a step up by handover needs the rows in the windows of the version above,"
                f" and the engine does not keep those of stream {missing!r}: give the stream of the engine a window"
                " that is as long, Stream(…, window=…), or take how='immediate'"
            )


def _seconds(deadline: object) -> float:
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise InputError(f"shed_load: deadline is a timedelta or seconds, more than 0, not {deadline!r}")
    return float(seconds)


def _pushes(name: str, value: object) -> int:
    number = at_least(1, value)
    if number is None:
        raise InputError(f"shed_load: {name} is a number of pushes, 1 or more, not {value!r}")
    return number
