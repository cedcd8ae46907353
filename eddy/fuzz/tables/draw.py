"""Draw cases over tables with Hypothesis, as `eddy.fuzz.draw` does: steps are bytes that pick from short lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypothesis import strategies as st

from eddy.fuzz.case import NAMES, Hanging, Results
from eddy.fuzz.draw import (
    ALL_POLICIES,
    CHOOSING,
    DECIDE_EVERY,
    PlanWriter,
    bounds_of,
    branched,
    often_chaos,
    plan_text,
    some_states,
)
from eddy.fuzz.tables.case import (
    DELETES,
    UPSERTS,
    BadChangeStep,
    ChangelogMode,
    Compared,
    TableArrival,
    TableCase,
    TableLoadStep,
    TablePushStep,
    TablesQuery,
    TableStep,
    TrimStep,
    WatermarkStep,
)
from eddy.fuzz.top_oracle import OracleOrder, OracleTop
from eddy.query.clock_rule import WatermarkOf
from eddy.query.result_key import result_key
from stairs.errors import InputError

MOST_INPUTS = 4
MOST_STEPS = 14
ROW_BYTES = 9
SIDES = (("b", "=", "a"), ("a", "=", "a"), ("b", "=", "p"), ("b", "=", "p"), ("p", "=", "a"), ("b", "<=", "a"))
"""Columns of the earlier and of the later input, and the operator between them."""
KEYS = (("k",), ("p",), ("p",), ("k", "p"))
NUMBERS = (0, 0, 0, 1, 1, 2, None)
MANY = (0, 0, 0, 0, 0, 1)
"""Numbers of which most are equal, so that most rows join."""
ROOM = (1_500, 2_500, 4_000, 8_000, 16_000)
"""Bytes that a bound leaves above the empty state."""
VALUES: tuple[tuple[str, Sequence[Any]], ...] = (
    ("a", NUMBERS),
    ("b", NUMBERS),
    ("k", ("x", "y", "zz", "")),
    ("p", (0, 1, 2)),
    ("v", (None, "", "u", "v", "uv", "vv")),
    ("w", range(11)),
    ("z", range(10)),
)
"""Values of columns."""
OPS = (*UPSERTS, *DELETES, "-U")
KEPT_ROWS = (24, 24, 12, 7, 5)
"""By the number of streams that keep all rows: how many rows each of them has, so that answers stay small."""
FORMS = (
    *["join", "join", "groups", "branches", "branches", "grouped branches"],
    *["top", "top of groups", "top of branches", "top of grouped branches"],
)
"""Forms of queries."""
STEP_KINDS = (
    *["push"] * 5,
    "atomic",
    "watermark",
    *["transition"] * 2,
    "schedule",
    "demote",
    "reload",
    "fail",
    "switch",
    "limit",
    "trim",
)
DrawnStep = tuple[str, bytes, bytes]
"""A step as it is drawn: its kind, its picks, the picks of its rows."""


@st.composite
def table_joins(
    draw: st.DrawFn, grouped: bool | None = None, most: int = MOST_INPUTS, only: bool = False
) -> TablesQuery:
    """Draw an inner join of tables and streams, or of tables `only`; with groups or without, or either if None."""
    keys: list[tuple[str, ...] | None] = [None, None, (), ("R.a",), ("R.v", "R.p")]
    columns = draw(st.sampled_from(keys if grouped is None else keys[2:] if grouped else keys[:1]))
    m = draw(st.integers(2 if columns is None else 1, max(2, min(most, MOST_INPUTS))))
    pairs = [(draw(st.integers(0, i - 1)), i) for i in range(1, m)]
    return draw(_queries(m, pairs, columns, only=only))


@st.composite
def _queries(
    draw: st.DrawFn,
    m: int,
    pairs: Sequence[tuple[int, int]],
    grouped: tuple[str, ...] | None,
    branches: tuple[Hanging, ...] = (),
    only: bool = False,
) -> TablesQuery:
    """Draw the other parts of a query of m inputs, of which predicates connect some pairs."""
    # Often there is a table; without one, a query with branches is of another kind.
    table = draw(st.integers(0, m - 1) | st.integers(0, m - 1 if branches else m))
    tables = tuple(only or k == table or (table < m and draw(st.booleans())) for k in range(m))
    windows = draw(st.lists(st.none() | st.integers(1, 4) | st.integers(-6, -1), min_size=m, max_size=m))
    predicates: list[Compared] = []
    for i, k in pairs:
        x, op, y = draw(st.sampled_from(SIDES))
        predicates.append(((NAMES[i], x), op, (NAMES[k], y)))
    if m > 2 and not branches and draw(st.booleans()):
        predicates.append(((NAMES[0], "a"), draw(st.sampled_from(("=", "!="))), (NAMES[m - 1], "b")))
    key = draw(st.sampled_from(KEYS))
    shown = draw(st.sampled_from(("abkpvw", "abkpvw", "a", "v")))
    query = TablesQuery(
        tables, tuple(windows), tuple(predicates), key, draw(st.booleans()), draw(st.booleans()), shown, grouped
    )
    return replace(
        query,
        tombstones=draw(st.sampled_from((None, None, -1, 0, 3))),
        expiry=draw(st.sampled_from(("retract", "final"))),
        branches=branches,
    )


@st.composite
def table_branches(draw: st.DrawFn, grouped: bool = False, most: int = MOST_INPUTS, only: bool = False) -> TablesQuery:
    """Draw a query with branches over tables and streams, or over tables only."""
    m = draw(st.integers(2, max(2, min(most, MOST_INPUTS))))
    pairs, branches = draw(branched(m))
    if m == 2 and draw(st.integers(0, 3)) == 3:
        branches = (Hanging("full", (1,)),)
    columns: tuple[str, ...] | None = draw(st.sampled_from(((), ("R.a",), ("R.v", "R.p")))) if grouped else None
    query = draw(_queries(m, pairs, columns, branches, only))
    below = [i for branch in branches for i in branch.streams]
    if draw(st.booleans()):
        # Final results have tables alone in their branches.
        query = replace(query, tables=tuple(table or i in below for i, table in enumerate(query.tables)))
    final = all(query.tables[i] for i in below) and branches[0].how != "full"
    return query if final else replace(query, expiry="retract")


def looked_up(asked: TablesQuery, by: str = "b") -> TablesQuery:
    """Return a query in which each table but the first one is looked up by its key, the column `by` of another one."""
    predicates = tuple(((left, by), "=", (right, "p")) for (left, _), _, (right, _) in asked.predicates)
    return replace(asked, predicates=predicates, key=("p",), shown="abkpvw")


@st.composite
def first_rows(draw: st.DrawFn, query: TablesQuery) -> TablesQuery:
    """Draw the first rows of groups of a query."""
    columns = query.outputs
    by = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
    order = draw(st.lists(st.sampled_from(columns), max_size=3, unique=True))
    terms = [OracleOrder(column, draw(st.booleans()), draw(st.booleans())) for column in order]
    top = OracleTop(draw(st.sampled_from((1, 1, 2, 3, 50))), tuple(by), tuple(terms))
    return replace(query, top=top, rank=draw(st.booleans()))


@st.composite
def table_queries(draw: st.DrawFn, most: int = MOST_INPUTS) -> TablesQuery:
    """Draw a query of any form."""
    form = draw(st.sampled_from(FORMS))
    grouped = "group" in form
    only = draw(st.integers(0, 2)) == 2
    query = draw(table_branches(grouped, most, only) if "branches" in form else table_joins(grouped, most, only))
    if only and draw(st.booleans()):
        query = looked_up(query, draw(st.sampled_from("bp")))
    if query.timed:
        watermark: WatermarkOf = draw(st.sampled_from(("fastest", "fastest", "slowest")))
        idle_after = draw(st.sampled_from((None, 3))) if watermark == "slowest" else None
        query = replace(query, watermark=watermark, idle_after=idle_after)
    return draw(first_rows(query)) if "top" in form else query


@dataclass
class ArrivalWriter:
    """Turns bytes into the arrivals of a query, one push after the other; event times rise, now and then not."""

    asked: TablesQuery
    numbers: Sequence[int | None] = NUMBERS
    now: int = 0
    counts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.asked.tables)
        kept = [not table and size is None for table, size in zip(self.asked.tables, self.asked.windows, strict=True)]
        self.values = VALUES if self.numbers is NUMBERS else (("a", self.numbers), ("b", self.numbers), *VALUES[2:])
        self.most = [KEPT_ROWS[sum(kept)] if keeps else 1 << 30 for keeps in kept]

    def arrivals(self, picks: bytes) -> tuple[TableArrival, ...]:
        """Return an arrival for each ROW_BYTES bytes, without rows beyond those that streams without windows have.

        A row whose first byte is 0 is left out: so a case gets smaller by zeros, too.
        """
        arrivals = []
        for k in range(len(picks) // ROW_BYTES):
            row_bytes = picks[k * ROW_BYTES : (k + 1) * ROW_BYTES]
            if not row_bytes[0]:
                continue
            i = (k + row_bytes[0] - 1) % len(self.asked.tables)
            row = {column: values[row_bytes[2 + n] % len(values)] for n, (column, values) in enumerate(self.values)}
            self.now += row_bytes[7] % 3 if self.asked.timed else 0
            time = self.now - row_bytes[7] // 16 % 4 if self.asked.timed else 0
            self.counts[i] += 1
            if self.counts[i] <= self.most[i]:
                values = (*(row[column] for column in "abkpvw"), time, row["z"])
                arrivals.append(TableArrival(i, values, OPS[row_bytes[1] % len(OPS)] if self.asked.tables[i] else ""))
        return tuple(arrivals)


@dataclass
class TableStepWriter(PlanWriter):
    """Turns drawn steps into the steps of a case, one after the other."""

    shape: TablesQuery
    numbers: Sequence[int | None] = NUMBERS
    rows: ArrivalWriter = field(init=False)

    def __post_init__(self) -> None:
        self.rows = ArrivalWriter(self.shape, self.numbers)

    def steps(self, drawn: DrawnStep) -> Iterator[TableStep]:
        """Yield the steps of a drawn step: one, or none."""
        kind, picks, rows = drawn
        match kind:
            case "push" | "atomic":
                yield TablePushStep(self.rows.arrivals(rows), kind == "atomic" and any(self.shape.tables))
            case "load":
                yield TableLoadStep(self.rows.arrivals(rows))
            case "switch":
                yield TablePushStep(self.rows.arrivals(rows), switched=True)
            case "watermark":
                yield WatermarkStep(picks[0] % 6)
            case "fail":
                # Half of these pushes contain a transition, if the strategy allows transitions.
                if picks[1] % 2 and self.shape.paths:
                    yield self.schedule(picks, 1 + picks[1] // 2 % 6)
                how: Literal["order", "key", "op"] = ("order", "key", "op")[picks[0] % 3]
                yield BadChangeStep(self.rows.arrivals(rows), how)
            case "trim":
                yield TrimStep()
            case "limit":
                yield from self.limit(picks)
            case "reload":
                yield self.reload(picks)
            case "demote":
                yield self.demote(picks)
            case "schedule" if self.shape.paths:
                yield self.schedule(picks, picks[1] % 12)
            case "transition" if self.shape.paths:
                yield self.transition(picks, None)


_PICKS = st.binary(min_size=10, max_size=10)
ROWS = st.binary(max_size=4 * ROW_BYTES) | st.binary(min_size=7 * ROW_BYTES, max_size=18 * ROW_BYTES)
WITH_ROWS = ("push", "atomic", "switch", "fail", "load")


def _drawn(kind: str) -> st.SearchStrategy[DrawnStep]:
    return st.tuples(
        st.just(kind),
        st.just(bytes(10)) if kind in ("push", "atomic", "switch", "load", "trim") else _PICKS,
        ROWS if kind in WITH_ROWS else st.just(b""),
    )


DRAWN_STEPS: st.SearchStrategy[DrawnStep] = st.one_of(*map(_drawn, STEP_KINDS))


def has_key(query: TablesQuery) -> bool:
    """Return whether the rows of a query can come by key."""
    try:
        result_key(query.query())
    except InputError:
        return False
    return True


@st.composite
def table_cases(
    draw: st.DrawFn, strategies: Sequence[str], max_inputs: int = MOST_INPUTS, policies: Sequence[str] = ALL_POLICIES
) -> TableCase:
    """Draw a case for one of the strategies and one of the policies."""
    strategy, query = draw(st.sampled_from(list(strategies))), draw(table_queries(max_inputs))
    plan = plan_text(query, draw(st.binary(min_size=8, max_size=8))) or None
    output: ChangelogMode = "upsert" if draw(st.booleans()) and has_key(query) else "changelog"
    plain = query.grouped is None and query.top is None and output == "changelog"
    results: Results = draw(st.sampled_from(("rows", "ids", "rows", "count"))) if plain else "rows"
    policy, room = draw(st.sampled_from(often_chaos(policies))), draw(st.sampled_from((None,) * 10 + ROOM))
    bounds = [] if room is None else bounds_of(query.query(), ROOM, "changelog")
    chooses = plan is not None and strategy in CHOOSING and not query.branches
    case = TableCase(
        query,
        plan,
        strategy,
        output,
        results,
        draw(st.sampled_from((0, 1, 3))) if strategy in ("jisc", "eddy") else 0,
        draw(st.sampled_from((None, 8, 50))),
        policy=policy,
        seed=draw(st.integers(0, 255)),
        decide_every=draw(st.sampled_from(DECIDE_EVERY)),
        store=some_states(plan or "", query, draw(st.integers(0, 255))) if chooses else None,
        max_bytes=None if room is None else bounds[ROOM.index(room)],
    )
    numbers = draw(st.sampled_from((NUMBERS, MANY)))
    writer = TableStepWriter(query, strategies, policies, [plan or ""], strategy, policy, bounds, numbers)
    loaded = draw(st.lists(_drawn("load"), max_size=1)) if draw(st.integers(0, 5)) == 5 else []
    few, many = st.lists(DRAWN_STEPS, min_size=1, max_size=4), st.lists(DRAWN_STEPS, min_size=6, max_size=MOST_STEPS)
    drawn = [*loaded, *draw(few | many)]
    return replace(case, steps=tuple(step for drawn_step in drawn for step in writer.steps(drawn_step)))
