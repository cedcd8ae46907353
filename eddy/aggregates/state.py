"""The state of all groups of a query: their keys, their cells, their values.

The key of a group is the words of its group columns, a word with a bit for each null, and, in windows of event time,
the *bucket*: the piece of time that its results come from. A change consists of the cells of some keys before and
after; writing it and taking it back are the same operation, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from eddy.aggregates.directory import LEAST_ROOM, SlotDirectory, numbered
from eddy.aggregates.kernels import add_rows
from eddy.aggregates.layout import CellLayout, InputRows, Weighted
from eddy.aggregates.values import ValueChange, Values
from eddy.aggregates.words import Mask, encode, ordered_floats
from eddy.filters.faults import Fault, Faults
from eddy.query.aggregation import Aggregation, ComputedAggregate
from stairs.bytes_directory import BytesDirectory
from stairs.errors import SnapshotError
from stairs.kernels.byte_strings import B_FREE, B_NEXT
from stairs.memory.allowance import Allowance
from stairs.plain_types import Column, declared

Int64s = npt.NDArray[np.int64]
SPARE_TEXTS = 1024
"""Number of unused byte strings that do not yet start a search for all unused byte strings."""


class GroupChange(NamedTuple):
    """A change of groups: the cells of different keys before and after, and whether each key is there.

    keys          int64[n, words]
    old, new      int64[n, fields]
    was, stays    bool[n]
    values        for each kind of values that is kept
    """

    keys: Int64s
    old: Int64s
    new: Int64s
    was: Mask
    stays: Mask
    values: tuple[ValueChange, ...]


class Stored(NamedTuple):
    """The state of groups: their cells, in which layout, and their values, whose keys have slots of groups."""

    layout: CellLayout
    groups: SlotDirectory
    values: list[Values]


class AggregationState:
    """The groups of an aggregation.

    retracts   whether results are taken back
    bucketed   whether keys end with a bucket
    allowance  is asked before arrays grow
    """

    def __init__(self, aggregation: Aggregation, retracts: bool, bucketed: bool, allowance: Allowance) -> None:
        self.aggregation = aggregation
        self._allowance = allowance
        self.texts = BytesDirectory(allowance)
        self._used_texts = 0
        layout = CellLayout(aggregation, retracts)
        self.key_types = [layout.types[number] for _, number in aggregation.keys]
        self.words = len(self.key_types) + 1 + bucketed
        values = [Values(len(inputs)) for inputs in layout.values]
        # In one attribute: parts of different states never meet, whatever comes between two statements.
        self.stored = Stored(layout, SlotDirectory(self.words, layout.fields), values)
        for group_values in values:
            # Now, so that a push or the end of the input without rows needs no more memory.
            group_values.make_room(self.groups.capacity, 0)

    @property
    def layout(self) -> CellLayout:
        """The cells of groups."""
        return self.stored.layout

    @property
    def groups(self) -> SlotDirectory:
        """The keys of groups and their cells."""
        return self.stored.groups

    @property
    def values(self) -> list[Values]:
        """The values of groups, as `CellLayout.values` lists them."""
        return self.stored.values

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.groups.nbytes + self.texts.nbytes + sum(values.nbytes for values in self.values)

    # Changes

    def keys(self, rows: InputRows, buckets: Int64s | None) -> Int64s:
        """Return the key of the group of each result."""
        parts = [self.words_of(rows.columns, len(rows.signs))]
        if buckets is not None:
            parts.append(buckets.reshape(-1, 1))
        return np.concatenate(parts, axis=1)

    def words_of(self, columns: Sequence[Column] | Mapping[int, Column], n: int) -> Int64s:
        """Return the words of the group columns of n rows, given by input."""
        group_columns = [columns[number] for _, number in self.aggregation.keys]
        return encode(list(zip(self.key_types, group_columns, strict=True)), self.texts, n)

    def change(self, rows: InputRows, keys: Int64s, always: bool) -> GroupChange:
        """Return the change of the groups of some results.

        keys     of the group of each result
        always   the one group of a query without group columns is there without results, too
        """
        layout = self.widened(self.layout.fitting(rows))
        numbers, group_keys = self._numbered(keys, always)
        slots, old = self.before(group_keys)
        new = old + layout.deltas(rows, numbers, len(group_keys))
        layout.normalize(new)
        changes = []
        for inputs, values in zip(layout.values, self.values, strict=True):
            there = rows.present(inputs)
            words = np.column_stack([rows.words(k)[there] for k in inputs])
            changes.append(values.change(words, numbers[there], rows.signs[there], slots))
        if not layout.retracts:
            layout.merge_extremes(new, old, rows, numbers, self.texts)
        return self.followed(group_keys, slots, old, new, changes, always)

    def followed(
        self,
        keys: Int64s,
        slots: Int64s,
        old: Int64s,
        new: Int64s,
        changes: Sequence[ValueChange],
        always: bool,
    ) -> GroupChange:
        """Return the change of groups from their cells, after `changes` of their values are written into the cells.

        slots   of the groups, -1 for a new one
        """
        for change, values in zip(changes, self.values, strict=True):
            values.make_room(self.groups.capacity, len(change.numbers), self._allowance)
        self.layout.follow_values(new, old, slots, changes, self.values, self.texts)
        self._check_counts(new, changes)
        stays = np.ones(len(keys), np.bool_) if always else new[:, 0] > 0
        return GroupChange(keys, old, new, slots >= 0, stays, tuple(changes))

    def weighted_change(self, rows: Weighted, keys: Int64s, always: bool) -> GroupChange:
        """Return the change of the groups by rows that stand for many results each; as `change`."""
        layout = self.widened(self.layout.covering(rows.sums))
        numbers, group_keys = self._numbered(keys, always)
        slots, old = self.before(group_keys)
        new = old.copy()
        add_rows(layout.cells_of(rows), numbers, new)
        layout.normalize(new)
        return self.followed(group_keys, slots, old, new, (), always)

    def _numbered(self, keys: Int64s, always: bool) -> tuple[Int64s, Int64s]:
        """Return the number of the group of each row, and the different keys."""
        numbers, first = numbered(keys)
        group_keys = keys[first]
        return numbers, np.zeros((1, self.words), np.int64) if always and not len(group_keys) else group_keys

    def before(self, group_keys: Int64s) -> tuple[Int64s, Int64s]:
        """Make room for groups; return their slots, -1 for a new one, and their cells, 0 for a new one."""
        self.groups.make_room(len(group_keys), self._allowance)
        slots = self.groups.find(group_keys)
        return slots, np.where((slots >= 0)[:, None], self.groups.cells[slots], 0)

    def _check_counts(self, cells: Int64s, changes: Sequence[ValueChange]) -> None:
        """Raise SnapshotError if more is taken back than was there: only altered snapshots make such groups."""
        layout = self.layout
        counts = cells[:, list(layout.present.values())]
        fits = bool((counts >= 0).all()) and bool((counts <= cells[:, :1]).all()) and bool((cells[:, 0] >= 0).all())
        if not fits or any((change.new < 0).any() for change in changes):
            raise SnapshotError(
                "a result that no group has is taken back: the groups contradict the windows, so the snapshot from"
                " which this runtime was restored had been altered"
            )
        for k, total in layout.sums.items():
            # A sum without values is zero; this also resets an altered sum.
            cells[counts[:, list(layout.present).index((k,))] == 0, total.at : total.at + total.width] = 0

    def widened(self, layout: CellLayout) -> CellLayout:
        """Keep the groups in a layout with wider sums, and return it."""
        if layout is not self.layout:
            self._allowance.ask(8 * layout.fields * self.groups.capacity, "wider sums of groups")
            cells = self.layout.moved(self.groups.cells, layout)
            self.stored = Stored(layout, self.groups.with_cells(cells), self.values)
        return layout

    def write(self, change: GroupChange, back: bool = False) -> None:
        """Carry a change out, or take it back. The call may be repeated."""
        cells, kept = (change.old, change.was) if back else (change.new, change.stays)
        self.groups.write(change.keys[kept], cells[kept], np.ones(int(np.count_nonzero(kept)), np.bool_))
        slots = self.groups.find(change.keys)
        for value_change, values in zip(change.values, self.values, strict=True):
            counts = value_change.old if back else value_change.new
            values.write(slots[value_change.numbers], value_change.words, counts, self.groups.capacity)
        self.groups.remove(self.groups.find(change.keys[~kept]))

    def remove(self, keys: Int64s) -> None:
        """Remove groups with their values. The call may be repeated."""
        slots = self.groups.find(keys)
        slots = slots[slots >= 0]
        for values in self.values:
            words, places = values.of(slots)
            values.write(slots[places], words, np.zeros(len(words), np.int64), self.groups.capacity)
        self.groups.remove(slots)

    # Memory

    def tidy(self) -> None:
        """Release unused memory. O(1), or O(groups and values) after the removal of as many groups and values."""
        sparse = [self.groups, *(values.directory for values in self.values)]
        if any(directory.capacity > LEAST_ROOM and 8 * len(directory) < directory.capacity for directory in sparse):
            self._rebuild()
            self._used_texts = 0
        if self._texts_in_use() > 2 * self._used_texts + SPARE_TEXTS:
            self.texts.recount(np.concatenate([np.zeros(0, np.int64), *self._text_ids()]))
            self._used_texts = self._texts_in_use()

    def _texts_in_use(self) -> int:
        meta = self.texts.arena.meta
        return int(meta[B_NEXT] - meta[B_FREE])

    def _rebuild(self) -> None:
        slots = self.groups.slots
        groups = SlotDirectory(self.words, self.layout.fields)
        new_slots = groups.write(self.groups.keys[slots], self.groups.cells[slots], np.ones(len(slots), np.bool_))
        rebuilt = []
        for inputs, values in zip(self.layout.values, self.values, strict=True):
            words, places = values.of(slots)
            counts = values.directory.cells[values.directory.find(np.column_stack([slots[places], words])), 0]
            smaller = Values(len(inputs))
            smaller.write(new_slots[places], words, counts, groups.capacity)
            rebuilt.append(smaller)
        self.stored = Stored(self.layout, groups, rebuilt)

    def text_places(self) -> tuple[list[int], list[tuple[int, int]], list[list[int]]]:
        """Return where ids of byte strings are: words of keys; fields of cells with their counts; words of values."""
        keys = [k for k, key_type in enumerate(self.key_types) if key_type.text]
        fields = [
            (at + k, self.layout.present[inputs])
            for (inputs, _), at in self.layout.extremes.items()
            for k, word_type in enumerate(self.layout.words_of(inputs))
            if word_type is not None and word_type.text
        ]
        values = [
            [k for k, word_type in enumerate(self.layout.words_of(inputs)) if word_type is not None and word_type.text]
            for inputs in self.layout.values
        ]
        return keys, fields, values

    def _text_ids(self) -> Iterable[Int64s]:
        """Yield the ids of the byte strings of all groups and values."""
        keys, fields, words = self.text_places()
        slots = self.groups.slots
        group_keys, cells = self.groups.keys[slots], self.groups.cells[slots]
        nulls = group_keys[:, len(self.key_types)]
        for k in keys:
            yield group_keys[(nulls >> k & 1) == 0, k]
        for at, present in fields:
            yield cells[cells[:, present] > 0, at]
        for places, values in zip(words, self.values, strict=True):
            listed = values.directory.keys[values.directory.slots]
            for k in places:
                yield listed[:, 1 + k]

    # Rows of groups

    def key_columns(self, keys: Int64s) -> list[pa.Array]:
        """Return the group columns of some keys, in their declared types."""
        nulls = keys[:, len(self.key_types)]
        return [
            declared(key_type.array(np.ascontiguousarray(keys[:, k]), (nulls >> k & 1) == 0, self.texts), key_type.kind)
            for k, key_type in enumerate(self.key_types)
        ]

    def function_columns(self, cells: Int64s) -> tuple[list[pa.Array], Faults]:
        """Return the aggregates of some cells, and the rows that have none: a sum exceeds its type, and is null."""
        arrays, faults = [], Faults()
        for aggregate in self.aggregation.functions:
            array, beyond = self._function(aggregate, cells)
            arrays.append(array)
            if beyond is not None:
                for row in np.flatnonzero(beyond).tolist():
                    faults.setdefault(row, self._exceeded(aggregate))
        return arrays, dict(sorted(faults.items()))

    def _exceeded(self, aggregate: ComputedAggregate) -> Fault:
        """Return the fault of a group whose sum exceeds its type."""
        assert aggregate.column is not None
        argument = self.aggregation.inputs[aggregate.column]
        text = argument.name if argument.expression is None else str(argument.expression)
        remedy = (
            "; sum a decimal: cast(pyarrow.decimal128(38, 0)), in SQL DECIMAL(38, 0)"
            if pt.is_integer(aggregate.kind)
            else ""
        )
        what = "has more digits than" if pt.is_decimal(aggregate.kind) else "exceeds the range of"
        return Fault(
            "aggregate", f"{aggregate.function}({text}) AS {aggregate.name}", f"the sum {what} {aggregate.kind}{remedy}"
        )

    def _function(self, aggregate: ComputedAggregate, cells: Int64s) -> tuple[pa.Array, Mask | None]:
        """Return the values of a function, and which of them exceed its type; None = a type that none can exceed."""
        layout = self.layout
        if aggregate.column is None:
            return pa.array(cells[:, 0]), None
        inputs = layout.inputs_of(aggregate)
        counts = cells[:, layout.present[inputs]]
        there = counts > 0
        match aggregate.rule.form:
            case "count":
                return pa.array(counts), None
            case "distinct":
                return pa.array(cells[:, layout.distinct[inputs]]), None
            case "sum":
                return layout.sums[aggregate.column].array(cells, there, aggregate.kind)
            case "mean":
                return pa.array(self._means(aggregate, cells, counts, there), mask=~there), None
            case "least" | "greatest":
                word_type, words = (
                    layout.types[aggregate.column],
                    np.ascontiguousarray(cells[:, layout.extreme_of(aggregate)]),
                )
                return declared(word_type.array(words, there, self.texts), word_type.kind), None
            case other:
                assert_never(other)

    def _means(
        self, aggregate: ComputedAggregate, cells: Int64s, counts: Int64s, there: Mask
    ) -> npt.NDArray[np.float64]:
        """Return the means, 0 where there is none."""
        assert aggregate.column is not None
        total = self.layout.sums[aggregate.column]
        values = total.floats_of(cells)
        if pt.is_decimal(total.kind):
            values = values / 10.0**total.kind.scale
        return np.divide(values, counts, out=np.zeros(len(cells)), where=there)

    def same(self, left: Int64s, right: Int64s) -> Mask:
        """Return in which rows of cells all aggregates are equal; NaN equals NaN."""
        equal = np.ones(len(left), np.bool_)
        for aggregate in self.aggregation.functions:
            for mine, other in zip(self._compared(aggregate, left), self._compared(aggregate, right), strict=True):
                equal &= mine == other
        return equal

    def _compared(self, aggregate: ComputedAggregate, cells: Int64s) -> Iterator[Int64s]:
        """Yield numbers that are equal exactly if the values of a function are."""
        layout = self.layout
        if aggregate.column is None:
            yield cells[:, 0]
            return
        inputs = layout.inputs_of(aggregate)
        counts = cells[:, layout.present[inputs]]
        there = counts > 0
        if aggregate.rule.nullable:
            yield there.astype(np.int64)
        match aggregate.rule.form:
            case "count":
                yield counts
            case "distinct":
                yield cells[:, layout.distinct[inputs]]
            case "sum":
                total = layout.sums[aggregate.column]
                if total.floats:
                    yield ordered_floats(np.where(there, total.floats_of(cells), 0.0))
                else:
                    yield from np.where(there, cells[:, total.first : total.first + total.limbs].T, 0)
            case "mean":
                yield ordered_floats(self._means(aggregate, cells, counts, there))
            case "least" | "greatest":
                yield np.where(there, cells[:, layout.extreme_of(aggregate)], 0)
            case other:
                assert_never(other)

    def check(self) -> None:
        """Raise StateError unless the invariants hold. O(state), for tests."""
        self.groups.check()
        for values in self.values:
            values.check(self.groups.slots)
