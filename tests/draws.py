"""Hypothesis strategies: random queries, arrivals, splits into pushes, and plans.

A row is drawn as one string of bytes, each byte picking a value of one column from a short, skewed list. An
example of fifty rows thus takes fifty draws, and shrinks to rows of first values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from eddy.fuzz.graphs import SHAPES, edges
from eddy.fuzz.oracle import Comparison
from tests.cases import Arrival, BatchedPush, Column, Condition, JoinCase, StreamCase, quoted
from tests.key_types import FAMILIES, UNIT_NS, KeyTypeFamily, behind, holds

TIME = "t"
VALUE = "v"


def fewer(part: int) -> settings:
    """Return the settings of a test whose examples take long: in `make test` one in `part` of them, elsewhere all."""
    whole = settings()
    try:
        short = whole.max_examples == settings.get_profile("ci").max_examples
    except InvalidArgument:  # a process of a test, which has a profile of its own
        short = False
    return settings(max_examples=whole.max_examples // part) if short else whole


VALUES = (3, 0, 1, 2, 4, 5, None)
PAYLOADS: dict[pa.DataType, tuple[Any, ...]] = {
    pa.string(): ("p", "", "a payload of some length"),
    pa.bool_(): (True, False),
    pa.float16(): (0.5, -0.0),
    pa.time64("ns"): (1, 3600 * 10**9),
    pa.duration("ms"): (10**6, -(10**6)),
    pa.decimal256(50, 2): (Decimal(10**40), Decimal("-0.01")),
    pa.binary(3): (b"abc", b"\0\0\0"),
    pa.null(): (None,),
    pa.dictionary(pa.int16(), pa.string()): ("red", "green", "blue"),
    pa.list_(pa.int8()): ([], [1], [1, None, 3]),
    pa.list_view(pa.string_view()): ([], ["a", None], ["a string past any inline length"]),
    pa.large_list_view(pa.int8()): ([1], [], [None, 2]),
    pa.struct([("d", pa.dictionary(pa.int8(), pa.string())), ("v", pa.binary_view())]): (
        {"d": "red", "v": b"\0"},
        {"d": None, "v": None},
    ),
    pa.dictionary(pa.int8(), pa.list_(pa.int8())): ([], [1, None]),
    pa.run_end_encoded(pa.int32(), pa.struct([("v", pa.string_view())])): ({"v": "a"}, {"v": None}),
    pa.month_day_nano_interval(): (pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, -1, 10**15])),
    pa.sparse_union([pa.field("n", pa.int8()), pa.field("s", pa.string())]): (1, "a"),
    pa.list_(pa.float32(), 2): ([1.0, 2.0], [None, 0.5]),
    pa.struct([("x", pa.float32()), ("y", pa.string())]): ({"x": 1.0, "y": None}, {"x": None, "y": "z"}),
    pa.map_(pa.string(), pa.int8()): ([("a", 1)], []),
}
"""Types that are never keys, with some values: results carry columns of any type."""

CLOCKS = {
    "number": (pa.int64(), pa.int32(), pa.int16(), pa.uint64(), pa.run_end_encoded(pa.int16(), pa.uint32())),
    "timestamp": FAMILIES["timestamp"].types,
    "zoned": FAMILIES["zoned timestamp"].types,
    "date": FAMILIES["date"].types,
}
"""Types of event times that compare."""

MAX_ARRIVALS = {2: 60, 3: 50, 4: 40, 5: 35, 6: 30, 7: 28}
"""Few enough that a nested loop can join a query with a single key and without windows."""

NAMES = ("R", "S", "T", "U", "V", "W", "X")
ODD_NAMES = ("odd name", "S", "t.u", "SELECT", "é", "_", "0")


# --- queries ---------------------------------------------------------------------------------------------------------


@st.composite
def join_graphs(draw: st.DrawFn, n: int) -> list[tuple[int, int]]:
    """Draw the edges of a connected join graph over n streams: of a usual shape, or a tree with some more edges."""
    shape = draw(st.sampled_from((*SHAPES, "tree")))
    order = draw(st.permutations(range(n)))
    pairs = edges(shape, n)
    if shape == "tree":
        pairs = [(draw(st.integers(0, k - 1)), k) for k in range(1, n)]
        more = st.tuples(st.integers(0, n - 1), st.integers(1, n - 1)).map(lambda p: (p[0], (p[0] + p[1]) % n))
        pairs += draw(st.lists(more, max_size=2))
    return [(order[i], order[k]) for i, k in pairs]


def key_columns(family: str) -> tuple[str, str]:
    """Return the names of the two key columns of one family in a stream."""
    return f"{family[:3]}1", f"{family[:3]}2"


@st.composite
def cases(draw: st.DrawFn, max_streams: int = 6, families: Sequence[str] = tuple(FAMILIES)) -> JoinCase:
    """Draw a query."""
    n = draw(st.integers(2, max_streams))
    used = draw(st.lists(st.sampled_from(families), min_size=1, max_size=2, unique=True))
    window_kinds = draw(st.sampled_from(("rows", "range", "unbounded", "mixed")))
    drawn = st.sampled_from(("rows", "range", "unbounded")) if window_kinds == "mixed" else st.just(window_kinds)
    windows = [draw(drawn) for _ in range(n)]
    ranged = "range" in windows
    clock = draw(st.sampled_from(tuple(CLOCKS)))
    timed = ranged or draw(st.booleans())
    names = draw(st.sampled_from((NAMES, NAMES, NAMES, ODD_NAMES)))[:n]

    tick = tick_of(CLOCKS[clock][0])
    streams: list[StreamCase] = []
    for i in range(n):
        shared = [s.schema for s in streams]
        if shared and draw(st.integers(0, 3)) == 0:
            schema = draw(st.sampled_from(shared))
        else:
            schema = draw(schemas(used, clock, timed))
        streams.append(
            StreamCase(
                names[i],
                schema,
                windows[i],
                draw(st.integers(1, 6)) if windows[i] == "rows" else draw(st.sampled_from((12, 25, 6, 3, 1, 0))) * tick,
                TIME if timed else None,
                draw(conditions((VALUE,))) if draw(st.integers(0, 5)) == 5 else None,
            )
        )
    used_names = [(s.name, VALUE) for s in streams]
    graph = draw(join_graphs(n))
    scanned = graph[:1] if draw(st.integers(0, 5)) == 5 else []
    edges_left = [ends for ends in graph if ends not in scanned]
    equalities = tuple(draw(predicates(names, edges_left, used, timed and draw(st.booleans()))))
    compared: tuple[Comparison, ...] = ()
    if draw(st.integers(0, 2)) == 2:
        rising = (
            timed and draw(st.booleans()) and not any(TIME in pair[0] for predicate in equalities for pair in predicate)
        )
        compared = tuple(draw(comparisons(names, graph, tick if timed else 0, rising)))
    compared = tuple(draw(connected(names, scanned, compared)))
    if any(left[1] == TIME for left, _, _, _ in compared):
        # The intervals connect all streams, so any window may follow from them.
        streams = [replace(s, window="derived") if rising or draw(st.booleans()) else s for s in streams]
    ranged = any(s.window in ("range", "derived") for s in streams)
    watermark = draw(st.sampled_from(("slowest", "slowest", "fastest"))) if ranged else "slowest"
    idle_after = draw(st.sampled_from((None, None, 4))) if ranged and watermark == "slowest" else None
    return JoinCase(
        tuple(streams),
        equalities,
        draw(selects(streams)),
        draw(conditions([f"{a}.{b}" for a, b in used_names])) if draw(st.integers(0, 3)) == 3 else None,
        draw(st.sampled_from((0, 0, 1, 3, 10))) * tick if ranged else 0,
        compared,
        watermark,
        None if idle_after is None else idle_after * tick,
    )


@st.composite
def comparisons(
    draw: st.DrawFn, names: Sequence[str], pairs: Sequence[tuple[int, int]], tick: int, rising: bool
) -> list[Comparison]:
    """Draw intervals along all edges, if event times have a `tick`, or comparisons of values along some.

    Intervals that are drawn one by one may contradict each other. So either equal times fulfil all of them, or times
    that rise from stream to stream (`rising`).
    """
    drawn: list[Comparison] = []
    if tick and (rising or draw(st.booleans())):
        spans = ((1, 12), (1, 20)) if rising else ((0, 3), (-2, 2), (-1, 12), (-20, 0), (0, 0))
        for i, k in map(sorted, pairs):
            low, high = draw(st.sampled_from(spans))
            drawn.append(((names[k], TIME), ">" if low < 0 else ">=", (names[i], TIME), low * tick))
            drawn.append(((names[k], TIME), "<=", (names[i], TIME), high * tick))
    if not drawn or draw(st.booleans()):
        for i, k in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique_by=frozenset)):
            op = draw(st.sampled_from(("<=", "!=", "<", ">=", ">")))
            drawn.append(((names[i], VALUE), op, (names[k], VALUE), draw(st.sampled_from((0, 1, 2, -1, -2)))))
    return drawn


@st.composite
def connected(
    draw: st.DrawFn, names: Sequence[str], scanned: Sequence[tuple[int, int]], compared: Sequence[Comparison]
) -> list[Comparison]:
    """Draw comparisons for those edges without an equality that lack one."""
    drawn, named = list(compared), {frozenset((left[0], right[0])) for left, _, right, _ in compared}
    for i, k in scanned:
        if frozenset((names[i], names[k])) not in named:
            drawn.append(((names[i], VALUE), draw(st.sampled_from(("<=", ">"))), (names[k], VALUE), 0))
    return drawn


@st.composite
def schemas(draw: st.DrawFn, used: Sequence[str], clock: str, timed: bool) -> pa.Schema:
    """Draw the columns of a stream: two keys of each family, a value to filter by, a payload, perhaps the time."""
    fields = []
    for family in used:
        # All columns mostly have one type: mixed types in a class are one feature among many.
        mixed = draw(st.integers(0, 2)) == 0
        types = FAMILIES[family].types if mixed else FAMILIES[family].types[:1]
        fields += [(column, draw(st.sampled_from(types))) for column in key_columns(family)]
    fields.append((VALUE, pa.int64()))
    payload = draw(st.sampled_from((None, *PAYLOADS)))
    if payload is not None:
        fields.append(("payload", payload))
    if timed:
        fields.append((TIME, draw(st.sampled_from(CLOCKS[clock]))))
    return pa.schema(draw(st.permutations(fields)))


@st.composite
def predicates(
    draw: st.DrawFn, names: Sequence[str], pairs: Sequence[tuple[int, int]], used: Sequence[str], with_time: bool
) -> list[tuple[tuple[Column, Column], ...]]:
    """Draw one or two predicates of one or two columns for each edge; columns are equal within a family only."""
    drawn = []
    for i, k in pairs:
        for _ in range(draw(st.sampled_from((1, 1, 1, 2)))):
            columns = []
            for _ in range(draw(st.sampled_from((1, 1, 1, 2)))):
                if with_time and draw(st.integers(0, 3)) == 0:
                    left = right = TIME
                else:
                    # Mostly the first column, so that classes over many streams occur as well.
                    column = st.sampled_from((0, 0, 0, 1))
                    keys = key_columns(draw(st.sampled_from(used)))
                    left, right = keys[draw(column)], keys[draw(column)]
                columns.append(((names[i], left), (names[k], right)))
            drawn.append(tuple(dict.fromkeys(columns)))
    return drawn


@st.composite
def selects(draw: st.DrawFn, streams: Sequence[StreamCase]) -> tuple[tuple[str, Column], ...] | None:
    """Draw a projection, or none."""
    if draw(st.booleans()):
        return None
    every = [(stream.name, column) for stream in streams for column in stream.schema.names]
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=5))
    return tuple((f"out {k}" if k % 2 else f"c{k}", column) for k, column in enumerate(chosen))


def tick_of(kind: pa.DataType) -> int:
    """Return the plain value of one step of event time: a second, a day, 1."""
    return UNIT_NS["s"] if pa.types.is_timestamp(behind(kind)) else 1


# --- conditions ------------------------------------------------------------------------------------------------------


@st.composite
def conditions(draw: st.DrawFn, names: Sequence[str]) -> Condition:
    """Draw a condition on integer columns: comparisons with a constant or with each other, `and`, `or`, `not`."""
    name = draw(st.sampled_from(names))
    form = draw(st.sampled_from(("less", "differ", "null", "other", "not", "and", "or")))
    constant = draw(st.integers(0, 5))
    field = pc.field(name)
    if form == "less":
        return Condition(field < constant, lambda row: _lifted(lambda x: x < constant, row[name]))
    if form == "differ":
        return Condition(field != constant, lambda row: _lifted(lambda x: x != constant, row[name]))
    if form == "null":
        return Condition(~field.is_null(), lambda row: row[name] is not None)
    if form == "other":
        other = draw(st.sampled_from(names))
        return Condition(
            field + pc.field(other) >= constant,
            lambda row: _lifted(lambda x, y: x + y >= constant, row[name], row[other]),
        )
    first = draw(conditions(names))
    if form == "not":
        return Condition(~first.expression, lambda row: _lifted(lambda x: not x, first.holds(row)))
    second = draw(conditions(names))
    # Three-valued: one side alone may decide the result, whatever the other side is.
    if form == "and":
        return Condition(
            first.expression & second.expression, lambda row: _settled(False, first.holds(row), second.holds(row))
        )
    return Condition(
        first.expression | second.expression, lambda row: _settled(True, first.holds(row), second.holds(row))
    )


def _lifted(function: Callable[..., bool], *values: Any) -> bool | None:
    return None if any(value is None for value in values) else function(*values)


def _settled(by: bool, left: bool | None, right: bool | None) -> bool | None:
    if left is by or right is by:
        return by
    return None if left is None or right is None else not by


# --- arrivals --------------------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn, case: JoinCase, max_arrivals: int | None = None) -> list[Arrival]:
    """Draw arrivals of a query's streams; a row of a schema that several streams share may arrive in all of them."""
    n = len(case.streams)
    domains = draw(_domains(case))
    pace = draw(st.sampled_from(("steady", "jitter", "any")))
    everywhere = draw(st.booleans())
    # Event times that are keys must match now and then.
    grain = 8 if any(TIME in (x, y) for predicate in case.predicates for (_, x), (_, y) in predicate) else 1
    width = 2 + max(len(stream.schema) for stream in case.streams)
    most = max_arrivals or MAX_ARRIVALS[n]
    least = draw(st.sampled_from((1, *[most // 2] * 3, *[most] * 4)))  # without a minimum size, lists are short
    rows = draw(st.lists(st.binary(min_size=width, max_size=width), min_size=least, max_size=most))
    drawn: list[Arrival] = []
    for k, picks in enumerate(rows):
        i = (k + picks[0]) % n  # round robin is the simplest
        schema = case.streams[i].schema
        row: dict[str, Any] = {}
        for field, pick in zip(schema, picks[2:], strict=False):
            if field.name == TIME:
                row[TIME] = _time(pace, k, picks[1]) // grain * grain * tick_of(field.type)
            else:
                choices = domains[id(schema), field.name]
                row[field.name] = choices[pick * len(choices) >> 8]
        if everywhere:
            drawn += [(j, row) for j in range(n) if case.streams[j].schema is schema]
        else:
            drawn.append((i, row))
    return drawn[:most]


def _time(pace: str, k: int, pick: int) -> int:
    """Choose an event time: rising, rising with tuples up to 15 behind, or anything in a short span."""
    if pace == "steady":
        return k + pick // 128
    if pace == "jitter":
        return k + 20 - pick // 16
    return pick // 8


@st.composite
def _domains(draw: st.DrawFn, case: JoinCase) -> dict[tuple[int, str], list[Any]]:
    """Choose the values of each column: few for a family, the first more often, some null."""
    chosen: dict[str, list[Any]] = {}
    domains: dict[tuple[int, str], list[Any]] = {}
    for schema in {id(s.schema): s.schema for s in case.streams}.values():
        for field in schema:
            family = _family_of(field.name)
            if family is not None:
                if family.name not in chosen:
                    size = draw(st.sampled_from((1, 1, 1, 2, 2, 3)))
                    few = draw(st.lists(st.sampled_from(family.values), max_size=size - 1))
                    # A value that all types of the family hold comes first and twice: otherwise few rows would match.
                    everywhere = [value for value in family.values if all(holds(kind, value) for kind in family.types)]
                    first = draw(st.sampled_from(everywhere[:3]))
                    chosen[family.name] = [first, first, *few] + [None] * draw(st.sampled_from((0, 0, 1)))
                domains[id(schema), field.name] = family.domain(field.type, chosen[family.name])
            elif field.name == VALUE:
                domains[id(schema), VALUE] = list(VALUES)
            elif field.name == "payload":
                domains[id(schema), "payload"] = [*PAYLOADS[field.type], None]
    return domains


def _family_of(column: str) -> KeyTypeFamily | None:
    return next((family for name, family in FAMILIES.items() if column in key_columns(name)), None)


# --- pushes and plans ------------------------------------------------------------------------------------------------


@st.composite
def splits(draw: st.DrawFn, rows: Sequence[Arrival]) -> list[BatchedPush]:
    """Draw a split of arrivals into pushes: one row each, all at once, or any sizes, empty pushes among them."""
    style = draw(st.sampled_from(("any", "single", "whole")))
    shape = st.integers(0, 7**7 - 1)
    if style == "whole":
        return [BatchedPush(tuple(rows), draw(shape))]
    if style == "single":
        shapes = draw(st.lists(shape, min_size=1, max_size=3))
        return [BatchedPush((row,), shapes[k % len(shapes)]) for k, row in enumerate(rows)]
    pushes: list[BatchedPush] = []
    at = 0
    while at < len(rows):
        size = draw(st.sampled_from((1, 2, 3, 5, 8, 13, 21, 0)))
        pushes.append(BatchedPush(tuple(rows[at : at + size]), draw(shape)))
        at += size
        if len(pushes) > len(rows):  # many empty ones
            pushes.append(BatchedPush(tuple(rows[at:])))
            break
    return pushes


@st.composite
def plans(draw: st.DrawFn, case: JoinCase, neighbours: Callable[[frozenset[int], frozenset[int]], bool]) -> str:
    """Draw a plan: join two connected parts until one is left (bushy), or grow one part (left-deep)."""
    left_deep = draw(st.booleans())
    parts = [(frozenset([i]), quoted(name)) for i, name in enumerate(case.names)]
    parts = list(draw(st.permutations(parts)))
    while len(parts) > 1:
        firsts = range(1) if left_deep else range(len(parts))
        pairs = [(i, k) for i in firsts for k in range(len(parts)) if i != k and neighbours(parts[i][0], parts[k][0])]
        i, k = draw(st.sampled_from(pairs))
        joined = (parts[i][0] | parts[k][0], f"({parts[i][1]} {parts[k][1]})")
        parts = [joined, *(part for j, part in enumerate(parts) if j not in (i, k))]
    text = parts[0][1]
    return text[1:-1] if draw(st.booleans()) else text


def neighbours_by_predicate(case: JoinCase) -> Callable[[frozenset[int], frozenset[int]], bool]:
    """Return whether a predicate connects two parts, as plans need it."""
    at = {name: i for i, name in enumerate(case.names)}
    linked = {(at[a], at[b]) for predicate in case.predicates for (a, _), (b, _) in predicate}
    linked |= {(at[a], at[b]) for a, b in case.query().scans}
    linked |= {(b, a) for a, b in linked}
    return lambda left, right: any((i, k) in linked for i in left for k in right)
