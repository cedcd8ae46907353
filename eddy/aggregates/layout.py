"""The cells of a group: the numbers kept for the functions of a query, and the changes of these numbers by rows.

    0          results in the group
    present    results in which some inputs are not null, for counts, means, and whether there is a value at all
    distinct   different values of an input
    extremes   the least or greatest value of an input, in words; for `first` and `last` with the word of `by` before it
    sums       exact sums (`eddy.aggregates.sums`)

Functions with the same inputs share their cells. Where results are taken back, extremes follow from all values
(`eddy.aggregates.values`); else they are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.directory import numbered
from eddy.aggregates.kernels import add_rows, choose
from eddy.aggregates.sums import Sum
from eddy.aggregates.values import ValueChange, Values
from eddy.aggregates.words import Mask, Words, valid_rows
from eddy.query.aggregation import Aggregation, ComputedAggregate
from stairs.bytes_directory import BytesDirectory
from stairs.plain_types import Column

Int64s = npt.NDArray[np.int64]
Inputs = tuple[int, ...]
"""Inputs by their numbers; TIME is the event time of results."""
TIME = -1


class InputRows:
    """The inputs of some results.

    signs    int64[n], 1 for a result that comes and -1 for one that goes
    columns  by input
    times    event times in ticks, and which results have one; None if no function or window needs them
    """

    def __init__(
        self,
        signs: Int64s,
        columns: Sequence[Column],
        times: tuple[Int64s, Mask] | None,
        types: Sequence[Words],
        texts: BytesDirectory,
    ) -> None:
        self.signs, self.columns, self.times = signs, columns, times
        self._types, self._texts = types, texts
        self._words: dict[int, Int64s] = {}

    @cached_property
    def valid(self) -> list[Mask]:
        """For each input, a mask of the values that are not null."""
        return [valid_rows(column) for column in self.columns]

    def present(self, inputs: Inputs) -> Mask:
        """Return in which results none of some inputs is null."""
        valid = np.ones(len(self.signs), np.bool_)
        for k in inputs:
            if k != TIME:
                valid &= self.valid[k]
            elif self.times is not None:
                valid &= self.times[1]
        return valid

    def words(self, k: int) -> Int64s:
        """Return the words of an input, 0 for null."""
        if k == TIME:
            assert self.times is not None
            return self.times[0]
        if k not in self._words:
            self._words[k] = self._types[k].of(self.columns[k], self._texts)
        return self._words[k]

    def taken(self, rows: Int64s) -> InputRows:
        """Return some of the results."""
        numbers = pa.array(rows)
        times = None if self.times is None else (self.times[0][rows], self.times[1][rows])
        return InputRows(
            self.signs[rows], [column.take(numbers) for column in self.columns], times, self._types, self._texts
        )


class Weighted(NamedTuple):
    """Gains and losses of groups, without joined rows: each row stands for many.

    size     number of rows
    columns  by input the group columns
    counts   int64[size], how many joined rows come, less those that go
    parts    by input the change of its counts int64[size, …] (not null; of floats NaN, inf and -inf), and of the limbs
             of its sum int64[size, …]
    sums     by input the sum whose limbs these are
    changes  joined rows that come and that go, as far as they were told apart
    """

    size: int
    columns: Mapping[int, Column]
    counts: Int64s
    parts: Mapping[int, tuple[Int64s, Int64s]]
    sums: Mapping[int, Sum]
    changes: int


class CellLayout:
    """The cells of the groups of an aggregation; `retracts` says whether results are taken back."""

    def __init__(self, aggregation: Aggregation, retracts: bool) -> None:
        self.aggregation = aggregation
        self.retracts = retracts
        self.types = [Words(argument.kind) for argument in aggregation.inputs]
        """The words of the values of each input."""
        present: dict[Inputs, None] = {}
        distinct: dict[Inputs, None] = {}
        extremes: dict[tuple[Inputs, bool], None] = {}
        values: dict[Inputs, None] = {}
        sums: dict[int, None] = {}
        for aggregate in aggregation.functions:
            if aggregate.column is None:
                continue
            inputs = self.inputs_of(aggregate)
            present[inputs] = None
            match aggregate.rule.form:
                case "count":
                    pass
                case "sum" | "mean":
                    sums[aggregate.column] = None
                case "distinct":
                    distinct[inputs] = values[inputs] = None
                case "least" | "greatest":
                    extremes[inputs, aggregate.rule.form == "greatest"] = None
                    if retracts:
                        values[inputs] = None
                case other:
                    assert_never(other)
        fields = iter(range(1, 1 << 20))
        self.present = {inputs: next(fields) for inputs in present}
        """Inputs -> the field that counts results without a null in these inputs."""
        self.distinct = {inputs: next(fields) for inputs in distinct}
        """Inputs -> the field that counts their values."""
        self.extremes = {key: min([next(fields) for _ in key[0]]) for key in extremes}
        """(inputs, True for the greatest value) -> the first field of the extreme value."""
        self.values = tuple(values)
        """The inputs whose values are kept."""
        self._sums_at = next(fields)
        self.sums: dict[int, Sum] = {}
        self.fields = self._place({k: Sum.of(aggregation.inputs[k].kind, 0) for k in sums})

    @staticmethod
    def inputs_of(aggregate: ComputedAggregate) -> Inputs:
        """Return the inputs of a function that has any."""
        assert aggregate.column is not None
        if aggregate.rule.ordered:
            return (TIME if aggregate.by is None else aggregate.by), aggregate.column
        return (aggregate.column,)

    def extreme_of(self, aggregate: ComputedAggregate) -> int:
        """Return the field with the value of a function whose form is "least" or "greatest"."""
        inputs = self.inputs_of(aggregate)
        return self.extremes[inputs, aggregate.rule.form == "greatest"] + len(inputs) - 1

    def _place(self, sums: Mapping[int, Sum]) -> int:
        """Lay out sums behind the other cells; return the number of fields."""
        at, placed = self._sums_at, {}
        for k, total in sums.items():
            placed[k] = Sum(total.kind, at, total.limbs, total.base)
            at += total.width
        self.sums = placed
        """Input -> its sum."""
        return at

    def with_sums(self, sums: Mapping[int, Sum]) -> CellLayout:
        """Return the layout with sums of other widths."""
        other = copy(self)
        other.fields = other._place(sums)
        return other

    def fitting(self, rows: InputRows) -> CellLayout:
        """Return the layout with limbs for all floats of some results; the same layout if it has these limbs."""
        sums = {k: total.fitting(rows.columns[k]) for k, total in self.sums.items()}
        return self if all(sums[k] is total for k, total in self.sums.items()) else self.with_sums(sums)

    def covering(self, sums: Mapping[int, Sum]) -> CellLayout:
        """Return the layout with all limbs of other sums added; the same layout if it has these limbs."""
        wider = {k: total.covering(sums[k]) for k, total in self.sums.items()}
        return self if all(wider[k] is total for k, total in self.sums.items()) else self.with_sums(wider)

    def cells_of(self, rows: Weighted) -> Int64s:
        """Return what each row changes in the cells of its group. The layout covers the sums of the rows."""
        cells = np.zeros((rows.size, self.fields), np.int64)
        cells[:, 0] = rows.counts
        for (k,), at in self.present.items():
            cells[:, at] = rows.parts[k][0][:, 0]
        for k, total in self.sums.items():
            counts, limbs = rows.parts[k]
            cells[:, total.at : total.first] = counts[:, 1:]
            cells[:, total.first : total.first + total.limbs] = (
                rows.sums[k].moved(limbs, total) if total.floats else limbs
            )
        return cells

    def moved(self, cells: Int64s, new: CellLayout) -> Int64s:
        """Return cells of this layout in another layout, whose sums are wider."""
        wider = np.zeros((len(cells), new.fields), np.int64)
        wider[:, : self._sums_at] = cells[:, : self._sums_at]
        for k, total in self.sums.items():
            to = new.sums[k]
            wider[:, to.at : to.first] = cells[:, total.at : total.first]
            limbs = np.ascontiguousarray(cells[:, total.first : total.first + total.limbs])
            wider[:, to.first : to.first + to.limbs] = total.moved(limbs, to)
        return wider

    def words_of(self, inputs: Inputs) -> Iterator[Words | None]:
        """Yield the words of each of some inputs, None for the event time."""
        for k in inputs:
            yield None if k == TIME else self.types[k]

    # Changes by rows

    def deltas(self, rows: InputRows, numbers: Int64s, groups: int) -> Int64s:
        """Return what results add to the counts and sums of their groups, int64[groups, fields]; sums in normal form.

        numbers   the number of the group of each result
        """
        cells = np.zeros((groups, self.fields), np.int64)
        counted = [rows.signs, *(np.where(rows.present(inputs), rows.signs, 0) for inputs in self.present)]
        counts = np.zeros((groups, len(counted)), np.int64)
        add_rows(np.column_stack(counted), numbers, counts)
        # The counts are the first fields, in this order.
        cells[:, : len(counted)] = counts
        for k, total in self.sums.items():
            total.add(rows.columns[k], rows.valid[k], rows.signs, numbers, cells)
        self.normalize(cells)
        return cells

    def normalize(self, cells: Int64s) -> None:
        """Bring the sums of some cells into normal form."""
        for total in self.sums.values():
            total.normal(cells)

    def merged(
        self,
        cells: Int64s,
        numbers: Int64s,
        groups: int,
        stored: Sequence[tuple[Int64s, Int64s]],
        texts: BytesDirectory,
    ) -> Int64s:
        """Return cells added up by group: those of the rows with the same number. Not where results are taken back.

        stored   for each of `values` the values behind the cells, and the row of cells of each
        """
        combined = np.zeros((groups, self.fields), np.int64)
        added = np.zeros(self.fields, np.bool_)
        added[[0, *self.present.values()]] = True
        added[self._sums_at :] = True
        add_rows(np.where(added, cells, 0), numbers, combined)
        self.normalize(combined)
        for (inputs, greatest), at in self.extremes.items():
            there = cells[:, self.present[inputs]] > 0
            candidates = np.ascontiguousarray(cells[there, at : at + len(inputs)])
            self.settle_extreme(combined, inputs, greatest, candidates, numbers[there], texts)
        for inputs, at in self.distinct.items():
            # A value counts once, independently of the number of cells that have the value.
            words, rows = stored[self.values.index(inputs)]
            different = numbered(np.column_stack([numbers[rows], words]))[1]
            combined[:, at] = np.bincount(numbers[rows][different], minlength=groups)
        return combined

    def settle_extreme(
        self,
        cells: Int64s,
        inputs: Inputs,
        greatest: bool,
        words: Int64s,
        numbers: Int64s,
        texts: BytesDirectory,
    ) -> None:
        """Write the extreme value among words int64[n, inputs] into the cells of each number; 0 where there is none."""
        at = self.extremes[inputs, greatest]
        orders = np.empty_like(words)
        for k, encoding in enumerate(self.words_of(inputs)):
            orders[:, k] = words[:, k] if encoding is None else encoding.order(words[:, k], texts)
        chosen = np.full(len(cells), -1, np.int64)
        choose(orders, np.ascontiguousarray(numbers), int(greatest), chosen)
        there = chosen >= 0
        cells[:, at : at + len(inputs)] = 0
        cells[there, at : at + len(inputs)] = words[chosen[there]]

    def merge_extremes(
        self, cells: Int64s, old: Int64s, rows: InputRows, numbers: Int64s, texts: BytesDirectory
    ) -> None:
        """Write extremes of the values so far (`old`) and those of some results into cells; nothing is taken back."""
        for (inputs, greatest), at in self.extremes.items():
            there = rows.present(inputs)
            words = np.column_stack([rows.words(k)[there] for k in inputs])
            known = np.flatnonzero(old[:, self.present[inputs]] > 0)
            words = np.concatenate([words, old[known, at : at + len(inputs)]])
            groups = np.concatenate([numbers[there], known])
            self.settle_extreme(cells, inputs, greatest, words, groups, texts)

    def follow_values(
        self,
        cells: Int64s,
        old: Int64s,
        slots: Int64s,
        changes: Sequence[ValueChange],
        stored: Sequence[Values],
        texts: BytesDirectory,
    ) -> None:
        """Write extremes and counts of values into cells, after changes of the values of the groups in `slots`."""
        for inputs, change, values in zip(self.values, changes, stored, strict=True):
            if inputs in self.distinct:
                at = self.distinct[inputs]
                came = ((change.old == 0) & (change.new > 0)).astype(np.int64)
                went = ((change.old > 0) & (change.new == 0)).astype(np.int64)
                total = np.zeros((len(cells), 1), np.int64)
                add_rows((came - went).reshape(-1, 1), change.numbers, total)
                cells[:, at] = old[:, at] + total[:, 0]
            for greatest in (False, True):
                if self.retracts and (inputs, greatest) in self.extremes:
                    self._follow_extreme(cells, old, slots, inputs, greatest, change, values, texts)

    def _follow_extreme(
        self,
        cells: Int64s,
        old: Int64s,
        slots: Int64s,
        inputs: Inputs,
        greatest: bool,
        change: ValueChange,
        values: Values,
        texts: BytesDirectory,
    ) -> None:
        at, n = self.extremes[inputs, greatest], len(inputs)
        before = old[:, at : at + n]
        known = old[:, self.present[inputs]] > 0
        # The extreme of these groups has left: all their values are candidates.
        left = (change.new == 0) & known[change.numbers] & (change.words == before[change.numbers]).all(axis=1)
        lost = np.zeros(len(cells), np.bool_)
        lost[change.numbers[left]] = True
        stays = change.new > 0
        words, numbers = [change.words[stays]], [change.numbers[stays]]
        keeps = np.flatnonzero(known & ~lost)
        words.append(before[keeps])
        numbers.append(keeps)
        again = np.flatnonzero(lost)
        if len(again):
            candidates, places = values.of(np.ascontiguousarray(slots[again]))
            gone = values.directory.find(np.column_stack([slots[change.numbers], change.words])[~stays])
            stored = values.directory.find(np.column_stack([slots[again][places], candidates]))
            remains = ~np.isin(stored, gone)
            words.append(candidates[remains])
            numbers.append(again[places[remains]])
        self.settle_extreme(cells, inputs, greatest, np.concatenate(words), np.concatenate(numbers), texts)
