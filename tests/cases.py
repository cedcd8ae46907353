"""A query under test in two forms, the engine's and the oracle's, and pushes of its arrivals in Arrow.

Both forms are made from a `JoinCase`. A `BatchedPush` is a run of consecutive arrivals; `BatchedPush.batches` presents
the same rows to the engine in any of the shapes that Arrow has for them: record batches, tables of chunks, slices with
an offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import eddy
from eddy.fuzz.oracle import ArrivalOutcome, Comparison, Oracle, OracleQuery, OracleStream, Row
from eddy.query.clock_rule import WatermarkOf
from eddy.streams.late_options import Late
from tests.key_types import UNIT_NS, behind, to_arrow, to_plain, to_text

Column = tuple[str, str]
Arrival = tuple[int, Row]
"""Position of the stream in the query, and the row."""


@dataclass(frozen=True)
class Condition:
    """A predicate on named values, as the engine takes it and as a plain function."""

    expression: pc.Expression | eddy.Predicate
    holds: Callable[[Mapping[str, Any]], bool | None]


def raising(column: str, dividend: int = 1, low: int = 0) -> eddy.Predicate:
    """Return a result filter that accepts dividend // value > low, and raises on a value of 0: the push fails."""

    def quotient(rows: pa.RecordBatch) -> pa.Array:
        return pc.greater(pc.divide(dividend, rows[column]), low)

    return eddy.Predicate(quotient, columns=[column])


@dataclass(frozen=True)
class StreamCase:
    """One stream. `size` is a number of rows, or a span in plain event time (ns for timestamps)."""

    name: str
    schema: pa.Schema
    window: Literal["rows", "range", "unbounded", "derived"] = "unbounded"
    size: int = 0
    time: str | None = None
    filter: Condition | None = None
    late: Late | None = None

    def stream(self) -> eddy.Stream:
        """Return the engine's form."""
        window: eddy.Rows | eddy.Range | eddy.Unbounded | None = None
        if self.window == "rows":
            window = eddy.Rows(self.size)
        elif self.window == "range":
            window = eddy.Range(self._span(self.size))
        elif self.window == "unbounded":
            window = eddy.Unbounded()
        keep = self.filter.expression if self.filter else None
        return eddy.Stream(self.name, self.schema, window=window, time=self.time, filter=keep, late=self.late)

    def oracle_stream(self) -> OracleStream:
        """Return the oracle's form."""
        return OracleStream(self.name, self.window, self.size, self.time, self.filter.holds if self.filter else None)

    def _span(self, size: int) -> int | timedelta:
        """Return a span as a timedelta, or in ticks of integers."""
        kind = behind(self.schema.field(self.time).type)
        if pa.types.is_date(kind):
            return timedelta(days=size)
        if not pa.types.is_timestamp(kind):
            return size
        return timedelta(microseconds=size // UNIT_NS["us"])


@dataclass(frozen=True)
class JoinCase:
    """A query; `predicates` are lists of column pairs, one pair for each column of the predicate."""

    streams: tuple[StreamCase, ...]
    predicates: tuple[tuple[tuple[Column, Column], ...], ...]
    select: tuple[tuple[str, Column], ...] | None = None
    where: Condition | None = None
    lateness: int = 0
    comparisons: tuple[Comparison, ...] = ()
    watermark: WatermarkOf = "slowest"
    idle_after: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(stream.name for stream in self.streams)

    @cached_property
    def outputs(self) -> tuple[tuple[str, Column], ...]:
        """Output columns and where they come from."""
        if self.select is not None:
            return self.select
        every = ((stream.name, column) for stream in self.streams for column in stream.schema.names)
        return tuple((f"{name}.{column}", (name, column)) for name, column in every)

    def query(self, **more: Any) -> eddy.Query:
        """Return the engine's form of the query; `more` are arguments that do not concern the oracle."""
        return eddy.Query(
            streams=[stream.stream() for stream in self.streams],
            on=[*map(predicate_text, self.predicates), *map(self._comparison_text, self.comparisons)],
            select=None if self.select is None else {out: column_text(*column) for out, column in self.select},
            where=self.where.expression if self.where else None,
            lateness=self._span(self.lateness),
            watermark=self.watermark,
            idle_after=None if self.idle_after is None else self._span(self.idle_after),
            **more,
        )

    def oracle(self) -> Oracle:
        """Return a new oracle for the query."""
        where = None
        if self.where is not None:
            holds = self.where.holds

            def where(values: Mapping[Column, Any]) -> bool | None:
                return holds({f"{stream}.{column}": value for (stream, column), value in values.items()})

        equalities = [pair for predicate in self.predicates for pair in predicate]
        streams = [stream.oracle_stream() for stream in self.streams]
        timing = self.watermark, self.idle_after
        return Oracle(OracleQuery(streams, equalities, self.lateness, where, self.comparisons, *timing))

    def _comparison_text(self, comparison: Comparison) -> str:
        """Return a comparison as text; an amount of timestamps as seconds, one of dates as days."""
        left, op, right, amount = comparison
        text = f"{column_text(*left)} {'<>' if op == '!=' else op} {column_text(*right)}"
        if not amount:
            return text
        schema = next(stream.schema for stream in self.streams if stream.name == right[0])
        kind = behind(schema.field(right[1]).type)
        unit = ""
        if pa.types.is_timestamp(kind):
            amount, unit = amount // UNIT_NS["s"], " s"
        elif pa.types.is_date(kind):
            unit = " days"
        return f"{text} {'-' if amount < 0 else '+'} {abs(amount)}{unit}"

    def project(self, oracle: Oracle, result: Sequence[int]) -> tuple[str, ...]:
        """Return the output columns of a result of the oracle, in comparable form."""
        values = oracle.values(result)
        return tuple(to_text(values[column]) for _, column in self.outputs)

    def _span(self, span: int) -> int | timedelta:
        timed = next((s for s in self.streams if s.time is not None), None)
        kind = pa.null() if timed is None else behind(timed.schema.field(timed.time).type)
        if pa.types.is_timestamp(kind):
            return timedelta(microseconds=span // UNIT_NS["us"])
        return timedelta(days=span) if pa.types.is_date(kind) else span


@dataclass(frozen=True)
class BatchedPush:
    """Consecutive arrivals and the shape of their batches: `shape` is a number that selects one for each stream."""

    arrivals: tuple[Arrival, ...]
    shape: int = 0

    def batches(self, case: JoinCase) -> dict[str, pa.RecordBatch | pa.Table]:
        """Return the rows of each stream. Streams without rows are absent or empty; equal rows are one object."""
        shown: dict[str, pa.RecordBatch | pa.Table] = {}
        made: list[tuple[pa.Schema, list[Row], pa.RecordBatch | pa.Table]] = []
        for i, stream in enumerate(case.streams):
            rows = [row for at, row in self.arrivals if at == i]
            shape = (self.shape // 7**i) % 7
            if not rows and shape % 2:
                continue
            same = next((b for s, r, b in made if s is stream.schema and list(map(id, r)) == list(map(id, rows))), None)
            shown[stream.name] = same if same is not None else arrow_rows(stream.schema, rows, shape)
            made.append((stream.schema, rows, shown[stream.name]))
        return shown

    def order(self) -> Any:
        """Return the order as one of the kinds of integer sequences."""
        order = [i for i, _ in self.arrivals]
        kinds: list[pa.DataType] = [pa.int64(), pa.uint8(), pa.int16(), pa.int32()]
        kind = self.shape % (len(kinds) + 1)
        return order if kind == len(kinds) else pa.array(order, kinds[kind]).to_numpy()


def arrow_rows(schema: pa.Schema, rows: Sequence[Row], shape: int = 0) -> pa.RecordBatch | pa.Table:
    """Return rows as a record batch (0), a slice of a longer one (1, 2), a table (3), of several chunks (4, 5) or
    with other columns (6).
    """
    if shape < 3 or not rows:
        return _sliced(schema, rows, before=(0, 1, 11)[shape % 3], after=shape % 2)
    if shape == 3:
        return pa.Table.from_batches([_sliced(schema, rows, 0, 0)])
    size = shape - 3
    if shape == 6:
        # The columns are in another order, and one of them does not belong to the query.
        table = pa.Table.from_batches([_sliced(schema, rows, before=3, after=2)])
        return table.select(schema.names[::-1]).append_column("of no interest", pa.nulls(len(rows)))
    chunks = [_sliced(schema, rows[k : k + size], before=k % 3, after=1) for k in range(0, len(rows), size)]
    return pa.Table.from_batches([*chunks[:1], _sliced(schema, [], 0, 0), *chunks[1:]])


def _sliced(schema: pa.Schema, rows: Sequence[Row], before: int, after: int) -> pa.RecordBatch:
    """Return a batch as a slice of a longer one with rows of nulls around it, so that its arrays have offsets."""
    around = dict.fromkeys(schema.names)
    padded = [around] * before + list(rows) + [around] * after
    arrays = [to_arrow([row[field.name] for row in padded], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(before, len(rows))


def sorted_by_time(case: JoinCase, arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return the order in which rows pushed without an order arrive."""
    return sorted(arrivals, key=lambda arrival: (arrival[1][case.streams[arrival[0]].time], arrival[0]))


def feed(case: JoinCase, oracle: Oracle, arrivals: Iterable[Arrival]) -> list[ArrivalOutcome]:
    """Feed arrivals to the oracle."""
    return [oracle.arrive(case.streams[i].name, row) for i, row in arrivals]


def results(outcomes: Iterable[ArrivalOutcome]) -> list[tuple[int, ...]]:
    """Return all results of some outcomes."""
    return [result for outcome in outcomes for result in outcome.results]


def changes(
    case: JoinCase, outcomes: Iterable[ArrivalOutcome], oracle: Oracle, output: str, form: str, ordered: bool = False
) -> list[list[Any]]:
    """Return the expected result of a push as groups of rows: groups in order, the rows of a group in any order.

    output   "append" or "changelog", in which rows begin with "+I" or "-D"
    form     "rows" (text of the output columns), "ids" (arrival numbers) or "count"
    ordered  each row is a group, as the oracle gives the results of an outcome by their arrival numbers
    """
    groups: list[tuple[str, tuple[tuple[int, ...], ...]]] = []
    for outcome in outcomes:
        groups += [("-D", outcome.expired), ("-D", outcome.displaced), ("+I", outcome.results)]
    if ordered:
        groups = [(op, (result,)) for op, tuples in groups for result in tuples]
    log = output == "changelog"
    if form == "count":
        counts = {op: sum(len(tuples) for group_op, tuples in groups if group_op == op) for op in ("+I", "-D")}
        return [[(op, n)] for op, n in counts.items()] if log else [[(counts["+I"],)]]
    project = case.project if form == "rows" else (lambda _, result: result)
    return [
        [((op,) if log else ()) + project(oracle, result) for result in tuples]
        for op, tuples in groups
        if tuples and (log or op == "+I")
    ]


def assert_changes(table: pa.Table, groups: Sequence[Sequence[Any]], form: str) -> None:
    """Compare the result of a push with groups of rows as `changes` gives them."""
    rows = text_rows(table.drop_columns(["op"]) if "op" in table.column_names else table) if form == "rows" else None
    if rows is None:
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    elif "op" in table.column_names:
        rows = [(op, *row) for op, row in zip(table["op"].to_pylist(), rows, strict=True)]
    assert_same(rows, [row for group in groups for row in group], "changes of a push")
    at = 0
    for group in groups:
        assert sorted(rows[at : at + len(group)]) == sorted(group), "changes come in another order"
        at += len(group)


def late_rows(
    case: JoinCase, arrivals: Sequence[Arrival], outcomes: Sequence[ArrivalOutcome]
) -> dict[str, list[tuple[str, ...]]]:
    """Return the late rows of each stream that has some, in arrival order and comparable form."""
    late: dict[str, list[tuple[str, ...]]] = {}
    for (i, row), outcome in zip(arrivals, outcomes, strict=True):
        if outcome.fate == "late":
            columns = case.streams[i].schema.names
            late.setdefault(case.streams[i].name, []).append(tuple(to_text(row[column]) for column in columns))
    return late


def id_rows(case: JoinCase, table: pa.Table) -> list[tuple[int, ...]]:
    """Read the results of an `ids_only` runtime."""
    assert table.column_names == list(case.names)
    assert all(kind == pa.int64() for kind in table.schema.types)
    return list(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))


def text_rows(table: pa.Table) -> list[tuple[str, ...]]:
    """Read the rows of a table in comparable form."""
    columns = [[to_text(value) for value in to_plain(column)] for column in table.columns]
    return list(zip(*columns, strict=True))


def assert_same(got: Iterable[Any], expected: Iterable[Any], what: str) -> None:
    """Compare two multisets; the error shows the missing and the extra rows."""
    have, want = Counter(got), Counter(expected)
    if have != want:
        missing, extra = want - have, have - want
        raise AssertionError(
            f"{what}: {missing.total()} missing, {extra.total()} too many; "
            f"missing {sorted(missing.elements())[:5]}, too many {sorted(extra.elements())[:5]}"
        )


def assert_emission_order(
    ids: Sequence[tuple[int, ...]], arrivals: Sequence[Arrival], outcomes: Sequence[ArrivalOutcome]
) -> None:
    """Check that results come in the order of the arrivals that completed them."""
    positions: dict[int, list[int]] = {}
    for at, ((i, _), outcome) in enumerate(zip(arrivals, outcomes, strict=True)):
        if outcome.fate == "arrived":
            positions.setdefault(i, []).append(at)
    completed = [max(positions[i][n] for i, n in enumerate(result)) for result in ids]
    assert completed == sorted(completed), "results are not in the order of the arrivals that complete them"


def quoted(name: str) -> str:
    """Return a name as predicates and plans take it: quoted unless it is a plain word without a meaning in SQL."""
    return name if name.isidentifier() and name != "SELECT" else f'"{name}"'


def column_text(stream: str, column: str) -> str:
    """Return a column as predicates take it."""
    return f"{quoted(stream)}.{quoted(column)}"


def predicate_text(pairs: Sequence[tuple[Column, Column]]) -> str:
    """Return a predicate as text: `R.a = S.a`, or `(R.a, R.b) = (S.a, S.b)`."""
    left = ", ".join(column_text(*a) for a, _ in pairs)
    right = ", ".join(column_text(*b) for _, b in pairs)
    return f"{left} = {right}" if len(pairs) == 1 else f"({left}) = ({right})"
