"""The live windows of all SteMs as flat arrays without references to an arena, and their load into empty modules.

Key ids, string ids and sequence numbers have a meaning in one arena only. Here the keys of a class are numbered in
order of first appearance (streams in order, tuples oldest first), strings in order of the keys that contain them, and a
stream has the arrival number of its oldest live tuple. So equal windows give equal arrays, whatever their history:

    R: tuples 4, 5, 6 with key ids 7, -1, 2     S: tuple 9 with key id 7
    numbers[R] = 0, -1, 1    numbers[S] = 0    words of the class = words of key id 7, words of key id 2

`fill` turns the numbers into ids: the directories are empty, so they assign ids in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stairs.descriptors import (
    A_OFFSET,
    C_CROWDED,
    C_NEXT,
    M_ARRIVALS,
    M_RESULTS,
    M_WATERMARK,
    S_BASE,
    S_LO,
    S_NEXT,
)
from stairs.graph import FOREVER
from stairs.kernels.snapshot import adopt_keys, insert_tuples, number
from stairs.memory.arena import Bytes, Int64s
from stairs.modules import Modules

Require = Callable[[bool, str], None]
LONGEST = 1 << 31
"""Strings in keys are shorter than this number of bytes."""


@dataclass
class WindowContents:
    """The contents of the windows of all streams.

    firsts         per stream the arrival number of its oldest live tuple
    rows           per stream the number of live tuples
    watermark      the watermark, -FOREVER before the first
    arrivals       number of arrivals since the start
    combinations   number of results since the start
    words          per class int64[keys * width]; a word that stands for a string is the number of the string
    texts          per (class, word) the strings: offsets int64[n + 1], bytes uint8[]
    numbers        per attribute row int64[rows], the key of each live tuple, -1 = the tuple cannot join
    values         per stream and ring int64[rows], the values of the live tuples
    """

    firsts: list[int]
    rows: list[int]
    watermark: int
    arrivals: int
    combinations: int
    words: list[Int64s]
    texts: dict[tuple[int, int], tuple[Int64s, Bytes]]
    numbers: list[Int64s]
    values: list[list[Int64s]]


def live_windows(modules: Modules) -> WindowContents:
    """Return a copy of the contents of the windows; the modules do not change. O(live tuples + key ids).

    Tables must be compact (`stairs.versions`).
    """
    graph = modules.graph
    m = graph.n_streams
    windows = WindowContents(
        firsts=(modules.streams[:, S_BASE] + modules.streams[:, S_LO]).tolist(),
        rows=[modules.rows(i) for i in range(m)],
        watermark=int(modules.meta[M_WATERMARK]),
        arrivals=int(modules.meta[M_ARRIVALS]),
        combinations=int(modules.meta[M_RESULTS]),
        words=[],
        texts={},
        numbers=[np.zeros(0, np.int64)] * len(modules.attrs),
        values=[],
    )
    for c, members in enumerate(graph.members):
        numbers = np.full(int(modules.classes[c, C_NEXT]), -1, np.int64)
        order, count = np.zeros(len(numbers), np.int64), 0
        for i in members:
            x = modules.attribute_rows[i, c]
            kids = _live(modules, i, modules.recs.view(i), int(modules.attrs[x, A_OFFSET]) + 1)
            count = number(kids, numbers, order, count)
            windows.numbers[x] = kids
        words = modules.words.view(c).reshape(-1, graph.widths[c])[order[:count]]
        for word, strings in modules.texts_of[c].items():
            ids = np.ascontiguousarray(words[:, word])
            seen = np.full(strings.most, -1, np.int64)
            used = np.zeros(len(seen), np.int64)
            windows.texts[c, word] = strings.read(used[: number(ids, seen, used, 0)])
            words[:, word] = ids
        windows.words.append(words.reshape(-1))
    for i, count in enumerate(graph.rings):
        windows.values.append([_live(modules, i, modules.value_ring(i, k), 0) for k in range(count)])
    return windows


def _live(modules: Modules, i: int, ring: Int64s, field: int) -> Int64s:
    """Return one field of each live tuple of stream i, oldest first."""
    room, n = modules.capacity[i], modules.rows(i)
    first = int(modules.streams[i, S_LO]) & (room - 1)
    column = ring.reshape(room, -1)[:, field]
    return np.concatenate([column[first : first + n], column[: max(0, first + n - room)]]).astype(np.int64)


def fill(modules: Modules, windows: WindowContents, require: Require) -> None:
    """Load the windows into new modules of the same graph. O(live tuples + keys).

    Counters of hops and sweeps start at zero.

    require   raises for a condition that does not hold: before room is made for the windows, and after that only for a
              duplicate key or string, and then the modules are unusable
    """
    graph = modules.graph
    keys = _checked(modules, windows, require)
    modules.reserve(windows.rows, keys)
    for c, words in enumerate(windows.words):
        for word, strings in modules.texts_of[c].items():
            offsets, text = windows.texts[c, word]
            ids = strings.intern(offsets, text, np.zeros(len(offsets) - 1, np.uint8))
            require(np.array_equal(ids, np.arange(len(ids))), f"class {c} has a string twice")
            strings.settle(np.ascontiguousarray(words.reshape(-1, graph.widths[c])[:, word]))
        adopted = adopt_keys(modules.arena, c, words, 0)
        while modules.classes[c, C_CROWDED]:
            modules.renew_hash(c)
            adopted = adopt_keys(modules.arena, c, words, adopted)
        require(adopted == keys[c], f"class {c} has a key twice")
    for x, kids in enumerate(windows.numbers):
        insert_tuples(modules.arena, x, kids)
    for i, rings in enumerate(windows.values):
        for k, values in enumerate(rings):
            modules.value_ring(i, k)[: len(values)] = values
    modules.streams[:, S_BASE] = windows.firsts
    modules.streams[:, S_NEXT] = windows.rows
    modules.meta[[M_WATERMARK, M_ARRIVALS, M_RESULTS]] = windows.watermark, windows.arrivals, windows.combinations


def _checked(modules: Modules, windows: WindowContents, require: Require) -> list[int]:
    """Return the number of keys of each class. Requires that all numbers are safe for the kernels.

    The kernels do not check bounds. Keys and strings must be numbered as `live_windows` does; so each of them is used,
    and they take no more room than the tuples.
    """
    graph = modules.graph
    for (i, c), x in modules.attribute_rows.items():
        kids, name = windows.numbers[x], graph.names[i]
        require(len(kids) == windows.rows[i], f"stream {name} has {windows.rows[i]} tuples with {len(kids)} keys")
        require(not len(kids) or bool(kids.min() >= -1), f"stream {name} has tuples with keys that do not exist")
        # A tuple that cannot join is in no index; the kernels read that from its first key.
        if c == (graph.primary[i] if graph.primary else None):
            require(len(np.unique(kids)) == len(kids), f"table {name} has two rows with one key")
            require(not len(kids) or bool(kids.min() >= 0), f"table {name} has a row without a key")
            continue
        first = windows.numbers[modules.attribute_rows[i, graph.attributes[i][0]]]
        require(np.array_equal(kids < 0, first < 0), f"stream {name} has a tuple with only some of its keys")
    keys = []
    for c, (words, width) in enumerate(zip(windows.words, graph.widths, strict=True)):
        require(len(words) % width == 0, f"class {c} has an incomplete key")
        keys.append(len(words) // width)
        used = np.concatenate([windows.numbers[modules.attribute_rows[i, c]] for i in graph.members[c]])
        require(_in_order(used, keys[c]), f"class {c} has {keys[c]} keys, or tuples with other keys")
        for word in modules.texts_of[c]:
            offsets, text = windows.texts[c, word]
            whole = len(offsets) and offsets[0] == 0 and offsets[-1] == len(text)
            sizes = np.diff(offsets)
            whole = whole and (not len(sizes) or (sizes.min() >= 0 and sizes.max() < LONGEST))
            require(bool(whole), f"class {c} has strings outside of its text")
            ids = words.reshape(-1, width)[:, word]
            known = (not len(ids) or ids.min() >= 0) and _in_order(ids, len(sizes))
            require(bool(known), f"class {c} has {len(sizes)} strings, or a key with another string")
    for i, rings in enumerate(windows.values):
        for k, (values, floats) in enumerate(zip(rings, graph.float_rings[i], strict=True)):
            name, rows = graph.names[i], windows.rows[i]
            require(len(values) == rows, f"stream {name} has {rows} tuples, {len(values)} values in ring {k}")
            if floats:
                require(not np.isnan(values.view(np.float64)).any(), f"stream {name} has a NaN in ring {k} of values")
            elif len(values):
                within = values.min() >= -FOREVER and values.max() <= FOREVER
                what = "event times" if graph.timed and k == 0 else "values"
                require(bool(within), f"stream {name} has {what} beyond ±2^61, in ring {k}")
        if i in graph.tables and windows.rows[i]:
            numbers = rings[-1]
            right = (
                numbers[0] >= 0 and (np.diff(numbers) > 0).all() and numbers[-1] < windows.firsts[i] + windows.rows[i]
            )
            require(bool(right), f"table {graph.names[i]} has versions that did not arrive in their order")
    return keys


def _in_order(numbers: Int64s, count: int) -> bool:
    """Return whether 0, 1, … count - 1 all occur, in this order of first appearance; negative numbers are ignored."""
    used = numbers[numbers >= 0]
    most = np.concatenate([[-1], np.maximum.accumulate(used)])
    return int(most[-1]) == count - 1 and bool((used <= most[:-1] + 1).all())
