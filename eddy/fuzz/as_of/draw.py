"""Draw cases of as-of joins: a query from a generator of random numbers, steps as bytes that pick from short lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from eddy.fuzz.as_of.case import AsOfArrival, AsOfBranch, AsOfCase, AsOfPushStep, AsOfQuery, AsOfStep
from eddy.fuzz.as_of_oracle import OracleAsOf
from eddy.fuzz.case import NAMES, OutputMode, Results
from eddy.fuzz.draw import (
    ALL_POLICIES,
    CHOOSING,
    DECIDE_EVERY,
    PlanWriter,
    event_times,
    often_chaos,
    plan_text,
    some_states,
)
from eddy.fuzz.oracle import OracleStream

MOST_STEPS = 14
ROW_BYTES = 6
KEYS_A, KEYS_B = (1, 1, 2, 0, None), ("x", "x", "y", None)
ROUND_OF_STEPS = (0, 1, 0, 0, -1, 1)
"""By how much the clock of rows moves with a row."""
DELETED = ("d", "-D")
STEP_KINDS = (*["push"] * 5, "watermark", *["transition"] * 2, "reload", "demote")
DrawnStep = tuple[str, bytes, bytes]
"""A step as it is drawn: its kind, its picks, the picks of its rows."""
WINDOW_KINDS: tuple[tuple[Literal["rows", "range", "unbounded"], ...], ...] = (
    ("range",),
    ("range", "unbounded"),
    ("rows", "range", "unbounded"),
    ("rows",),
)


@dataclass
class AsOfDrawing:
    """A drawing of one query of `most` streams at most, besides its tables."""

    draw: Random
    most: int = 4
    types: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def query(self, changelog: bool) -> AsOfQuery:
        """Return a random query."""
        draw = self.draw
        kinds = draw.choice(WINDOW_KINDS)
        core = tuple(self._stream(NAMES[k], kinds) for k in range(min(self.most, draw.choice((1, 1, 2, 2, 3)))))
        bare = len(core) == 1 and draw.random() < 0.5
        if bare:
            core = (OracleStream("R", "unbounded", 0, "t"),)
        equal = [
            ((core[draw.randrange(k)].name, x), (core[k].name, x)) for k in range(1, len(core)) for x in self._key()
        ]
        # In a changelog, the last input of the core or that of a branch may be a table.
        table: tuple[str, ...] = draw.choice(((), (), ("a",), ("b",))) if changelog and not bare else ()
        keyed = core[-1].name if table and len(core) > 1 else ""
        branch, shown = None, [core_stream.name for core_stream in core]
        if draw.random() < 0.3 and not bare and not keyed and len(core) < self.most:
            how: Literal["left", "semi", "anti"] = draw.choice(("left", "semi", "anti"))
            stream = self._stream(NAMES[len(core)], kinds)
            branch = AsOfBranch(stream, how, (((core[0].name, "a"), (stream.name, "a")),))
            shown += [stream.name] if how == "left" else []
            keyed = stream.name if table else ""
        # A row that looks a table up is never taken back, and is no row of a branch.
        lookups = draw.choice((0, 0.5, 1)) if branch is None and (not changelog or bare) else 0
        joins = tuple(self._as_of(f"X{k}", shown, lookups, keyed) for k in range(draw.choice((1, 1, 2, 3))))
        names = [join.table.name for join in joins]
        query = AsOfQuery(core, tuple(equal), joins, self.types, branch, keyed, table if keyed else (), bare)
        timing: dict[str, Any] = {}
        if query.timed:
            timing = {"lateness": draw.choice((0, 2, 4)), "watermark": draw.choice(("slowest", "slowest", "fastest"))}
            timing["idle_after"] = draw.choice((None, None, 3)) if timing["watermark"] == "slowest" else None
        return replace(
            query,
            implied=tuple(name for name in names if len(shown) == 1 and draw.random() < 0.5),
            deletes=(*([keyed] if keyed else []), *(name for name in names if draw.random() < 0.4)),
            rejects=tuple(name for name in names if draw.random() < 0.2),
            **timing,
        )

    def _types_of(self, name: str) -> None:
        b = self.draw.choice(("string", "string", "dictionary", "large_string"))
        self.types[name] = self.draw.choice(("int64", "int64", "int32")), b, self.draw.choice(("string", b))

    def _key(self) -> tuple[str, ...]:
        return self.draw.choice((("a",), ("a",), ("b",), ("a", "b")))

    def _stream(self, name: str, kinds: Sequence[Literal["rows", "range", "unbounded"]]) -> OracleStream:
        self._types_of(name)
        kind = self.draw.choice(kinds)
        size = self.draw.randint(1, 5) if kind == "rows" else self.draw.choice((0, 2, 5, 12))
        return OracleStream(name, kind, size, "t")

    def _as_of(self, name: str, shown: Sequence[str], lookups: float, keyed: str) -> OracleAsOf:
        draw = self.draw
        self._types_of(name)
        key = {x: (draw.choice(shown), x) for x in self._key()}
        direction: Literal["backward", "forward", "nearest"] = draw.choice(
            ("backward", "backward", "forward", "nearest")
        )
        tolerance = draw.choice((0, 2, 4)) if direction != "backward" or draw.random() < 0.3 else None
        how: Literal["inner", "left"] = draw.choice(("inner", "left"))
        if draw.random() < lookups:
            return OracleAsOf(OracleStream(name, "unbounded"), key, None, how)
        at = draw.choice([candidate for candidate in shown if candidate != keyed]), "t"
        return OracleAsOf(OracleStream(name, "unbounded", 0, "t"), key, at, how, direction, tolerance)


def as_of_query(draw: Random, changelog: bool, most: int = 4) -> AsOfQuery:
    """Return a random query with as-of joins beside `most` streams at most, for a changelog or for append output."""
    return AsOfDrawing(draw, most).query(changelog)


@dataclass
class AsOfArrivalWriter:
    """Turns bytes into rows, one push after the other; event times rise, now and then not."""

    asked: AsOfQuery
    clock: int = 10
    number: int = 0

    def arrivals(self, picks: bytes) -> tuple[AsOfArrival, ...]:
        """Return a row for each ROW_BYTES bytes, but none for those that begin with a 0."""
        names, arrivals = self.asked.inputs, []
        for k in range(len(picks) // ROW_BYTES):
            row_picks = picks[k * ROW_BYTES : (k + 1) * ROW_BYTES]
            if not row_picks[0]:
                continue
            self.clock += ROUND_OF_STEPS[row_picks[1] % len(ROUND_OF_STEPS)]
            name, a, b = names[(k + row_picks[0] - 1) % len(names)], KEYS_A[row_picks[2] % 5], KEYS_B[row_picks[3] % 4]
            op = ""
            if name in self.asked.tables or name == self.asked.keyed:
                # A version has a key.
                a, b = 1 if a is None else a, "y" if b is None else b
            if name in self.asked.deletes:
                op = DELETED[row_picks[5] % 2] if row_picks[5] // 2 % 10 > 6 else "+U"
            arrivals.append(AsOfArrival(name, (a, b, self.clock, row_picks[4] % 4, str(self.number)), op))
            self.number += 1
        return tuple(arrivals)


@dataclass
class AsOfStepWriter(PlanWriter):
    """Turns drawn steps into the steps of a case, one after the other."""

    shape: AsOfQuery
    rows: AsOfArrivalWriter = field(init=False)

    def __post_init__(self) -> None:
        self.rows = AsOfArrivalWriter(self.shape)

    def steps(self, drawn: DrawnStep) -> Iterator[AsOfStep]:
        """Yield the steps of a drawn step: one, or none."""
        kind, picks, rows = drawn
        match kind:
            case "push":
                yield AsOfPushStep(self.rows.arrivals(rows))
            case "watermark":
                arrivals = self.rows.arrivals(rows)
                yield AsOfPushStep(arrivals, self.rows.clock + picks[0] % 8 - 4 if self.shape.timed else None)
            case "reload":
                yield self.reload(picks)
            case "demote":
                yield self.demote(picks)
            case "transition" if self.shape.paths:
                yield self.transition(picks, None)


_PICKS = st.binary(min_size=10, max_size=10)
_ROWS = st.binary(max_size=4 * ROW_BYTES) | st.binary(min_size=7 * ROW_BYTES, max_size=25 * ROW_BYTES)
DRAWN_STEPS: st.SearchStrategy[DrawnStep] = st.one_of(
    *(
        st.tuples(
            st.just(kind),
            st.just(bytes(10)) if kind == "push" else _PICKS,
            _ROWS if kind in ("push", "watermark") else st.just(b""),
        )
        for kind in STEP_KINDS
    )
)


@st.composite
def as_of_cases(
    draw: st.DrawFn,
    strategies: Sequence[str],
    outputs: Sequence[OutputMode] = ("append", "changelog"),
    max_streams: int = 4,
    policies: Sequence[str] = ALL_POLICIES,
) -> AsOfCase:
    """Draw a case for one of the strategies and one of the policies."""
    strategy, output = draw(st.sampled_from(list(strategies))), draw(st.sampled_from(list(outputs)))
    query = as_of_query(draw(st.randoms(use_true_random=False)), output == "changelog", max_streams)
    query = replace(query, times=draw(event_times(len(query.inputs))))
    plan = plan_text(query, draw(st.binary(min_size=8, max_size=8))) or None
    results: Results = draw(st.sampled_from(("rows", "rows", "ids")))
    policy = draw(st.sampled_from(often_chaos(policies)))
    chooses = plan is not None and strategy in CHOOSING and not query.branches
    case = AsOfCase(
        query,
        plan,
        strategy,
        output,
        results,
        policy=policy,
        seed=draw(st.integers(0, 255)),
        renumber_at=draw(st.sampled_from((None, 8, 50))),
        decide_every=draw(st.sampled_from(DECIDE_EVERY)),
        store=some_states(plan or "", query, draw(st.integers(0, 255))) if chooses else None,
    )
    writer = AsOfStepWriter(query, strategies, policies, [plan or ""], strategy, policy, ())
    few, many = st.lists(DRAWN_STEPS, min_size=1, max_size=4), st.lists(DRAWN_STEPS, min_size=6, max_size=MOST_STEPS)
    return replace(case, steps=tuple(step for drawn_step in draw(few | many) for step in writer.steps(drawn_step)))
