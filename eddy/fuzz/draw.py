"""Draw cases with Hypothesis, which also makes a case that fails smaller.

A step is drawn as bytes, each of which picks from a short list; the picks are evaluated from the first step to the
last. A step or a row can therefore be left out without changing what the others are drawn from, which is how Hypothesis
removes most of a case. Zero bytes are the simplest: rows in turn, one key, a left-deep plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from hypothesis import reject
from hypothesis import strategies as st

from eddy.fuzz.case import (
    CHAOS,
    NAMES,
    BadPushStep,
    Case,
    Column,
    Compared,
    DemoteStep,
    Hanging,
    LimitStep,
    Operator,
    OutputMode,
    PushStep,
    ReloadStep,
    Results,
    Row,
    Shape,
    Step,
    TransitionStep,
)
from eddy.fuzz.graphs import SHAPES, edges
from eddy.fuzz.oracle import Oracle
from eddy.fuzz.times import UNITS, CaseTimes
from eddy.query.query import Query
from eddy.routing.policies import POLICIES
from eddy.runtime import Runtime
from eddy.streams.windows import Range, Rows, Unbounded, Window
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES
from stairs.errors import QueryError

MOST_RESULTS = 100
"""A row that would complete more is left out: it would cost time and show nothing new."""
MOST_STEPS = 20
FLOOD_ROUNDS = 12
ROW_BYTES = 8
Pace = tuple[int, int]
"""By how much a stream is behind the others, and how many sixteenths of the event time it lags behind later."""
ALIKE: tuple[Pace, ...] = ((0, 0),)
PACES: tuple[tuple[Pace, ...], ...] = (ALIKE, ALIKE, ((0, 0), (3, 0)), ((0, 0), (0, 2), (0, 5)), ((9, 0), (0, 0)))
KEY_VALUES = ((0, 0, 0, 1, 1, 2), (0, 0, 0, 0, 0, 1), (0, 1, 2, 3))
"""Values of keys, before they drift."""

DECIDE_EVERY = (1, 2, 3, 5, 9, 20)
"""Arrivals between decisions: too few for a policy to measure time, so that it decides the same again."""
ROOM = (4_000, 6_000, 10_000, 16_000, 32_000, 72_000)
"""Bytes that a bound leaves above the empty state."""
BRANCHED_ROOM = 12
"""A query with branches has this many times the room: each of its joins has windows of its own."""
LONG_KEY = 400
"""Additional characters of some text keys, so that strings exhaust the room."""
ALL_POLICIES = (CHAOS, *POLICIES)

OPERATORS: tuple[Operator, ...] = ("<=", "!=", "<", ">=")

STEP_KINDS = (
    *["push"] * 5,
    "flood",
    "watermark",
    *["transition"] * 2,
    "schedule",
    "demote",
    "reload",
    "fail",
    "fail",
    "limit",
)

DrawnStep = tuple[str, bytes, bytes]
"""A step as it is drawn: its kind, its picks, the picks of its rows."""


Joined = tuple[list[tuple[int, int]], tuple[Hanging, ...]]
"""The pairs of streams that predicates connect, and the branches."""


@st.composite
def branched(draw: st.DrawFn, n: int) -> Joined:
    """Draw branches over streams 0 to n - 1: each stream joins those of its node, or begins a branch of its own."""
    pairs: list[tuple[int, int]] = []
    hows: list[Literal["left", "semi", "anti"]] = []
    parents: list[int] = []
    nodes: list[list[int]] = [[0]]
    for k in range(1, n):
        # A branch hangs on the newest node, or on one on whose path that lies: so streams keep their order.
        above = [len(nodes) - 2]
        while above[-1] >= 0:
            above.append(parents[above[-1]])
        if draw(st.integers(0, 3)) < 3 or (k == n - 1 and not hows):
            parents.append(draw(st.sampled_from(above)))
            hows.append(draw(st.sampled_from(("left", "anti", "semi", "left"))))
            nodes.append([])
        node, path = len(nodes) - 2, []
        while node >= -1:
            path += nodes[1 + node]
            node = parents[node] if node >= 0 else -2
        nodes[-1].append(k)
        pairs.append((draw(st.sampled_from(sorted(path))), k))
    hanging = [Hanging(how, tuple(streams), up) for how, streams, up in zip(hows, nodes[1:], parents, strict=True)]
    return pairs, tuple(hanging)


@st.composite
def shapes(draw: st.DrawFn, max_streams: int, branches: bool = False) -> Shape:
    """Draw a query of 2 to `max_streams` streams, with branches if that is wanted."""
    n = draw(st.integers(2, max_streams))
    kind = "branches" if branches else draw(st.sampled_from((*SHAPES, "one class")))
    hanging: tuple[Hanging, ...] = ()
    if branches:
        pairs, hanging = draw(branched(n))
    else:
        pairs = edges("chain" if kind == "one class" else kind, n)
    # Edges that share a column name share a class where they meet, and so do the streams at their ends.
    labels = 1 if kind == "one class" else draw(st.sampled_from((len(pairs), 2, 1)))
    equalities: list[tuple[Column, Column]] = []
    columns: list[list[str]] = [[] for _ in range(n)]
    scanned = draw(st.sets(st.sampled_from(pairs), max_size=2)) if draw(st.integers(0, 5)) == 5 else set()
    for k, ends in enumerate(pairs):
        if ends in scanned:
            continue
        column = f"k{k % labels}"
        for i in ends:
            if column not in columns[i]:
                columns[i].append(column)
        equalities.append(((ends[0], column), (ends[1], column)))
    kinds = draw(st.lists(st.sampled_from((Rows, Range, Unbounded)), min_size=n, max_size=n))
    if draw(st.booleans()):
        kinds = kinds[:1] * n
    # Small ones turn over often; with large ones states come to need more room.
    sizes = st.integers(1, 4) if n > 4 else st.integers(1, 6) | st.sampled_from((12, 30))
    windows: list[Window | None] = [kind() if kind is Unbounded else kind(draw(sizes)) for kind in kinds]
    compared = draw(comparisons(pairs)) if draw(st.integers(0, 3)) == 3 else []
    # Where no equality remains, comparisons connect the streams.
    taken = {frozenset((left[0], right[0])) for left, _, right, _ in compared if left[1] == "x"}
    scanned -= {ends for ends in scanned if frozenset(ends) in taken}
    compared += [((i, "x"), draw(st.sampled_from(OPERATORS)), (k, "x"), 0) for i, k in sorted(scanned)]
    if any(left[1] == "t" for left, _, _, _ in compared):
        # The intervals connect all streams, so a window may follow from them. A RANGE could contradict them.
        windows = [None if isinstance(window, Range) or draw(st.booleans()) else window for window in windows]
    ranged = any(isinstance(window, Range | None) for window in windows)
    shape = Shape(
        tuple(windows),
        tuple(map(tuple, columns)),
        tuple(equalities),
        **(draw(timings(n)) if ranged else {}),
        text=draw(st.sampled_from((False, False, False, True))),
        breakable=draw(st.booleans()),
        comparisons=tuple(comparison for comparison in compared if ranged or comparison[0][1] == "x"),
        branches=hanging,
        times=draw(event_times(n)) if ranged else CaseTimes(),
    )
    if branches:
        try:
            shape.query()
        except QueryError:
            # A stream would be kept forever, or the intervals on a path contradict each other.
            reject()
    return shape


@st.composite
def event_times(draw: st.DrawFn, n: int) -> CaseTimes:
    """Draw the units of the event times of n streams: mostly none."""
    if draw(st.integers(0, 3)) < 3:
        return CaseTimes()
    return CaseTimes(tuple(draw(st.lists(st.sampled_from(UNITS), min_size=n, max_size=n))))


@st.composite
def timings(draw: st.DrawFn, n: int) -> dict[str, Any]:
    """Draw what decides the watermark of a query of n streams."""
    options: dict[str, Any] = {"lateness": draw(st.sampled_from((0, 0, 1, 4)))}
    options["watermark"] = draw(st.sampled_from(("slowest", "slowest", "fastest")))
    if options["watermark"] == "slowest":
        options["idle_after"] = draw(st.sampled_from((None, None, 0, 3)))
    if draw(st.integers(0, 2)) == 2:
        options["late_of"] = tuple(draw(st.lists(st.sampled_from((None, 0, 2, 5)), min_size=n, max_size=n)))
    return options


@st.composite
def comparisons(draw: st.DrawFn, pairs: Sequence[tuple[int, int]]) -> list[Compared]:
    """Draw intervals along all edges, or comparisons of values along some, or both.

    Intervals that are drawn one by one may contradict each other. So either equal times fulfil all of them, or times
    that rise from stream to stream.
    """
    compared: list[Compared] = []
    kind = draw(st.integers(0, 3))
    spans = ((1, 9), (1, 20)) if kind == 3 else ((0, 3), (-2, 2), (-1, 9), (-9, 0), (0, 0))
    for i, k in map(sorted, pairs if kind else ()):
        low, high = draw(st.sampled_from(spans))
        compared += [((k, "t"), ">=", (i, "t"), low), ((k, "t"), "<=", (i, "t"), high)]
    if kind in (0, 1):
        for i, k in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3, unique_by=frozenset)):
            op = draw(st.sampled_from(OPERATORS))
            compared.append(((i, "x"), op, (k, "x"), draw(st.integers(0, 2))))
    return compared


class Planned(Protocol):
    """The part of a query that plans are drawn from."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        ...

    @property
    def branches(self) -> tuple[Hanging, ...]:
        """The branches."""
        ...

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The streams of each inner join."""
        ...

    @property
    def links(self) -> frozenset[tuple[int, int]]:
        """The pairs of streams that predicates connect."""
        ...


def plan_text(shape: Planned, picks: bytes) -> str:
    """Return the plan that some bytes pick; those of all inner joins, if the query has branches."""
    return "; ".join(_plan_text(shape, path, picks) for path in shape.paths)


def _plan_text(shape: Planned, streams: Sequence[int], picks: bytes) -> str:
    """Return the plan that some bytes pick: each picks two parts to join of those that an equality connects."""
    parts = [(frozenset([i]), NAMES[i]) for i in streams]
    left_deep = picks[0] % 2 == 0
    at = 0
    while len(parts) > 1:
        firsts = range(1) if left_deep and at else range(len(parts))
        pairs = [
            (i, j)
            for i in firsts
            for j in range(len(parts))
            if i != j and any((a, b) in shape.links for a in parts[i][0] for b in parts[j][0])
        ]
        at += 1
        i, j = pairs[picks[at % len(picks)] % len(pairs)]
        joined = (parts[i][0] | parts[j][0], f"({parts[i][1]} {parts[j][1]})")
        parts = [joined, *(part for k, part in enumerate(parts) if k not in (i, j))]
    return parts[0][1][1:-1]


def inner_states(plan: str, shape: Planned) -> list[str]:
    """Return the inner states of a plan by their streams, those below others first.

    >>> inner_states("((R S) T) U", Shape((Rows(1),) * 4, (("k",),) * 4, ()))
    ['R S', 'R S T']
    """
    joins = parse(plan, shape.names).inner()[:-1]
    return [" ".join(NAMES[j] for j in sorted(node.streams)) for node in joins]


def some_states(plan: str, shape: Planned, pick: int) -> tuple[str, ...] | None:
    """Return the states that a byte picks, a bit for each; None leaves the choice to the runtime."""
    if pick % 2 == 0:
        return None
    return tuple(state for k, state in enumerate(inner_states(plan, shape)) if pick >> (k + 1) & 1)


def bounds_of(query: Query, rooms: Sequence[int] = ROOM, output: OutputMode = "append") -> list[int]:
    """Return bounds on the bytes of a runtime, one for each room. The empty state keeps to them under each strategy."""
    # Of all strategies it has the most tables.
    empty = Runtime(query, strategy="eddy-jisc", bounded=bool(query.branches), output=output).nbytes
    return [empty + room * (BRANCHED_ROOM if query.branches else 1) for room in rooms]


@dataclass
class PlanWriter:
    """Draws the steps that change plans, in all kinds of cases."""

    shape: Planned
    strategies: Sequence[str]
    policies: Sequence[str]
    plans: list[str]
    strategy: str
    policy: str
    bounds: Sequence[int]
    waiting: bool = field(default=False, init=False)
    """Whether a transition may be scheduled."""

    def limit(self, picks: bytes) -> Iterator[LimitStep]:
        """Yield another bound on bytes. A case that starts without one gets none: most are about something else."""
        if self.bounds:
            yield LimitStep((None, *self.bounds, *self.bounds)[picks[0] % (1 + 2 * len(self.bounds))])

    def demote(self, picks: bytes) -> DemoteStep:
        """Return a key of a state that is dropped."""
        return DemoteStep(picks[0], picks[1])

    def schedule(self, picks: bytes, ahead: int) -> TransitionStep:
        """Return a transition at a position."""
        self.waiting = not self.shape.branches
        return self.transition(picks, ahead)

    def transition(self, picks: bytes, ahead: int | None) -> TransitionStep:
        """Return a transition, with the states to store if the strategy takes a choice."""
        plan = self.plan(picks)
        if self.shape.branches:
            # Each inner join changes on its own, at once.
            plans = plan.split("; ")
            return TransitionStep(plans[picks[1] % len(plans)])
        store = some_states(plan, self.shape, picks[0]) if self.strategy in CHOOSING else None
        whole = ahead is None and self.strategy == "parallel-track" and picks[0] % 3 == 2
        return TransitionStep(plan, ahead, store, " ".join(self.shape.names) if whole else None)

    def reload(self, picks: bytes) -> ReloadStep:
        """Return a restored runtime. The fuzzer's own policy must be given again."""
        others = [None, *(name for name in self.strategies if STRATEGIES[name].changes or not self.waiting)]
        strategy = others[picks[1] % len(others)]
        policy = self.policies[picks[4] % len(self.policies)] if picks[3] % 2 else None
        if policy is None and strategy not in (None, self.strategy):
            # Instead of the default, which for "eddy" depends on measured time.
            policy = "fixed" if "fixed" in self.policies else self.policy
        elif policy is None and self.policy == CHAOS:
            policy = CHAOS
        self.strategy, self.policy = strategy or self.strategy, policy or self.policy
        return ReloadStep(self.plan(picks) if picks[0] % 2 and self.shape.paths else None, strategy, policy, picks[5])

    def plan(self, picks: bytes) -> str:
        """Return a plan: a new one, or an earlier one."""
        if picks[-1] % 3 == 2:
            return self.plans[-1 - picks[2] % len(self.plans)]
        self.plans.append(plan_text(self.shape, picks[2:-1]))
        return self.plans[-1]


@dataclass
class StepWriter(PlanWriter):
    """Turns drawn steps into the steps of a case, one after the other."""

    shape: Shape
    key_values: Sequence[int] = KEY_VALUES[0]
    drift: int = 0
    paces: Sequence[Pace] = PACES[0]
    clock: int = 0
    oracle: Oracle = field(init=False)

    def __post_init__(self) -> None:
        self.oracle = self.shape.oracle()
        self.timed = self.shape.query().graph.timed
        self.numbers = [0] * len(self.shape.windows)

    def steps(self, drawn: DrawnStep) -> Iterator[Step]:
        """Yield the steps of a drawn step: one, or none."""
        kind, picks, rows = drawn
        match kind:
            case "push":
                yield PushStep(self.rows(rows, arrive=True))
            case "flood":
                # Two streams repeat the same rows: a state grows while there is no result.
                yield PushStep(self.rows(rows[: 2 * ROW_BYTES] * FLOOD_ROUNDS, arrive=True, period=2))
            case "watermark":
                # Also without rows: event time advances while all streams are silent.
                pushed, now = self.rows(rows, arrive=True), self.oracle.clock.now
                if self.timed:
                    watermark = max(self.clock - 8 if now is None else now, self.clock - 8) + picks[0] % 12
                    self.oracle.clock.give(watermark)
                    self.oracle.due = watermark
                    yield PushStep(pushed, watermark)
                else:
                    yield PushStep(pushed)
            case "fail":
                # Half of these pushes contain a transition, if the strategy allows transitions.
                if picks[1] % 2:
                    yield self.schedule(picks, 1 + picks[1] // 2 % 6)
                breaks = self.shape.breakable and picks[0] % 4
                yield BadPushStep(self.rows(rows, arrive=False), "where" if breaks else "order")
            case "demote":
                yield self.demote(picks)
            case "reload":
                yield self.reload(picks)
            case "limit":
                yield from self.limit(picks)
            case "schedule":
                yield self.schedule(picks, picks[1] % 12)
            case _:
                yield self.transition(picks, None)

    def rows(self, picks: bytes, arrive: bool, period: int = 1 << 30) -> tuple[Row, ...]:
        """Return a row for each ROW_BYTES bytes, without those that would complete too many results.

        Rows come from one stream after the other, starting again after `period` rows.
        """
        rows = []
        for k in range(len(picks) // ROW_BYTES):
            row_bytes = picks[k * ROW_BYTES : (k + 1) * ROW_BYTES]
            i = (k % period + row_bytes[0]) % len(self.shape.windows)
            self.clock += row_bytes[1] % 3 == 1
            text, base = self.shape.text, self.drift * self.clock
            keys: dict[str, int | str | None] = {}
            for x, column in enumerate(self.shape.columns[i]):
                value = self.key_values[row_bytes[3 + x % (ROW_BYTES - 3)] % len(self.key_values)] + base // 4
                long = "-" * LONG_KEY * (row_bytes[2] % 8 == 7)
                keys[column] = f"key {value}{long}" if text else value
            if row_bytes[2] == 255 and keys:
                keys[self.shape.columns[i][0]] = None
            lag, drag = self.paces[i % len(self.paces)]
            age = lag + self.clock * drag // 16
            age += row_bytes[2] % 16 % (self.shape.lateness + 3) if row_bytes[2] % 4 == 3 else 0
            time, value = (
                self.clock - age if self.shape.timed else 0,
                row_bytes[7] // 16 % 4 if self.shape.valued else 0,
            )
            row = Row(i, keys, time, self.numbers[i], value)
            self.numbers[i] += 1
            name, values = NAMES[i], self.shape.values(row)
            if self.oracle.completes_more_than(MOST_RESULTS, name, values):
                continue
            if arrive:
                self.oracle.arrive(name, values)
            rows.append(row)
        return tuple(rows)


CHOOSING = ("eddy", "moving-state")
"""The strategies under which the caller chooses states."""
_PICKS = st.binary(min_size=10, max_size=10)
_ROWS = st.binary(max_size=4 * ROW_BYTES) | st.binary(min_size=6 * ROW_BYTES, max_size=24 * ROW_BYTES)
DRAWN_STEPS: st.SearchStrategy[DrawnStep] = st.one_of(
    *(
        st.tuples(
            st.just(kind),
            st.just(bytes(10)) if kind in ("push", "flood") else _PICKS,
            _ROWS if kind in ("push", "flood", "fail", "watermark") else st.just(b""),
        )
        for kind in STEP_KINDS
    )
)


def often_chaos(policies: Sequence[str]) -> list[str]:
    """Return policies, the simplest first, and the fuzzer's own as often as all others together."""
    ordered = [name for name in ("fixed",) if name in policies] + [name for name in policies if name != "fixed"]
    return ordered + [CHAOS] * (len(ordered) - 2 if CHAOS in policies else 0)


@st.composite
def cases(
    draw: st.DrawFn,
    strategies: Sequence[str],
    outputs: Sequence[OutputMode],
    max_streams: int = 6,
    policies: Sequence[str] = ALL_POLICIES,
    branches: bool = False,
    strategy: str | None = None,
) -> Case:
    """Draw a case for one of the policies. It begins with `strategy`, by default one of the strategies."""
    strategy = draw(st.sampled_from([strategy] if strategy else list(strategies)))
    shape = draw(shapes(max_streams, branches))
    plan = plan_text(shape, draw(st.binary(min_size=8, max_size=8)))
    results: list[Results] = ["rows", "ids", "rows", "count"]
    policy = draw(st.sampled_from(often_chaos(policies)))
    key_values, drift = draw(st.sampled_from(KEY_VALUES)), draw(st.integers(0, 1))
    room = draw(st.sampled_from((None,) * 10 + ROOM))
    bounds = [] if room is None else bounds_of(shape.query())
    max_bytes = None if room is None else bounds[ROOM.index(room)]
    paces = draw(st.sampled_from(PACES))
    plans = strategies, policies, [plan], strategy, policy, bounds
    writer = StepWriter(shape, *plans, key_values=key_values, drift=drift, paces=paces)
    case = Case(
        shape,
        plan,
        strategy,
        draw(st.sampled_from(list(outputs))),
        draw(st.sampled_from(results)),
        draw(st.sampled_from((0, 1, 3))) if strategy in ("jisc", "eddy") else 0,
        draw(st.sampled_from((None, 8, 30))),
        policy=policy,
        seed=draw(st.integers(0, 255)),
        decide_every=draw(st.sampled_from(DECIDE_EVERY)),
        store=some_states(plan, shape, draw(st.integers(0, 255))) if strategy in CHOOSING and not branches else None,
        max_bytes=max_bytes,
    )
    # Hypothesis draws lists of about twice their minimum length.
    few, many = st.lists(DRAWN_STEPS, min_size=1, max_size=4), st.lists(DRAWN_STEPS, min_size=6, max_size=MOST_STEPS)
    return replace(case, steps=tuple(step for drawn in draw(few | many) for step in writer.steps(drawn)))
