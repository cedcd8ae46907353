"""A filter of several conditions, evaluated in an order that adapts to their cost and selectivity.

    slice of a batch ── sampled rows ── all conditions ── profile ── a better order?
           └── condition ── narrow? ── condition ── narrow? ── … ── accepted rows

A batch is cut into slices, so that the filter learns from one large batch as much as from many small batches. First,
all conditions are evaluated on a sample of the slice (`eddy.filters.sampling`); the time for samples is a bounded share
of the time of the filter. Then the conditions are evaluated one after the other. Between two conditions, the slice is
narrowed to the rows that all conditions so far accept, if the expected saving of the remaining calls exceeds the cost
of taking the rows; otherwise a mask marks these rows. The filter always observes the selectivity of the first
condition. When this selectivity no longer fits the profile, the filter begins a new profile.

The accepted rows are the rows for which all conditions hold; the order of the conditions does not matter. A row *fails*
if an expression fails on the row and no other condition rejects the row. A function must give an answer for every row,
also for rows that other conditions reject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import Filter, Mask, Predicate, conditions, mask_of
from eddy.filters.faults import Fault, Faults
from eddy.filters.profile import COST_NUMBERS, CallCost, Profile
from eddy.filters.sampling import Rows, Sampler
from stairs.errors import InputError, QueryError
from stairs.plain_types import taken
from stairs.storage.parts import Parts, Plain

SLICE_ROWS = 65_536

REORDER_EVERY = 16
"""The order is reconsidered after this many slices, even without a sample."""

DRIFT, DRIFT_ROWS = 0.15, 256
"""The data have drifted if the selectivity of the first condition, on DRIFT_ROWS or more rows, differs from that of the
profile by more than DRIFT and the error of the profile."""

TAKE_CALL_S, TAKE_ROW_S = 20e-6, 20e-9
"""Assumed seconds of narrowing before the first measurement: per call, and per row and column."""


class AdaptiveFilter:
    """A filter that learns the best order of its conditions.

    predicates  expressions, functions of a batch, `eddy.Predicate`s, or a single one of these; an empty list accepts
                every row
    names       their names, one each; None = each condition names itself
    schema      the columns that expressions and declared columns must fit; None = the columns of the first batch
    adaptive    False: the conditions are evaluated in the order given, and nothing is sampled
    share       share of the filter's time that samples may take; three times as much while the data drift, and without
                counting the first sample
    clock       returns seconds; read before and after each call
    place, rows names of the filter and of its rows in errors

    Memory: O(conditions) numbers and a profile of 512 rows. Not thread-safe. Raises QueryError for an object that is no
    condition and for a condition that does not fit. Algorithm: A-Greedy (`eddy.filters.profile`).

    >>> import pyarrow.compute as pc
    >>> large_x = AdaptiveFilter([pc.field("a") > 1, lambda batch: pc.equal(batch["b"], "x")], names=["large", "x"])
    >>> large_x.filter(pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "x"]})).to_pylist()
    [{'a': 3, 'b': 'x'}]
    >>> large_x.order
    ('large', 'x')
    """

    def __init__(
        self,
        predicates: Filter,
        names: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        adaptive: bool = True,
        share: float = 0.02,
        clock: Callable[[], float] = perf_counter,
        place: str = "filter",
        rows: str = "rows",
    ) -> None:
        if not 0 <= share < 1:
            raise QueryError(f"share of the filter's time must be 0 or more and less than 1, not {share!r}")
        self.predicates = named(conditions(predicates, schema, place), names)
        n = len(self.predicates)
        self.place = place
        self.adaptive = adaptive and n > 1
        self.reorders = 0
        """Number of changes of the order."""
        self.seconds = 0.0
        """Seconds that the filter took, including the seconds for samples."""
        self._order = list(range(n))
        self._costs = [CallCost() for _ in range(n)]
        self._taking = CallCost()
        self._profile = Profile(n)
        self._sampler = Sampler(share)
        self._clock = clock
        self._schema: pa.Schema | None = None
        self._columns_read: list[list[str]] = []
        """The columns that each condition reads."""
        self._expected = 0.0
        """Share of the rows that the first condition drops, by the profile."""
        self._slices = 0
        self._slice_rows = 0.0
        """Moving mean of the rows of a slice."""
        self._rows_in, self._rows_out, self._call_seconds = [0] * n, [0] * n, [0.0] * n
        self._error_prefixes = []
        """Per condition the beginning of its error messages."""
        for predicate in self.predicates:
            expression = isinstance(predicate.function, pc.Expression)
            called = place if expression and n == 1 else f"{place}, predicate {predicate.title!r},"
            rule = "" if expression or n == 1 else " (each is evaluated on any row, also on rows that others reject)"
            self._error_prefixes.append(f"{called} failed on these {rows}{rule}")

    @property
    def sampled(self) -> int:
        """Rows sampled."""
        return self._sampler.rows

    @property
    def sample_seconds(self) -> float:
        """Seconds that samples took."""
        return self._sampler.seconds

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the conditions in their current order."""
        return tuple(self.predicates[k].title for k in self._order)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which all conditions are true, in order. Raises InputError as `accepted` does."""
        rows = self.accepted(batch)
        return batch if len(rows) == len(batch) else taken(batch, rows)

    def accepted(self, batch: pa.RecordBatch) -> Rows:
        """Return the numbers of the rows for which all conditions are true (not null), int64, ascending.

        Raises InputError as `divided` does, and for a row that fails; the filter keeps all that it has learnt before.
        """
        rows, failing = self.divided(batch)
        for row, (k, reason) in failing.items():
            raise InputError(f"{self._error_prefixes[k]}: {reason} (row {row})")
        return rows

    def faults(self, failing: Mapping[int, tuple[int, str]], kind: str, first: int = 0) -> Faults:
        """Return the faults of rows that `divided` found; `first` is added to their numbers."""
        return {first + row: Fault(kind, self.predicates[k].title, reason) for row, (k, reason) in failing.items()}

    def divided(self, batch: pa.RecordBatch) -> tuple[Rows, dict[int, tuple[int, str]]]:
        """Return the numbers of the rows for which all conditions are true, and of the failing rows, both ascending.

        A failing row has the first of the conditions that fail on the row, and the reason.

        Raises InputError, naming the condition, if a function fails or does not return a boolean for each row; the
        filter keeps all that it has learnt before. Cost: the cost of each condition on the rows that the conditions
        before it accept, or on all rows of a slice where narrowing would cost more.
        """
        failing: dict[int, tuple[int, str]] = {}
        rows = self._divided(batch, failing)
        if failing:
            there = np.isin(list(failing), rows).tolist()
            failing = {row: fault for (row, fault), kept in sorted(zip(failing.items(), there, strict=True)) if kept}
            rows = rows[~np.isin(rows, list(failing))]
        return rows, failing

    def _divided(self, batch: pa.RecordBatch, failing: dict[int, tuple[int, str]]) -> Rows:
        """Return the rows that no condition rejects, and add the rows on which a condition fails to `failing`."""
        if not self.predicates or not len(batch):
            return np.arange(len(batch), dtype=np.int64)
        if len(self.predicates) == 1:
            return self._single(batch, failing)
        if self._schema is None or not batch.schema.equals(self._schema):
            self._bind(batch.schema)
        accepted = []
        for low in range(0, len(batch), SLICE_ROWS):
            part = batch if len(batch) <= SLICE_ROWS else batch.slice(low, SLICE_ROWS)
            began = self._clock()
            self._slice_rows += (len(part) - self._slice_rows) * (0.2 if self._slice_rows else 1.0)
            if self.adaptive:
                self._learn(part)
                self._slices += 1
                sampled = self._clock()
            accepted.append(self._conjunction(part, low, failing) + low)
            ended = self._clock()
            self.seconds += ended - began
            if self.adaptive:
                self._sampler.spend(sampled - began, ended - sampled)
        return np.concatenate(accepted)

    def _bind(self, schema: pa.Schema) -> None:
        try:
            conditions(self.predicates, schema, self.place)
        except QueryError as error:
            raise InputError(str(error)) from error
        # A table without columns has no length, so an expression that reads no column gets one column.
        self._columns_read = [predicate.read(schema) or schema.names[:1] for predicate in self.predicates]
        self._schema = schema

    def _evaluate(self, k: int, batch: pa.RecordBatch, noted: bool = True) -> tuple[Mask, dict[int, str], float]:
        """Return the mask of a condition, the rows on which it fails, and the seconds it took.

        noted   whether to record these seconds as the cost of the condition
        """
        began = self._clock()
        mask, failing = mask_of(self.predicates[k], batch, self._error_prefixes[k])
        seconds = self._clock() - began
        if noted and not failing:
            self._costs[k].note(len(batch), seconds)
        return mask, failing, seconds

    def _single(self, batch: pa.RecordBatch, failing: dict[int, tuple[int, str]]) -> Rows:
        """Return the rows that the only condition does not reject, and record the rows on which it fails."""
        mask, faults, seconds = self._evaluate(0, batch)
        failing.update((row, (0, reason)) for row, reason in faults.items())
        rows = np.flatnonzero(mask)
        self._record(0, len(batch), len(rows), seconds)
        self.seconds += seconds
        return rows

    def _record(self, k: int, rows: int, accepted: int, seconds: float) -> None:
        self._rows_in[k] += rows
        self._rows_out[k] += accepted
        self._call_seconds[k] += seconds

    def _conjunction(self, batch: pa.RecordBatch, first: int, failing: dict[int, tuple[int, str]]) -> Rows:
        """Return the rows of a slice that no condition rejects, and record the rows on which a condition fails.

        first   number that is added to the numbers of the recorded rows
        """
        rows: Rows | None = None  # the rows of the slice that are in `batch`; None = all
        alive: Mask | None = None  # the rows of `batch` that all conditions so far accept; None = all
        asked = len(batch)
        for place, k in enumerate(self._order):
            mask, faults, seconds = self._evaluate(k, batch)
            for row, reason in faults.items():
                number = first + (row if rows is None else int(rows[row]))
                failing[number] = min(failing.get(number, (k, reason)), (k, reason))
            alive = mask if alive is None else alive & mask
            accepted = int(np.count_nonzero(alive))
            self._record(k, asked, accepted, seconds)
            if not place and asked >= DRIFT_ROWS and self._profile.rows:
                # The profile is a sample: a difference within three standard deviations proves no drift.
                off = abs(1 - accepted / asked - self._expected)
                self._sampler.drifting = off > DRIFT + 1.5 / self._profile.rows**0.5
            asked = accepted
            if not asked:
                return np.zeros(0, np.int64)
            later = self._order[place + 1 :]
            if later and asked < len(batch):
                columns = [name for name in batch.schema.names if any(name in self._columns_read[j] for j in later)]
                if self._pays(later, len(batch), asked, len(columns)):
                    began = self._clock()
                    picked = np.flatnonzero(alive)
                    batch = taken(batch.select(columns), picked)
                    self._taking.note(asked * len(columns), self._clock() - began)
                    rows, alive = picked if rows is None else rows[picked], None
        kept = np.arange(len(batch), dtype=np.int64) if alive is None else np.flatnonzero(alive)
        return kept if rows is None else rows[kept]

    def _pays(self, later: Sequence[int], rows: int, asked: int, columns: int) -> bool:
        """Return whether the expected saving of the later calls exceeds the cost of taking `asked` of `rows` rows."""
        saved = sum(self._costs[k].row_s for k in later) * (rows - asked)
        if any(not self._costs[k].calls for k in later):
            # The cost of a condition is unknown; a function may be expensive.
            return asked <= rows // 2
        cost = self._taking.of(asked * columns) if self._taking.calls else TAKE_CALL_S + TAKE_ROW_S * asked * columns
        return saved > cost

    # Learning

    def _learn(self, part: pa.RecordBatch) -> None:
        """Sample the slice if time allows, and change the order if profile and costs show a better one.

        Each slice improves the known costs, even without a sample. Therefore the order is also reconsidered after 1, 2,
        4, 8, 16, 32, 48, … slices.
        """
        count = self._sampler.count(len(part), self._costs, self.seconds)
        if count:
            self._sample(part, count)
        elif self._slices & (self._slices - 1) and self._slices % REORDER_EVERY:
            return
        better = self._profile.better(self._order, self._costs, self._slice_rows)
        if better is not None:
            self._order = better
            self.reorders += 1
        self._expected = float(self._profile.alone()[self._order[0]])

    def _sample(self, part: pa.RecordBatch, count: int) -> None:
        """Evaluate all conditions on `count` rows of a slice, for the profile and the costs."""
        batch = taken(part, self._sampler.draw(len(part), count))
        if self._sampler.drifting:
            self._profile.clear()
        low = 0
        for end in self._sampler.cuts(count):
            some, warm = batch.slice(low, end - low), bool(self._sampler.rows or low)
            masks = [self._evaluate(k, some, warm)[0] for k in range(len(self.predicates))]
            self._profile.add(~np.stack(masks, axis=1))
            low = end
        self._sampler.rows += count

    # As plain parts, for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return what the filter has learnt and counted, without the conditions, as plain parts."""
        return {
            "reorders": self.reorders,
            "seconds": float(self.seconds),
            "order": self._order,
            "costs": [cost.to_numbers() for cost in (*self._costs, self._taking)],
            "profile": self._profile.to_parts(),
            "sampler": self._sampler.to_parts(),
            "expected": float(self._expected),
            "slices": self._slices,
            "slice_rows": float(self._slice_rows),
            "rows_in": self._rows_in,
            "rows_out": self._rows_out,
            "call_seconds": [float(seconds) for seconds in self._call_seconds],
        }

    def load_parts(self, parts: Parts) -> None:
        """Set the state that a filter of the same conditions returned from `to_parts`. Raises StateError."""
        n = len(self.predicates)
        order = parts.integers("order", n, high=n)
        parts.require(sorted(order) == list(range(n)), f"order {order} of {n} conditions")
        for cost, numbers in zip((*self._costs, self._taking), parts.sequence("costs", n + 1), strict=True):
            whole = type(numbers) is list and all(type(value) is float for value in numbers)
            parts.require(whole and len(numbers) == COST_NUMBERS, f"costs {numbers}")
            cost.load_numbers(numbers)
        self._order = order
        self._profile.load_parts(parts.part("profile"))
        self._sampler.load_parts(parts.part("sampler"))
        self.reorders, self.seconds = parts.integer("reorders"), parts.number("seconds")
        self._expected = parts.number("expected")
        self._slices, self._slice_rows = parts.integer("slices"), parts.number("slice_rows")
        self._rows_in, self._rows_out = parts.integers("rows_in", n), parts.integers("rows_out", n)
        self._call_seconds = parts.numbers("call_seconds", n)

    # Figures

    def stats(self) -> list[dict[str, Any]]:
        """Return figures of each condition, in the current order.

        predicate          name of the condition
        position           place of the condition in the order, from 0
        rows, accepted     rows accepted by all conditions before, and the part of these rows that the condition accepts
        seconds            seconds of its calls, without samples
        call_us, row_ns    current cost of a call, and of each row in it
        selectivity        share accepted of the rows that reach the condition, by the profile
        selectivity_alone  share accepted of all rows, by the profile
        reorders           number of changes of the order

        Without a profile both shares are accepted / rows. A figure is None if there were no rows.
        """
        alone, drops, figures = self._profile.alone(), self._profile.drops(self._order), []
        for place, k in enumerate(self._order):
            share = self._rows_out[k] / self._rows_in[k] if self._rows_in[k] else None
            figures.append(
                {
                    "predicate": self.predicates[k].title,
                    "position": place,
                    "rows": self._rows_in[k],
                    "accepted": self._rows_out[k],
                    "seconds": self._call_seconds[k],
                    "call_us": 1e6 * self._costs[k].call_s if self._costs[k].calls else None,
                    "row_ns": 1e9 * self._costs[k].row_s if self._costs[k].calls else None,
                    "selectivity": 1 - drops[place] if self._profile.rows else share,
                    "selectivity_alone": float(1 - alone[k]) if self._profile.rows else share,
                    "reorders": self.reorders,
                }
            )
        return figures


def named(predicates: Sequence[Predicate], names: Sequence[str] | None) -> tuple[Predicate, ...]:
    """Return predicates under new names. Raises QueryError if the number of names differs, or a name occurs twice."""
    if names is None:
        return tuple(predicates)
    if isinstance(names, str) or len(names) != len(predicates):
        raise QueryError(f"names must have one string for each of {len(predicates)} predicates, not {names!r}")
    doubled = sorted({name for name in names if list(names).count(name) > 1})
    if doubled:
        raise QueryError(f"two predicates are named {doubled[0]!r}; names must be different")
    return tuple(replace(predicate, name=name) for predicate, name in zip(predicates, names, strict=True))
