"""The description of what runs: plans with their figures, as a tree of values.

`eddy.inspect.describe` makes the description. Text, JSON, DOT, SVG and HTML are all rendered from the description, so
all formats show the same figures. The description holds no reference to the engine, so another thread may render the
description while the engine works. None stands for a figure that is not known, as the figures of a plan that does not
run and of statistics that are off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StemFigures:
    """Figures of the window of a stream.

    arrivals, expired, late   since the start
    rows      live tuples;  bytes  of the window, with its payload;  marks  no-good marks: keys that probes skip
    probes    chains of it that the routes of the plan walked;  matches  tuples in them that passed the checks
    share     share of the stream in recent arrivals
    time      share of the time of all probes of the plan

    Where there are several joins, `late` is None because late rows belong to none of the joins, and `bytes` is None for
    SteMs that joins share.
    """

    rows: int
    arrivals: int
    expired: int
    late: int | None
    bytes: int | None
    marks: int
    probes: int
    matches: int
    share: float | None
    time: float | None


@dataclass(frozen=True)
class StemDescription:
    """A leaf of a plan: the SteM of a stream. `derived` says whether its window follows from intervals."""

    stream: str
    window: str
    derived: bool
    figures: StemFigures | None = None
    kind: Literal["stem"] = "stem"


@dataclass(frozen=True)
class StairDescription:
    """A stored state: the key by whose number it is probed, its live entries, keys to complete, and bytes.

    probes, matches, time   as in `StemFigures`
    """

    by: int
    entries: int
    pending: int
    bytes: int
    probes: int
    matches: int
    time: float | None


@dataclass(frozen=True)
class JoinDescription:
    """An inner node of a plan.

    on      numbers of the keys that both sides share
    root    whether it has the results
    stair   its stored state, None if it is virtual: computed on each probe
    words   whether the presence words of keys stand for its state
    """

    streams: tuple[str, ...]
    on: tuple[int, ...]
    left: StemDescription | JoinDescription
    right: StemDescription | JoinDescription
    root: bool
    stair: StairDescription | None = None
    words: bool = False
    kind: Literal["join"] = "join"


Node = StemDescription | JoinDescription


@dataclass(frozen=True)
class KeyDescription:
    """A key that streams share, numbered from 1: an equality, or a pair of streams that comparisons connect (`scan`).

    keys, bytes   of its directory
    """

    number: int
    text: str
    streams: tuple[str, ...]
    scan: bool
    keys: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class ComparisonDescription:
    """A comparison between two streams."""

    left: str
    right: str
    text: str


@dataclass(frozen=True)
class HopDescription:
    """A probe of a route; `time` is its share of the time of all probes of the plan."""

    to: tuple[str, ...]
    probes: int
    matches: int
    time: float | None

    @property
    def selectivity(self) -> float | None:
        """Matches per probe."""
        return self.matches / self.probes if self.probes else None


@dataclass(frozen=True)
class RouteDescription:
    """The probes of the arrivals of a stream, in order.

    walked   share of arrivals with a match at each leaf hop; None where routes have none
    virtual  whether its plan runs over SteMs only
    """

    stream: str
    hops: tuple[HopDescription, ...]
    walked: float | None
    virtual: bool


@dataclass(frozen=True)
class Pushes:
    """The last pushes (at most `jisc.strategies.history.AROUND`): their totals, and the seconds of the longest.

    buckets       (seconds, pushes of this process that took at most so long)
    total, spent  all pushes of this process, and their seconds
    """

    count: int
    arrivals: int
    results: int
    seconds: float
    longest: float
    buckets: tuple[tuple[float, int], ...]
    total: int
    spent: float


@dataclass(frozen=True)
class ChangeDescription:
    """A change of a plan or of its stored states."""

    position: int
    old: str
    new: str
    stored: str
    reason: str


@dataclass(frozen=True)
class PredictionDescription:
    """A plan that was considered: its stored states, and its predicted nanoseconds per arrival.

    alike   whether arrivals take the same routes as now
    """

    plan: str
    stored: tuple[str, ...]
    ns: float
    alike: bool = False


@dataclass(frozen=True)
class BenefitDescription:
    """The predicted nanoseconds per arrival that storing an inner state saves and costs, and its predicted size."""

    state: str
    saved: float
    upkeep: float
    entries: float
    bytes: int
    stored: bool

    @property
    def net(self) -> float:
        """Nanoseconds saved minus upkeep."""
        return self.saved - self.upkeep


@dataclass(frozen=True)
class MemoryDescription:
    """The bound on bytes, what windows, keys and payload take, and what stored states take."""

    max_bytes: int
    base: int
    stored: int


@dataclass(frozen=True)
class Reasons:
    """The reasons for the present plan.

    sampling          whether statistics are kept;  the next four are figures of the policy since the start
    room              the bound on bytes, None without one
    present           the present plan as predicted now; None if it was not predicted, or nothing has arrived
    measured          nanoseconds per arrival, None = too few arrivals
    considered_at     the position of the last decision, None before the first
    present_cost      the cost of the present plan as it was predicted then
    considered        the cheapest other plans of that decision; `more` others follow
    benefits          inner states of the present plan; `more_states` others follow
    predicted         whether predictions were asked for
    """

    policy: str
    sampling: bool
    samples: int
    decisions: int
    changes: int
    seconds: float
    room: MemoryDescription | None
    predicted: bool = False
    present: PredictionDescription | None = None
    measured: float | None = None
    considered_at: int | None = None
    present_cost: float | None = None
    considered: tuple[PredictionDescription, ...] = ()
    more: int = 0
    benefits: tuple[BenefitDescription, ...] = ()
    more_states: int = 0


@dataclass(frozen=True)
class JoinPlan:
    """One join and the plan that it runs.

    title          its name where there are several joins, else empty
    streams        in the order of the query
    old_plans      plans that run until their tuples have expired
    arrivals, results, bytes   since the start, and now; None for a plan that does not run
    memory         what takes these bytes, which add up to them
    last           the newest change, None before the first;  changes  the number of changes
    """

    title: str
    plan: str
    strategy: str
    streams: tuple[str, ...]
    old_plans: tuple[str, ...]
    tree: Node
    keys: tuple[KeyDescription, ...]
    comparisons: tuple[ComparisonDescription, ...]
    where: tuple[str, ...]
    routes: tuple[RouteDescription, ...] = ()
    arrivals: int | None = None
    results: int | None = None
    bytes: int | None = None
    memory: tuple[tuple[str, int], ...] = ()
    pushes: Pushes | None = None
    changes: int = 0
    last: ChangeDescription | None = None
    reasons: Reasons | None = None

    def stems(self) -> Iterator[StemDescription]:
        """Yield the leaves of the plan from left to right."""
        waiting: list[Node] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, StemDescription):
                yield node
            else:
                waiting += (node.right, node.left)


@dataclass(frozen=True)
class QueryDescription:
    """A query of an engine: where it is in its life, its newest version, its results so far, and the query as text."""

    name: str
    state: str
    version: int
    versions: int
    results: int
    text: str


@dataclass(frozen=True)
class ElementDescription:
    """A control element of a query of an engine, and the position from which it holds."""

    position: int
    query: str
    version: int
    event: str


@dataclass(frozen=True)
class Description:
    """A description of what runs.

    title      "Runtime", "Engine", …
    query      the query as text, None where there are several
    elements   the newest control elements of queries, oldest first
    arrivals, results, late, bytes, watermark   of all joins together; the watermark is in ticks
    watermark_time, watermark_seconds   the watermark as a time and as Unix time, None without timestamps
    waiting    matches whose partners are counted, and rows that wait (queries with branches or as-of joins)
    groups     a line on what computes groups, empty where there are none
    filters    lines on filters of several predicates
    """

    title: str
    query: str | None
    joins: tuple[JoinPlan, ...]
    queries: tuple[QueryDescription, ...] = ()
    elements: tuple[ElementDescription, ...] = ()
    arrivals: int | None = None
    results: int | None = None
    late: int | None = None
    bytes: int | None = None
    watermark: int | None = None
    watermark_time: str | None = None
    watermark_seconds: float | None = None
    waiting: int | None = None
    groups: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
