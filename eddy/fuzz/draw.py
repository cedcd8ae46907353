"""Draw cases with Hypothesis, which also makes a case that fails smaller.

What a step needs is drawn as bytes, each of which picks from a short list; what they pick is worked out from the first
step to the last. So a step or a row can be left out without changing what the others are drawn from, which is how most
of a case goes away when it shrinks. Zero bytes are the simplest: rows in turn, one key, a left-deep plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from hypothesis import strategies as st

from eddy.fuzz.case import (
    CHAOS,
    NAMES,
    BadPush,
    Case,
    Demote,
    Limit,
    OutputMode,
    Push,
    Reload,
    Results,
    Shape,
    Step,
    Transition,
)
from eddy.fuzz.judge import Column, Extent, Judge, Kind, Row
from eddy.routing.policies import POLICIES
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES

MOST_RESULTS = 100
"""A row that would complete more does not come: it would cost time and show nothing new."""
STEPS = 20
FLOOD = 12
ROW_BYTES = 8
SKEWS = ((0, 0, 0, 1, 1, 2), (0, 0, 0, 0, 0, 1), (0, 1, 2, 3))
"""Values of keys, before they drift."""

EVERY = (1, 2, 3, 5, 9, 20)
"""Arrivals from decision to decision: less than a policy needs to measure time, so that it decides the same again."""
BOUNDS = (8_000, 12_000, 16_000, 24_000, 40_000, 80_000)
LONG_KEY = 400
"""Characters by which some keys that are text are longer, so that strings are what there is no room for."""
ALL_POLICIES = (CHAOS, *POLICIES)

KINDS = (*["push"] * 5, "flood", *["transition"] * 2, "schedule", "demote", "reload", "fail", "fail", "limit")

Seed = tuple[str, bytes, bytes]
"""A step as it is drawn: its kind, its picks, the picks of its rows."""


def shape_edges(kind: str, n: int) -> list[tuple[int, int]]:
    """Give the pairs of streams that a join graph over n streams has equalities between.

    >>> shape_edges("snowflake", 6)
    [(0, 1), (0, 2), (1, 3), (2, 4), (1, 5)]
    """
    if n == 2:
        return [(0, 1)]
    if kind == "star":
        return [(0, k) for k in range(1, n)]
    if kind == "cycle":
        return [(k, (k + 1) % n) for k in range(n)]
    if kind == "clique":
        return list(combinations(range(n), 2))
    if kind == "snowflake":
        return [(0 if k < 3 else 1 + (k - 3) % 2, k) for k in range(1, n)]
    return [(k, k + 1) for k in range(n - 1)]


@st.composite
def shapes(draw: st.DrawFn, max_streams: int) -> Shape:
    """Draw a query of 2 to `max_streams` streams."""
    n = draw(st.integers(2, max_streams))
    kind = draw(st.sampled_from(("chain", "star", "cycle", "clique", "one class", "snowflake")))
    edges = shape_edges(kind, n)
    # Edges that share a column name share a class where they meet, and so do the streams at their ends.
    labels = 1 if kind == "one class" else draw(st.sampled_from((len(edges), 2, 1)))
    equalities: list[tuple[Column, Column]] = []
    columns: list[list[str]] = [[] for _ in range(n)]
    for k, ends in enumerate(edges):
        column = f"k{k % labels}"
        for i in ends:
            if column not in columns[i]:
                columns[i].append(column)
        equalities.append(((ends[0], column), (ends[1], column)))
    kinds: list[Kind] = draw(st.lists(st.sampled_from(("rows", "range", "unbounded")), min_size=n, max_size=n))
    if draw(st.booleans()):
        kinds = kinds[:1] * n
    # Small ones turn over often; with large ones states come to need more room.
    sizes = st.integers(1, 4) if n > 4 else st.integers(1, 6) | st.sampled_from((12, 30))
    windows = tuple(Extent(one, 0 if one == "unbounded" else draw(sizes)) for one in kinds)
    return Shape(
        windows,
        tuple(map(tuple, columns)),
        tuple(equalities),
        lateness=draw(st.sampled_from((0, 0, 1, 4))) if "range" in kinds else 0,
        text=draw(st.sampled_from((False, False, False, True))),
        breakable=draw(st.booleans()),
    )


def plan_text(shape: Shape, picks: bytes) -> str:
    """Give the plan that some bytes pick: each picks two parts to join of those that an equality connects."""
    parts = [(frozenset([i]), NAMES[i]) for i in range(len(shape.windows))]
    linked = {(i, j) for (i, _), (j, _) in shape.equalities}
    linked |= {(j, i) for i, j in linked}
    left_deep = picks[0] % 2 == 0
    at = 0
    while len(parts) > 1:
        firsts = range(1) if left_deep and at else range(len(parts))
        pairs = [
            (i, j)
            for i in firsts
            for j in range(len(parts))
            if i != j and any((a, b) in linked for a in parts[i][0] for b in parts[j][0])
        ]
        at += 1
        i, j = pairs[picks[at % len(picks)] % len(pairs)]
        joined = (parts[i][0] | parts[j][0], f"({parts[i][1]} {parts[j][1]})")
        parts = [joined, *(part for k, part in enumerate(parts) if k not in (i, j))]
    return parts[0][1][1:-1]


def inner_states(plan: str, shape: Shape) -> list[str]:
    """Give the inner states of a plan by their streams, those below others first.

    >>> from eddy.fuzz.judge import Extent
    >>> inner_states("((R S) T) U", Shape((Extent("rows", 1),) * 4, (("k",),) * 4, ()))
    ['R S', 'R S T']
    """
    joins = parse(plan, shape.names).inner()[:-1]
    return [" ".join(NAMES[j] for j in sorted(node.streams)) for node in joins]


def some_states(plan: str, shape: Shape, pick: int) -> tuple[str, ...] | None:
    """Give the states that a byte picks, a bit for each; or None, for as it is."""
    if pick % 2 == 0:
        return None
    return tuple(state for k, state in enumerate(inner_states(plan, shape)) if pick >> (k + 1) & 1)


@dataclass
class Writer:
    """Works out the steps of a case from what was drawn, one after the other."""

    shape: Shape
    skew: Sequence[int]
    drift: int
    strategies: Sequence[str]
    policies: Sequence[str]
    plans: list[str]
    strategy: str
    policy: str
    bounded: bool = False
    clock: int = 0
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = self.shape.judge()
        self.tags = [0] * len(self.shape.windows)
        self.waiting = False

    def steps(self, seed: Seed) -> Iterator[Step]:
        """Give the steps for one seed."""
        kind, picks, rows = seed
        match kind:
            case "push":
                yield Push(self.rows(rows, arrive=True))
            case "flood":
                # Two streams with the same rows again and again: a state grows while there is no result.
                yield Push(self.rows(rows[: 2 * ROW_BYTES] * FLOOD, arrive=True, period=2))
            case "fail":
                # Half of the time plans change in it, as far as the strategy changes plans.
                if picks[1] % 2:
                    yield self.schedule(picks, 1 + picks[1] // 2 % 6)
                breaks = self.shape.breakable and picks[0] % 4
                yield BadPush(self.rows(rows, arrive=False), "where" if breaks else "order")
            case "demote":
                yield Demote(picks[0], picks[1])
            case "reload":
                yield self.reload(picks)
            case "limit":
                # A case without a bound from the start gets none: most cases are about something else.
                if self.bounded:
                    yield Limit((None, *BOUNDS, *BOUNDS)[picks[0] % (1 + 2 * len(BOUNDS))])
            case "schedule":
                yield self.schedule(picks, picks[1] % 12)
            case _:
                yield self.transition(picks, None)

    def schedule(self, picks: bytes, ahead: int) -> Step:
        """Give a transition at a position."""
        self.waiting = True
        return self.transition(picks, ahead)

    def transition(self, picks: bytes, ahead: int | None) -> Step:
        """Give a transition, with a choice of states where there is one."""
        plan = self.plan(picks)
        return Transition(plan, ahead, some_states(plan, self.shape, picks[0]) if self.strategy == "eddy" else None)

    def reload(self, picks: bytes) -> Step:
        """Give a restored runtime. A policy of the fuzzer's own has to be given again."""
        others = [None, *(name for name in self.strategies if STRATEGIES[name].changes or not self.waiting)]
        strategy = others[picks[1] % len(others)]
        policy = self.policies[picks[4] % len(self.policies)] if picks[3] % 2 else None
        if policy is None and strategy not in (None, self.strategy):
            # Its default: that of "eddy" goes by measured time as well.
            policy = "fixed" if "fixed" in self.policies else self.policy
        elif policy is None and self.policy == CHAOS:
            policy = CHAOS
        self.strategy, self.policy = strategy or self.strategy, policy or self.policy
        return Reload(self.plan(picks) if picks[0] % 2 else None, strategy, policy, picks[5])

    def plan(self, picks: bytes) -> str:
        """Give a plan: a new one, or one that there was before."""
        if picks[-1] % 3 == 2:
            return self.plans[-1 - picks[2] % len(self.plans)]
        self.plans.append(plan_text(self.shape, picks[2:-1]))
        return self.plans[-1]

    def rows(self, picks: bytes, arrive: bool, period: int = 1 << 30) -> tuple[Row, ...]:
        """Give a row for each ROW_BYTES bytes, but those that would complete too many results.

        Rows come from one stream after the other, beginning anew after `period`.
        """
        rows = []
        for k in range(len(picks) // ROW_BYTES):
            own = picks[k * ROW_BYTES : (k + 1) * ROW_BYTES]
            i = (k % period + own[0]) % len(self.shape.windows)
            self.clock += own[1] % 3 == 1
            text, base = self.shape.text, self.drift * self.clock
            keys: dict[str, int | str | None] = {}
            for x, column in enumerate(self.shape.columns[i]):
                value = self.skew[own[3 + x % (ROW_BYTES - 3)] % len(self.skew)] + base // 4
                long = "-" * LONG_KEY * (own[2] % 8 == 7)
                keys[column] = f"key {value}{long}" if text else value
            if own[2] == 255:
                keys[self.shape.columns[i][0]] = None
            age = own[2] % 16 % (self.shape.lateness + 3) if own[2] % 4 == 3 else 0
            row = Row(i, keys, self.clock - age if self.shape.timed else 0, self.tags[i])
            self.tags[i] += 1
            if self.judge.completes(row, MOST_RESULTS) is None:
                continue
            if arrive:
                self.judge.arrive(row)
            rows.append(row)
        return tuple(rows)


_PICKS = st.binary(min_size=10, max_size=10)
_ROWS = st.binary(max_size=4 * ROW_BYTES) | st.binary(min_size=6 * ROW_BYTES, max_size=24 * ROW_BYTES)
SEEDS: st.SearchStrategy[Seed] = st.one_of(
    *(
        st.tuples(
            st.just(kind),
            st.just(bytes(10)) if kind in ("push", "flood") else _PICKS,
            _ROWS if kind in ("push", "flood", "fail") else st.just(b""),
        )
        for kind in KINDS
    )
)


@st.composite
def cases(
    draw: st.DrawFn,
    strategies: Sequence[str],
    outputs: Sequence[OutputMode],
    max_streams: int = 6,
    policies: Sequence[str] = ALL_POLICIES,
) -> Case:
    """Draw a case for one of the strategies and one of the policies."""
    strategy = draw(st.sampled_from(list(strategies)))
    shape = draw(shapes(max_streams))
    plan = plan_text(shape, draw(st.binary(min_size=8, max_size=8)))
    results: list[Results] = ["rows", "ids", "rows", "count"]
    # The simplest first, and the fuzzer's own as often as all others.
    ordered = [name for name in ("fixed",) if name in policies] + [name for name in policies if name != "fixed"]
    policy = draw(st.sampled_from(ordered + [CHAOS] * (len(ordered) - 2 if CHAOS in policies else 0)))
    skew, drift = draw(st.sampled_from(SKEWS)), draw(st.integers(0, 1))
    max_bytes = draw(st.sampled_from((None,) * 10 + BOUNDS))
    writer = Writer(shape, skew, drift, strategies, policies, [plan], strategy, policy, max_bytes is not None)
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
        decide_every=draw(st.sampled_from(EVERY)),
        store=some_states(plan, shape, draw(st.integers(0, 255))) if strategy == "eddy" else None,
        max_bytes=max_bytes,
    )
    # A list is drawn about as long as twice the least it may be.
    few, many = st.lists(SEEDS, min_size=1, max_size=4), st.lists(SEEDS, min_size=6, max_size=STEPS)
    return replace(case, steps=tuple(step for seed in draw(few | many) for step in writer.steps(seed)))
