"""Load shedding: an engine runs cheaper versions of its queries while pushes take longer than their deadline.

The versions are prepared by the user: narrower windows, a sample of the keys, fewer columns, or a pause. Each step from
one version to the next is a change of the query (`eddy.queries.changes`), between two pushes. This is use case 3 of
Sheykh Esmaili and others (SIGMOD 2011), with a rule that decides when.

The rule. Down: the last `patience` pushes were all late. The next step is that of the first query that has one left.
Up: `calm` pushes would have been in time at the version above, with a fifth to spare; a push that would not takes back
what `LOSS` others have counted. What a step saves is measured: the seconds of an arrival in the pushes before the step
and in those after it. A step up that had to be taken back soon, or that itself takes longer than the deadline, doubles
the wait for the next one, so a load between two versions does not swing between them. Pushes without rows count only if
they are late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from eddy.log import LOG
from eddy.queries.alone import Output, check_change
from eddy.queries.changes import CHANGES, How
from eddy.queries.lineage import require_ends, require_one_table
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.query.text import difference, query_text
from eddy.streams.numbers import at_least
from stairs.errors import EddyError, InputError

SPARE = 0.8
"""The part of the deadline that a push may take at the version above, for a step up."""
LOSS = 4
"""Pushes in time that one push takes back: a step up needs more than four of five in time."""
LONGEST = 16
"""The wait for a step up is at most so many times `calm` pushes."""
AGING = 0.8
"""A measured gain is multiplied by this after each wait in which pushes were in time."""
MOST = 100.0
"""A gain is at most this, and at least one part in so many: pushes of few rows say little."""
STUCK = 4
"""As many times the usual number of pushes, and a query steps although a change of it is under way."""


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
    def last_element(self) -> int: ...

    @property
    def overlaps(self) -> bool: ...

    @property
    def given_ahead(self) -> bool: ...

    def step(self, query: Query | None, how: How, direction: str) -> None:
        """Change to a version, None = pause; the history says in which direction."""


class Ladder:
    """The steps of one query: its versions, the full one first, and perhaps None, a pause, as the last one.

    Which step the query is at follows from the version that it runs.
    """

    def __init__(self, query: SteppedQuery, steps: Sequence[Query | None], how: How, sources: Sources) -> None:
        self.name = query.name
        self.steps = _checked_steps(query, steps, how, sources)
        newest, equal = query.query, _places(query.query, self.steps)
        if query.state == "stopped":
            raise InputError(f"shed_load: query {self.name!r} is stopped; restart it first")
        if not equal:
            raise InputError(
                f"shed_load: query {self.name!r} runs none of its steps; the version that it runs has to be one of them"
            )
        self._given = newest, equal[0]
        """The version that ran at first, perhaps of a snapshot and equal to a step, and its place."""
        self._pause = query.last_element if query.paused else None
        """The position of the pause that is a step, and not one of the user's."""

    def step_of(self, query: SteppedQuery) -> int | None:
        """Return the step that the query is at, None if it runs another version, is paused by its user or ends."""
        newest, last = query.query, len(self.steps) - 1
        place = next((step for step, version in enumerate(self.steps) if version is newest), None)
        if place is None and newest is self._given[0]:
            place = self._given[1]
        if query.paused:
            mine = self.steps[-1] is None and place == last - 1 and query.last_element == self._pause
            return last if mine else None
        return place if query.state in ("running", "changing") else None

    def take(self, query: SteppedQuery, step: int, how: How, direction: str) -> None:
        """Take the query to a step."""
        query.step(self.steps[step], how, direction)
        self._pause = query.last_element if self.steps[step] is None else None


class _Rung(NamedTuple):
    """Step `above` of a query and the next one, between which the query steps."""

    query: str
    above: int


class _Move(NamedTuple):
    """A step that was taken; `before`: seconds of an arrival before it, None if they are not known."""

    rung: _Rung
    down: bool
    before: float | None


class Shedding:
    """The prepared versions of some queries, and when to step between them.

    deadline   seconds that a push may take
    steps      by query its versions, as in `Ladder`. The first query gives way first, and is restored last
    how        the kind of change
    patience, calm   see the module
    """

    def __init__(
        self,
        queries: Mapping[str, SteppedQuery],
        sources: Sources,
        deadline: float | timedelta,
        steps: object,
        how: How,
        patience: int,
        calm: int,
    ) -> None:
        self.deadline = _seconds(deadline)
        self.patience, self.calm = _pushes("patience", patience), _pushes("calm", calm)
        if how not in CHANGES:
            raise InputError(f"shed_load: how is one of {', '.join(map(repr, CHANGES))}, not {how!r}")
        self.how = how
        self.ladders = [Ladder(query, versions, how, sources) for query, versions in _stepped(queries, steps)]
        self.seconds = self.step_seconds = 0.0
        """Seconds of the last push, and of the last step."""
        self._late = self._early = self._easy = self._quiet = 0
        """Late pushes one after the other; pushes that would have been in time at the version above; that were in time;
        and those since the last late push."""
        self._costs: deque[tuple[float, int]] = deque(maxlen=self.patience)
        """Seconds and arrivals of the last pushes with rows since the last step."""
        self._fresh = self._measured = False
        """Whether the next push is the first one after a step, which may have more work; whether the last step has been
        measured."""
        self._last: _Move | None = None
        self._since = 0
        """Pushes since the last step."""
        self._gains: dict[_Rung, float] = {}
        """How many times the seconds of an arrival at the lower step the upper one takes."""
        self._waits: dict[_Rung, int] = {}
        """Pushes in time before a step up is tried again, if not `calm`."""
        self._told: set[str] = set()
        """The warnings since the last step."""

    def note(self, queries: Mapping[str, SteppedQuery], seconds: float, arrivals: int) -> None:
        """Take notice of a push, and take a step if it is time for one."""
        self.seconds, late = seconds, seconds > self.deadline
        if not arrivals and not late:
            return
        steps = {ladder: step for ladder in self.ladders if (step := self._step_of(ladder, queries)) is not None}
        overlapping = {ladder for ladder in steps if queries[ladder.name].overlaps}
        if self._fresh:
            self._fresh = False
            return
        self._since += 1
        if overlapping:
            self._costs.clear()  # the figures say nothing of either version
        elif arrivals:
            self._costs.append((seconds, arrivals))
        self._measure()
        self._late, self._quiet = (self._late + 1, 0) if late else (0, self._quiet + 1)
        if self._quiet == self.calm:
            self._told.clear()
        if self._late >= self.patience and self._down(queries, steps, overlapping):
            return
        self._up(queries, steps, overlapping)

    @staticmethod
    def _step_of(ladder: Ladder, queries: Mapping[str, SteppedQuery]) -> int | None:
        query = queries.get(ladder.name)
        return None if query is None or query.given_ahead else ladder.step_of(query)

    def _cost(self) -> float | None:
        """Return the seconds of an arrival in the last pushes, None if they are too few."""
        arrivals = sum(arrivals for _, arrivals in self._costs)
        return sum(seconds for seconds, _ in self._costs) / arrivals if len(self._costs) == self.patience else None

    def _measure(self) -> None:
        """Measure what the last step saves, once enough pushes have come since."""
        if self._last is None or self._measured or (after := self._cost()) is None:
            return
        self._measured, before = True, self._last.before
        if before and after:
            gain = before / after if self._last.down else after / before
            self._gains[self._last.rung] = min(max(gain, 1 / MOST), MOST)

    def _down(self, queries: Mapping[str, SteppedQuery], steps: Mapping[Ladder, int], overlapping: set[Ladder]) -> bool:
        """Take a step down, and return whether there was one; one of a query that changes only if that takes long."""
        lower = [ladder for ladder, step in steps.items() if step + 1 < len(ladder.steps)]
        ready = [ladder for ladder in lower if ladder not in overlapping]
        if self._late >= STUCK * self.patience:
            ready = [*ready, *(ladder for ladder in lower if ladder in overlapping)]
        for ladder in ready:
            if self._move(ladder, queries[ladder.name], steps[ladder], 1):
                return True
        if not lower:
            why = "no query has a cheaper version to step to"
            self._tell(why, f"pushes take longer than {self.deadline:g} s, the last one {self.seconds:g} s, and {why}")
        return False

    def _up(self, queries: Mapping[str, SteppedQuery], steps: Mapping[Ladder, int], overlapping: set[Ladder]) -> None:
        """Take a step up if it is time for one."""
        upper = [ladder for ladder, step in reversed(list(steps.items())) if step > 0]
        if not upper:
            return
        rung, allowed = _Rung(upper[0].name, steps[upper[0]] - 1), SPARE * self.deadline
        wait, gain = self._waits.get(rung, self.calm), self._gains.get(rung, 1.0)
        wait *= STUCK if overlapping else 1
        self._early = self._early + 1 if self.seconds * gain <= allowed else max(self._early - LOSS, 0)
        self._easy = self._easy + 1 if self.seconds <= allowed else max(self._easy - LOSS, 0)
        if self._early >= wait:
            self._early = self._easy = 0
            any(self._move(ladder, queries[ladder.name], steps[ladder], -1) for ladder in upper)
        elif self._easy >= wait:
            # An old figure is trusted less and less, because the step above may cost less by now.
            self._gains[rung], self._easy = max(AGING * gain, 1.0), 0

    def _move(self, ladder: Ladder, query: SteppedQuery, step: int, by: int) -> bool:
        """Take a step of a query; return whether the engine took it."""
        rung, direction = _Rung(ladder.name, min(step, step + by)), "down" if by > 0 else "up"
        last, since, wait = self._last, self._since, self._waits.get(rung, self.calm)
        kept = dict(vars(self))
        # First, so that an interrupt in the step leaves the figures of a step that was taken.
        self._last, self._costs = _Move(rung, by > 0, self._cost()), deque(maxlen=self.patience)
        self._fresh, self._measured = True, False
        self._late = self._early = self._easy = self._since = 0
        began = perf_counter()
        try:
            ladder.take(query, step + by, self.how, direction)
        except EddyError as problem:
            vars(self).update(kept)
            self._tell(f"{rung} {direction}", f"query {query.name!r}: a step {direction} was refused: {problem}")
            return False
        self.step_seconds = perf_counter() - began
        soon = by > 0 and last is not None and not last.down and last.rung == rung and since <= 2 * wait
        if soon or (by < 0 and self.step_seconds > self.deadline):
            self._waits[rung] = min(2 * wait, LONGEST * self.calm)
        elif by > 0:
            self._waits.pop(rung, None)
        self._told.clear()
        LOG.info("query %r: step %s to version %d of its steps", query.name, direction, step + by)
        return True

    def _tell(self, what: str, message: str) -> None:
        """Log a warning, once until the next step."""
        if what not in self._told:
            self._told.add(what)
            LOG.warning("%s", message)

    def figures(self, queries: Mapping[str, SteppedQuery]) -> dict[str, Any]:
        """Return the deadline, the seconds of the last push and step, and by query its step, as JSON values."""
        steps = {ladder.name: self._step_of(ladder, queries) for ladder in self.ladders}
        return {
            "deadline": self.deadline,
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "steps": steps,
        }


def _stepped(queries: Mapping[str, SteppedQuery], steps: object) -> list[tuple[SteppedQuery, Sequence[Query | None]]]:
    """Return the queries with their versions. Raises InputError."""
    if not isinstance(steps, Mapping) or not steps:
        raise InputError(
            "shed_load: steps has the versions of each query by its name, as in {'query': [full, cheaper]}, not"
            f" {steps!r}"
        )
    for name in steps:
        if name not in queries:
            raise InputError(f"shed_load: there is no query {name!r}; there are {', '.join(queries) or 'none'}")
    return [(queries[name], versions) for name, versions in steps.items()]


def _checked_steps(query: SteppedQuery, steps: object, how: How, sources: Sources) -> list[Query | None]:
    """Return the steps of a query. Raises InputError or QueryError for those that cannot be taken."""
    name, output, kind = query.name, query.output, CHANGES[how]
    if isinstance(steps, Query | str) or not hasattr(steps, "__iter__"):
        raise InputError(f"shed_load: query {name!r}: its steps are a list, the full version first, not {steps!r}")
    given = list(steps)
    queries = [version for version in given if version is not None]
    if len(given) < 2:
        raise InputError(f"shed_load: query {name!r} needs two steps at least, the full version first")
    if not queries or None in given[: len(queries)] or len(given) - len(queries) > 1:
        raise InputError(f"shed_load: query {name!r}: None, a pause, can only be the last step")
    for version in queries:
        if not isinstance(version, Query):
            raise InputError(f"shed_load: query {name!r}: a step is a Query or None, not {type(version).__name__}")
    for version in queries:
        sources.check(version)
        if len(_places(version, queries)) > 1:
            raise InputError(
                f"shed_load: query {name!r}: two of its steps are equal, {version!r}; functions in filters are compared"
                " by their names"
            )
        if kind.drains:
            require_ends(name, version, repr(how))
    require_one_table(name, queries)
    for above, below in pairwise(queries):
        check_change(name, above, below, how, output, sources)
        check_change(name, below, above, how, output, sources)
        if kind.warm and (missing := sources.unkept(above)) is not None:
            raise InputError(
                f"shed_load: query {name!r}: a step up by handover needs the rows in the windows of the version above,"
                f" and the engine does not keep those of stream {missing!r}: give the stream of the engine a window"
                " that is as long, Stream(…, window=…), or take how='immediate'"
            )
    return given


def _places(query: Query, steps: Sequence[Query | None]) -> list[int]:
    """Return the places of a query among steps: those of the same object, else of equal ones."""
    same = [step for step, version in enumerate(steps) if version is query]
    text = query_text(query)
    equal = [step for step, version in enumerate(steps) if version is not None and difference(text, version) is None]
    return same if len(same) == 1 and len(equal) <= 1 else equal


def _seconds(deadline: Any) -> float:
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    plain = isinstance(seconds, int | float | np.integer | np.floating) and not isinstance(seconds, bool)
    number = float(seconds) if plain else 0.0
    if not 0 < number < float("inf"):
        raise InputError(f"shed_load: deadline is a timedelta or seconds, more than 0, not {deadline!r}")
    return number


def _pushes(name: str, value: object) -> int:
    number = at_least(1, value)
    if number is None:
        raise InputError(f"shed_load: {name} is a number of pushes, 1 or more, not {value!r}")
    return number
