"""Control elements that wait for their micro-batch: starts, stops and changes of queries.

An element takes effect before a micro-batch: the next one, the one with a given number, or the first one before which
the watermark has reached an event time. The elements of one query take effect in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eddy.queries.changes import How
from eddy.queries.lineage import Stop
from eddy.query.query import Query
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.streaming.sinks import Sink


@dataclass(frozen=True)
class When:
    """The position of an element.

    batch  number of the micro-batch; None = not given
    time   event time in ticks that the watermark must have reached; None = not given
    """

    batch: int | None = None
    time: int | None = None

    def reached(self, batch: int, watermark: int | None) -> bool:
        """Return whether the position is before this micro-batch; `watermark` is the watermark before the
        micro-batch."""
        if self.batch is not None and batch < self.batch:
            return False
        return self.time is None or (watermark is not None and watermark >= self.time)


@dataclass(frozen=True)
class StartElement:
    """Start a query; sink, warm, how, earlier and output as in `Hub.start`.

    event  name of the event in the history; None = the name of a start
    """

    name: str
    when: When
    query: Query
    sink: Sink
    warm: bool
    how: How | None = None
    earlier: tuple[Query, ...] = ()
    event: str | None = None
    output: JoinOutput = "append"


@dataclass(frozen=True)
class ChangeElement:
    """Replace a query by another one."""

    name: str
    when: When
    query: Query
    how: How


@dataclass(frozen=True)
class StopElement:
    """Stop a query."""

    name: str
    when: When
    how: Stop


Element = StartElement | ChangeElement | StopElement


@dataclass
class Elements:
    """Elements in the order in which they were given."""

    waiting: list[Element] = field(default_factory=list)

    def take(self, batch: int, watermark: int | None, act: Callable[[Element], None]) -> None:
        """Call a function with each element whose position is reached, and remove the element."""
        left: list[Element] = []
        held: set[str] = set()
        for element in self.waiting:
            if element.name in held or not element.when.reached(batch, watermark):
                held.add(element.name)
                left.append(element)
            else:
                act(element)
        self.waiting = left

    def newest_query(self, name: str) -> Query | None:
        """Return the query of the newest waiting start or change of a name, None without one."""
        queries = [
            element.query for element in self.waiting if element.name == name and not isinstance(element, StopElement)
        ]
        return queries[-1] if queries else None

    def newest_output(self, name: str) -> JoinOutput | None:
        """Return the form of the results of the newest waiting start of a name, None without one."""
        outputs = [
            element.output for element in self.waiting if element.name == name and isinstance(element, StartElement)
        ]
        return outputs[-1] if outputs else None

    def sinks(self) -> list[tuple[str, Sink]]:
        """Return the queries that are to start, and their sinks, the newest ones last."""
        return [(element.name, element.sink) for element in self.waiting if isinstance(element, StartElement)]

    def ends(self, name: str, *, at_once: bool = False) -> bool:
        """Return whether the newest waiting element of a name stops it; `at_once`: and no version of it drains then."""
        newest = next((element for element in reversed(self.waiting) if element.name == name), None)
        return isinstance(newest, StopElement) and not (at_once and newest.how == "drain")
