"""The groups of a runtime as arrays, for snapshots and other processes, and back; nothing read is trusted.

    keys          int64[groups, words]      with ids of byte strings as numbers of `text`
    cells         int64[groups, fields]
    values        int64[values, words + 2]  number of the group, words, results that have the value
    text, text offsets                      the byte strings, concatenated

The progress of the windows is not written, because the progress follows from other parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.directory import numbered
from eddy.aggregates.kernels import add_rows
from eddy.aggregates.layout import CellLayout
from eddy.aggregates.state import AggregationState, Stored
from eddy.aggregates.sums import Sum, valid_range
from eddy.aggregates.words import Words
from stairs.graph import FOREVER
from stairs.memory.arena import Bytes
from stairs.storage.json_form import integer, row_of
from stairs.storage.parts import Parts, Plain

Int64s = npt.NDArray[np.int64]
Require = Callable[[bool, str], None]
_RANGE = row_of(integer(-100, 100), integer(1, 100))
"""The first limb of a sum, and the number of its limbs."""


def contents(state: AggregationState, slots: Int64s | None = None) -> Plain:
    """Return the parts, with the ranges of the sums. O(groups and values).

    slots   of the groups, None = of all
    """
    layout = state.layout
    keys, cells, listed = copied(state, state.groups.slots if slots is None else slots)
    texts = text_ids(state, keys, cells, listed)
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[rows, k] for part, rows, k in texts)]))
    for part, rows, k in texts:
        part[rows, k] = np.searchsorted(ids, part[rows, k])
    offsets, text = state.texts.read(ids)
    sums = [[total.base, total.limbs] for total in layout.sums.values()]
    return {"sums": sums, "keys": keys, "cells": cells, "values": listed, "text offsets": offsets, "text": text}


def copied(state: AggregationState, slots: Int64s) -> tuple[Int64s, Int64s, list[Int64s]]:
    """Return copies of the keys, the cells and the values of some groups, with the ids of `state` for byte strings."""
    place = np.full(state.groups.capacity, -1, np.int64)
    place[slots] = np.arange(len(slots))
    listed = []
    for values in state.values:
        value_slots = values.directory.slots
        rows = np.column_stack([values.directory.keys[value_slots], values.directory.cells[value_slots]])
        rows[:, 0] = place[rows[:, 0]]
        listed.append(rows[rows[:, 0] >= 0])
    return state.groups.keys[slots], state.groups.cells[slots], listed


def text_ids(
    state: AggregationState, keys: Int64s, cells: Int64s, listed: list[Int64s]
) -> list[tuple[Int64s, Any, int]]:
    """Return where ids of byte strings are: the part, the rows, the column."""
    own_keys, own_fields, own_values = state.text_places()
    nulls = keys[:, len(state.key_types)]
    text_parts: list[tuple[Int64s, Any, int]] = [(keys, (nulls >> k & 1) == 0, k) for k in own_keys]
    text_parts += [(cells, cells[:, present] > 0, at) for at, present in own_fields]
    for rows, places in zip(listed, own_values, strict=True):
        text_parts += [(rows, np.ones(len(rows), np.bool_), 1 + k) for k in places]
    return text_parts


def fill(state: AggregationState, alone: bool, parts: Parts) -> None:
    """Fill the empty state of groups with what `contents` returned; it cannot be used if the parts do not fit.

    alone   whether there is one group, which is there without results, too
    """
    require = parts.require
    layout = _layout(state.layout, parts.sequence("sums", len(state.layout.sums), _RANGE), require)
    # Copied: ids take the place of the numbers of byte strings.
    keys = parts.array("keys", np.int64, (-1, state.words)).copy()
    cells = parts.array("cells", np.int64, (-1, layout.fields)).copy()
    widths = [2 + group_values.width for group_values in state.values]
    listed = [array.copy() for array in parts.arrays("values", np.int64, [(-1, width) for width in widths])]
    text = parts.array("text offsets", np.int64, (-1,)), parts.array("text", np.uint8, (-1,))
    n = len(keys)
    require(len(cells) == n and len(numbered(keys)[1]) == n, "groups: keys and cells do not fit together")
    _check_counts(state, alone, layout, keys, cells, listed, require)
    _fill_texts(state, keys, cells, listed, text, require)
    _check_words(state, layout, keys, cells, listed, require)
    state.stored = Stored(layout, state.groups.with_cells(layout_room(state, layout)), state.values)
    slots = state.groups.write(keys, cells, np.ones(n, np.bool_))
    for rows, values in zip(listed, state.values, strict=True):
        values.write(slots[rows[:, 0]], np.ascontiguousarray(rows[:, 1:-1]), rows[:, -1].copy(), state.groups.capacity)
    _check_extremes(state, cells, slots, require)


def layout_room(state: AggregationState, layout: CellLayout) -> Int64s:
    """Return cells of a layout for all slots."""
    return np.zeros((state.groups.capacity, layout.fields), np.int64)


def _layout(layout: CellLayout, ranges: list[list[int]], require: Require) -> CellLayout:
    sums = {}
    for (k, total), (base, limbs) in zip(layout.sums.items(), ranges, strict=True):
        same = (base, limbs) == (total.base, total.limbs)
        require(same or valid_range(base, limbs, total.floats), f"groups: a sum has {limbs} limbs from {base} on")
        sums[k] = Sum(total.kind, 0, limbs, base)
    return layout.with_sums(sums)


def _check_counts(
    state: AggregationState,
    alone: bool,
    layout: CellLayout,
    keys: Int64s,
    cells: Int64s,
    listed: list[Int64s],
    require: Require,
) -> None:
    """Check all counts, and the normal form of sums."""
    n, totals = len(keys), cells[:, 0]
    require(bool((totals >= (not alone)).all()), "groups: a group has no result")
    require(not alone or n <= 1, "groups: a query without group columns has more than one group")
    nulls = keys[:, len(state.key_types)]
    require(bool(((nulls >= 0) & (nulls < 1 << len(state.key_types))).all()), "groups: unknown bits of nulls")
    for k in range(len(state.key_types)):
        require(bool((keys[(nulls >> k & 1) == 1, k] == 0).all()), "groups: a null has a value")
    for at in layout.present.values():
        require(bool(((cells[:, at] >= 0) & (cells[:, at] <= totals)).all()), "groups: a count exceeds its group")
    for k, total in layout.sums.items():
        require(total.check(cells[:, total.first : total.first + total.limbs]), "groups: a sum has no normal form")
        there = cells[:, layout.present[(k,)]] > 0
        require(bool((cells[~there, total.at : total.at + total.width] == 0).all()), "groups: a sum without a value")
        odd = cells[:, total.at : total.first]
        require(bool((odd >= 0).all()), "groups: a count is negative")
    for inputs, rows in zip(layout.values, listed, strict=True):
        fits = bool(((rows[:, 0] >= 0) & (rows[:, 0] < n) & (rows[:, -1] > 0) & (rows[:, -1] < 1 << 60)).all())
        require(fits and len(numbered(rows[:, :-1])[1]) == len(rows), "groups: values do not fit their groups")
        counts = np.zeros((n, 2), np.int64)
        add_rows(np.column_stack([rows[:, -1], np.ones(len(rows), np.int64)]), rows[:, 0].copy(), counts)
        require(bool((counts[:, 0] <= totals).all()), "groups: more values than results")
        if inputs in layout.present:
            require(bool((counts[:, 0] == cells[:, layout.present[inputs]]).all()), "groups: values are missing")
        if inputs in layout.distinct:
            require(bool((counts[:, 1] == cells[:, layout.distinct[inputs]]).all()), "groups: values are missing")


def _fill_texts(
    state: AggregationState,
    keys: Int64s,
    cells: Int64s,
    listed: list[Int64s],
    strings: tuple[Int64s, Bytes],
    require: Require,
) -> None:
    """Intern the byte strings, and write their ids in place of their numbers."""
    offsets, text = strings
    n = len(offsets) - 1
    fits = n >= 0 and offsets[0] == 0 and offsets[-1] == len(text) and bool((np.diff(offsets) >= 0).all())
    require(fits, "groups: byte strings do not fit their offsets")
    places = text_ids(state, keys, cells, listed)
    used = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[rows, k] for part, rows, k in places)]))
    require(np.array_equal(used, np.arange(n)), "groups: other byte strings are used than are there")
    data = text if len(text) else np.zeros(1, np.uint8)
    ids = state.texts.intern(offsets, data, np.zeros(n, np.uint8))
    require(len(np.unique(ids)) == n, "groups: two byte strings are equal")
    for part, rows, k in places:
        part[rows, k] = ids[part[rows, k]]


def _check_words(
    state: AggregationState, layout: CellLayout, keys: Int64s, cells: Int64s, listed: list[Int64s], require: Require
) -> None:
    """Check that all words are those of values of their types."""

    def check(word_type: Words | None, words: Int64s, valid: npt.NDArray[np.bool_]) -> None:
        words = np.ascontiguousarray(words)
        if word_type is None:
            require(bool((np.abs(words) <= FOREVER).all()), "groups: an event time is out of range")
            return
        try:
            array = word_type.array(words, valid, state.texts)
            # Text need not be UTF-8: such text may have been pushed.
            array.validate(full=word_type.wide or not word_type.text)
            same = np.array_equal(word_type.of(array, state.texts)[valid], words[valid])
        except (pa.ArrowException, OverflowError):
            same = False
        require(same, f"groups: a value is none of type {word_type.kind}")

    nulls = keys[:, len(state.key_types)]
    for k, key_type in enumerate(state.key_types):
        check(key_type, keys[:, k], (nulls >> k & 1) == 0)
    for (inputs, _), at in layout.extremes.items():
        there = cells[:, layout.present[inputs]] > 0
        require(bool((cells[~there, at : at + len(inputs)] == 0).all()), "groups: an extreme without a value")
        for k, word_type in enumerate(layout.words_of(inputs)):
            check(word_type, cells[:, at + k], there)
    for inputs, rows in zip(layout.values, listed, strict=True):
        for k, word_type in enumerate(layout.words_of(inputs)):
            check(word_type, rows[:, 1 + k], np.ones(len(rows), np.bool_))


def _check_extremes(state: AggregationState, cells: Int64s, slots: Int64s, require: Require) -> None:
    """Check that extremes are those of the values, where values are kept for them."""
    layout = state.layout
    for inputs, values in zip(layout.values, state.values, strict=True):
        words, places = values.of(slots)
        for greatest in (False, True):
            if layout.retracts and (inputs, greatest) in layout.extremes:
                at = layout.extremes[inputs, greatest]
                settled = np.zeros_like(cells)
                layout.settle_extreme(settled, inputs, greatest, words, places, state.texts)
                fields = slice(at, at + len(inputs))
                require(
                    np.array_equal(settled[:, fields], cells[:, fields]), "groups: an extreme is none of its values"
                )
