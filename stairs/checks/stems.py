"""Checks of the arena, invariant by invariant.

They trust the graph only: the arrays may contain anything, as arrays from a file do. First come shapes, dtypes and
descriptors, then each number that kernels use as an index, then the meaning of the numbers. So after a check that
passes no kernel accesses memory outside its arrays, and a check that fails has not done so either.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import ge

import numpy as np
import numpy.typing as npt

from stairs.checks.byte_strings import check_strings, require
from stairs.checks.versions import check_versions
from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_FIELDS,
    A_LINK0,
    A_LINK1,
    A_MARKS,
    A_OFFSET,
    A_STREAM,
    C_CAPACITY,
    C_DEBT,
    C_FACTOR,
    C_FREE,
    C_FREELIST,
    C_HAND,
    C_HEADS,
    C_LAST,
    C_MEMBER,
    C_NEXT,
    C_SHIFT,
    C_STEMS,
    C_STRIDE,
    C_TABLE,
    C_TAG_FACTOR,
    C_TAG_SEED,
    C_WIDTH,
    C_WORDS,
    ENDS,
    LOADING,
    M_APART,
    M_ARRIVALS,
    M_BEHIND,
    M_CHANGELOG,
    M_FIELDS,
    M_MARKS,
    M_MODE,
    M_NEWEST,
    M_PRESENCE,
    M_RESULTS,
    M_TIMED,
    M_WATERMARK,
    N_COLUMN,
    N_FIELDS,
    N_STREAM,
    NOTHING,
    S_ATTR0,
    S_ATTR1,
    S_BANDS,
    S_BASE,
    S_FIELDS,
    S_KEY,
    S_KIND,
    S_LIFE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_NUMBERS,
    S_RECS,
    S_SIZE,
    S_VALUES,
    S_WIDTH,
)
from stairs.graph import FOREVER, WindowKind
from stairs.kernels.keys import FREED
from stairs.kernels.lookups import lost_key
from stairs.kernels.marks import MARKED
from stairs.kernels.presence import words_of
from stairs.kernels.versions import LIFE_FIELDS
from stairs.key_room import is_room, slots_of
from stairs.links import links_of
from stairs.memory.arena import Int64s
from stairs.memory.segments import Segments
from stairs.stems import Stems

MOST_SEQUENCE = (1 << 31) - 1
MOST_COUNT = 1 << 62


def check_stems(stems: Stems) -> None:
    """Raise StateError, naming the first invariant of rings, chains, key directories and strings that fails.

    O(state * log state), without a Python loop over tuples or keys.
    """
    graph = stems.graph
    _check_shapes(stems)
    _check_descriptors(stems)
    _check_meta(stems)
    for i, name in enumerate(graph.names):
        _check_ring(stems, i, f"SteM {name}")
    for c in range(graph.n_classes):
        used = _check_keys(stems, c, f"key directory of class {c}")
        for x in np.flatnonzero(stems.attrs[:, A_CLASS] == c).tolist():
            i = int(stems.attrs[x, A_STREAM])
            _check_chains(stems, i, x, used, f"SteM {graph.names[i]}, index on class {c}")
    for (i, c), x in stems.attribute_rows.items():
        _check_marks(stems, i, x, f"SteM {graph.names[i]}, index on class {c}")
    if stems.has_presence and stems.meta[M_PRESENCE]:
        _check_presence(stems)
    marks = int(stems.attrs[:, A_MARKS].sum())
    require(stems.meta[M_MARKS] == marks, f"{stems.meta[M_MARKS]} no-good marks, not {marks}")


def _check_shapes(stems: Stems) -> None:
    """Raise StateError unless every array has its dtype, and the size that follows from capacities and graph."""
    graph, room = stems.graph, stems.capacity
    m, n, attributes = graph.n_streams, graph.n_classes, sum(map(len, graph.indexed))
    tables: Mapping[str, tuple[Int64s, tuple[int, ...]]] = {
        "streams": (stems.streams, (m, S_FIELDS)),
        "classes": (stems.classes, (n, C_MEMBER + max([m, *map(len, graph.members)]))),
        "attrs": (stems.attrs, (attributes, A_FIELDS)),
        "links": (stems.links, (len(stems.links), N_FIELDS)),
        "meta": (stems.meta, (M_FIELDS,)),
    }
    for name, (table, shape) in tables.items():
        _check_array(table, np.int64, shape, name)
    powers = len(room) == m and all(
        isinstance(capacity, int) and capacity > 0 and capacity & (capacity - 1) == 0 for capacity in room
    )
    require(powers, f"rings of {room} slots: each of the {m} streams has a power of two")
    keys = stems.classes[:, C_CAPACITY].tolist()
    slots = [size // 2 for size in stems.table.size]
    full = len(slots) == n and all(
        0 < most <= MOST_SEQUENCE and is_room(most) and count == slots_of(most)
        for most, count in zip(keys, slots, strict=True)
    )
    require(full, f"room for {keys} keys in tables of {slots} slots; keys fill three quarters of a power of two")
    widths = [2 * len(classes) for classes in graph.indexed]
    for i in graph.tables:
        widths[i] += len(graph.indexed[i]) + LIFE_FIELDS
    before = [len(streams) ** 2 if stems.apart else 0 for streams in graph.members]
    heads = [k * len(streams) + first for k, streams, first in zip(keys, graph.members, before, strict=True)]
    require(stems.before == before, f"head rows of nulls in {stems.before} places, not {before}")
    sizes: Mapping[str, tuple[Segments, type, list[int]]] = {
        "recs": (stems.recs, np.int32, [capacity * width for capacity, width in zip(room, widths, strict=True)]),
        "values": (
            stems.values,
            np.int64,
            [capacity * count for capacity, count in zip(room, graph.rings, strict=True)],
        ),
        "heads": (stems.heads, np.int32, heads),
        "words": (stems.words, np.int64, [k * width for k, width in zip(keys, graph.widths, strict=True)]),
        "freed": (stems.freed, np.int32, keys),
        "table": (stems.table, np.int64, [2 * count for count in slots]),
        "presence": (stems.presence, np.int64, [k * words_of(m) * stems.has_presence for k in keys]),
    }
    for name, (part, dtype, wanted) in sizes.items():
        bases = np.cumsum([0, *part.room])[:-1].tolist()
        fits = len(part.room) == len(wanted) and all(map(ge, part.room, wanted))
        require(fits and part.size == wanted and part.base == bases, f"{name}: segments of {part.size}, not {wanted}")
        _check_array(part.array, dtype, (sum(part.room),), name)
        require(getattr(stems.arena, name) is part.array, f"{name}: the arena contains another array")
    texts = {(c, word) for c, words in enumerate(graph.texts) for word in words}
    require(stems.texts.keys() == texts, f"strings for words {sorted(stems.texts)}, not {sorted(texts)}")


def _check_array(array: npt.NDArray[np.generic], dtype: type, shape: tuple[int, ...], what: str) -> None:
    require(isinstance(array, np.ndarray), f"{what} is no array")
    whole = array.dtype == dtype and array.flags.c_contiguous and array.shape == shape
    require(whole, f"{what}: {array.dtype} of shape {array.shape}, not {np.dtype(dtype)} of {shape}")


def _check_descriptors(stems: Stems) -> None:
    """Raise StateError unless the descriptors of the arrays follow from graph and sizes."""
    graph = stems.graph
    x, filled = 0, [0] * graph.n_classes
    for i, (classes, window) in enumerate(zip(graph.indexed, graph.windows, strict=True)):
        columns = [S_RECS, S_VALUES, S_MASK, S_WIDTH, S_KIND, S_SIZE, S_ATTR0, S_ATTR1, S_BANDS]
        end = x + len(classes)
        table, width = i in graph.tables, 2 * len(classes)
        columns += [S_KEY, S_LIFE, S_NUMBERS]
        descriptors = stems.streams[i, columns].tolist()
        table_fields = [end - 1, 3 * len(classes)] if table else [-1, 0]
        numbers = stems.values.base[i] + (graph.rings[i] - 1) * stems.capacity[i]
        width += table * (len(classes) + LIFE_FIELDS)
        ring = [stems.recs.base[i], stems.values.base[i], stems.capacity[i] - 1, width]
        right = descriptors == [*ring, window.kind, window.size, x, end, sum(graph.rings[:i]), *table_fields, numbers]
        require(right, f"SteM {graph.names[i]}: its descriptors are {descriptors}")
        for k, c in enumerate(classes):
            fields = stems.attrs[x, [A_STREAM, A_CLASS, A_COLUMN, A_OFFSET]].tolist()
            wanted = [i, c, filled[c], 2 * k]
            right = fields == wanted and (stems.apart or stems.attribute_rows.get((i, c)) == x)
            filled[c] += 1
            require(right, f"SteM {graph.names[i]}, index on class {c}: its descriptors are {fields}, not {wanted}")
            x += 1
    links, bounds = (stems.links[:0], np.zeros((x, 2))) if stems.apart else links_of(graph)
    right = np.array_equal(stems.links, links) and np.array_equal(stems.attrs[:, [A_LINK0, A_LINK1]], bounds)
    require(right, "the links of the attributes are not those of the join")
    learnt = stems.attrs[:, A_MARKS:]
    require(bool((learnt >= 0).all() and (learnt <= MOST_COUNT).all()), "figures of no-good marks are no counts")
    odd = stems.classes[:, [C_FACTOR, C_LAST, C_TAG_SEED, C_TAG_FACTOR]] & 1
    require(bool(odd.all()), "the factors of a hash are even")
    for c, members in enumerate(graph.members):
        slots = stems.table.size[c] // 2
        parts = [part.base[c] for part in (stems.words, stems.freed, stems.table)]
        wanted = [stems.heads.base[c] + stems.before[c], *parts, len(members), graph.widths[c], len(members)]
        wanted += [65 - slots.bit_length(), *members]
        at = [C_HEADS, C_WORDS, C_FREELIST, C_TABLE, C_STRIDE, C_WIDTH, C_STEMS, C_SHIFT]
        descriptors = stems.classes[c, [*at, *range(C_MEMBER, C_MEMBER + len(members))]].tolist()
        require(descriptors == wanted, f"key directory of class {c}: its descriptors are {descriptors}, not {wanted}")


def _check_meta(stems: Stems) -> None:
    meta, graph = stems.meta, stems.graph
    mode, timed, changelog = meta[[M_MODE, M_TIMED, M_CHANGELOG]].tolist()
    require(meta[M_APART] == stems.apart, f"nulls leave other keys alive: {meta[M_APART]}, not {stems.apart}")
    require(0 <= mode <= LOADING and NOTHING <= changelog <= ENDS, f"mode {mode}, changelog {changelog}")
    require(timed == graph.timed, f"event times are stored: {timed}, in the query: {graph.timed}")
    watermark, newest, behind = meta[[M_WATERMARK, M_NEWEST, M_BEHIND]].tolist()
    within = min(watermark, newest) >= -FOREVER and max(watermark, newest) <= FOREVER
    require(within, f"the watermark {watermark} or the greatest event time {newest} is beyond ±2^61")
    require(0 <= behind <= 2 * FOREVER, f"rows are {behind} ticks behind")
    counts = meta[[M_ARRIVALS, M_RESULTS]].tolist()
    require(min(counts) >= 0 and max(counts) <= MOST_COUNT, f"arrivals and results {counts} are no counts")


def _check_ring(stems: Stems, i: int, what: str) -> None:
    low, following, base = stems.streams[i, [S_LO, S_NEXT, S_BASE]].tolist()
    room = stems.capacity[i]
    require(0 <= low <= following, f"{what}: low mark {low} and next {following} are out of order")
    require(following <= MOST_SEQUENCE and abs(base) <= MOST_COUNT, f"{what}: next {following}, base {base}")
    require(following - low <= room, f"{what}: {following - low} live tuples in {room} slots")
    if stems.streams[i, S_KIND] == WindowKind.ROWS:
        size = int(stems.streams[i, S_SIZE])
        require(following - low <= size, f"{what}: {following - low} tuples in a window of {size} rows")
        # Tuples leave a ROWS window by the count alone.
        require(low == 0 or following - low == size, f"{what}: low mark {low} with {following - low} of {size} rows")
    slots = np.arange(low, following) & (room - 1)
    for k, floats in enumerate(stems.graph.float_rings[i]):
        values = stems.value_ring(i, k)[slots]
        if floats:
            require(not np.isnan(values.view(np.float64)).any(), f"{what}: ring {k} of values has a NaN")
        else:
            within = not len(values) or (values.min() >= -FOREVER and values.max() <= FOREVER)
            require(bool(within), f"{what}: event times or values of ring {k} are beyond ±2^61")


def _check_keys(stems: Stems, c: int, what: str) -> npt.NDArray[np.bool_]:
    """Raise StateError unless table, free stack and words agree; return which key ids are in use: bool[ids]."""
    width = stems.graph.widths[c]
    following, free, capacity, hand, debt = stems.classes[c, [C_NEXT, C_FREE, C_CAPACITY, C_HAND, C_DEBT]].tolist()
    require(0 <= free <= following <= capacity, f"{what}: {following} ids, {free} of them free, room for {capacity}")
    sweeping = 0 <= hand < max(following, 1) and 0 <= debt <= MOST_COUNT
    require(sweeping, f"{what}: the sweep is at {hand} of {following} with {debt} ids to examine")
    held = stems.table.view(c)[1::2]
    held = np.sort(held[held >= 0])
    freed = np.sort(stems.freed.view(c)[:free])
    require(
        np.array_equal(np.sort(np.concatenate([held, freed])), np.arange(following)),
        f"{what}: ids in the table {held[:20].tolist()} and free {freed[:20].tolist()} are not 0 .. {following - 1}",
    )
    lost = int(lost_key(stems.arena, c))
    require(lost < 0, f"{what}: a look-up does not find key id {lost}, or its key has two ids")
    used = np.zeros(following, bool)
    used[held] = True
    wrong = np.flatnonzero((_head_rows(stems, c)[:following, 0] == FREED) == used)[:20].tolist()
    require(not wrong, f"{what}: the first heads of key ids {wrong} do not show whether they are free")
    words = stems.words.view(c).reshape(-1, width)
    for word in stems.graph.texts[c] if stems.graph.texts else ():
        arena = stems.texts[c, word].arena
        strings = check_strings(arena, f"class {c}, word {word}: strings")
        ids = words[held, word]
        counts = np.zeros(len(arena.start), np.int64)
        within = not len(ids) or (ids.min() >= 0 and ids.max() < len(counts))
        require(bool(within), f"{what}: a key has a string id out of range")
        np.add.at(counts, ids, 1)
        right = np.array_equal(np.flatnonzero(counts), strings) and (counts[strings] == arena.users[strings]).all()
        require(bool(right), f"{what}: the counts of the strings of word {word} do not match the keys")
    return used


def _check_chains(stems: Stems, i: int, x: int, used: npt.NDArray[np.bool_], what: str) -> None:
    """Raise StateError unless each live tuple with a key is in the chain of its key, newest first.

    The check compares sorted records and follows no link.
    """
    low, following, versioned = stems.streams[i, [S_LO, S_NEXT, S_LIFE]].tolist()
    c, column, offset = stems.attrs[x, [A_CLASS, A_COLUMN, A_OFFSET]].tolist()
    live = np.arange(low, following)
    records = stems.recs.view(i).reshape(stems.capacity[i], -1)[live & (stems.capacity[i] - 1)]
    if versioned:
        alive = check_versions(stems, i, x, live, what)
        live, records = live[alive], records[alive]
    links, kids = records[:, offset].astype(np.int64), records[:, offset + 1].astype(np.int64)
    in_use = np.append(used, False)
    known = (kids < 0) | in_use[np.clip(kids, 0, len(used))]
    strays = live[~known][:20].tolist()
    require(not strays, f"{what}: tuples {strays} have key ids that the directory does not contain")
    # Kernels read from the first key of a tuple whether it can join.
    whole = stems.apart or x == stems.streams[i, S_KEY] or np.array_equal(kids < 0, records[:, 1] < 0)
    require(whole, f"{what}: a tuple has only some of its keys")
    require(not stems.apart or bool((kids >= -1 - column).all()), f"{what}: a null of another attribute")
    keyed = np.flatnonzero(kids >= 0)
    order = keyed[np.lexsort((keyed, kids[keyed]))]
    again = np.zeros(len(order), bool)
    again[1:] = kids[order][1:] == kids[order][:-1]
    before = np.concatenate([[-1], live[order][:-1]])
    linked = np.where(again, links[order] == before, links[order] < low)
    wrong = kids[order][~linked][:20].tolist()
    require(not wrong, f"{what}: the chain of key id {wrong[:1]} does not link each live tuple to the one before it")
    rows = _head_rows(stems, c)
    empty = stems.heads.view(c)[: stems.before[c]]
    require(bool((empty == -1).all()), f"{what}: a head of a null is not empty")
    heads = rows[: len(used), column]
    newest = np.full(len(used), -1, np.int64)
    newest[kids[order]] = live[order]
    heads = np.maximum(heads.astype(np.int64), MARKED - heads.astype(np.int64))
    right = np.where(newest >= low, heads == newest, heads < low) | ~used
    wrong = np.flatnonzero(~right)[:20].tolist()
    require(not wrong, f"{what}: the chain of key id {wrong[:1]} does not begin with the newest live tuple")


def _head_rows(stems: Stems, c: int) -> npt.NDArray[np.int32]:
    """Return the head rows of the keys of class c: int32[keys, columns], a view."""
    return stems.heads.view(c)[stems.before[c] :].reshape(-1, len(stems.graph.members[c]))


def _heads(stems: Stems, i: int, x: int, tuples: Int64s) -> npt.NDArray[np.int32]:
    """Return the heads of the lists that tuples of stream i are in by attribute x: int32[tuples, streams]."""
    offset, c = stems.attrs[x, [A_OFFSET, A_CLASS]].tolist()
    kids = stems.recs.view(i).reshape(stems.capacity[i], -1)[tuples & (stems.capacity[i] - 1), offset + 1]
    return _head_rows(stems, c)[kids]


def _check_presence(stems: Stems) -> None:
    """Raise StateError unless the bits of all live tuples are set (`stairs.kernels.presence`)."""
    m, ids = stems.graph.n_streams, int(stems.classes[0, C_NEXT])
    words = stems.presence.view(0).reshape(-1, 2, words_of(m) // 2)[:ids]
    bits = np.unpackbits(words.view(np.uint8), axis=2, bitorder="little").view(np.bool_)
    require(bool(bits[:, 0, m:].all()), "unused bits of presence words are not set")
    heads = stems.heads.view(0).reshape(-1, m)[:ids]
    for j, name in enumerate(stems.graph.names):
        low = int(stems.streams[j, S_LO])
        live = heads[:, j] >= low
        require(bool(bits[live, 0, j].all()), f"SteM {name}: a key with live tuples has no presence bit")
        links = stems.recs.view(j).reshape(-1, 2)[heads[live, j] & (stems.capacity[j] - 1), 0]
        require(bool(bits[live, 1, j][links >= low].all()), f"SteM {name}: a key with several tuples has no bit for it")


def _check_marks(stems: Stems, i: int, x: int, what: str) -> None:
    """Raise StateError unless each tuple with a marked list has a blocked list in another class, and marks are counted.

    See `stairs.kernels.marks`.
    """
    streams, links = stems.streams, stems.links
    c, column, marks = stems.attrs[x, [A_CLASS, A_COLUMN, A_MARKS]].tolist()
    heads = _head_rows(stems, c)[: stems.classes[c, C_NEXT], column]
    counted = int((heads <= MARKED).sum())
    require(marks == counted, f"{what}: {counted} no-good marks, but {marks} are counted")
    live = np.arange(streams[i, S_LO], streams[i, S_NEXT])
    live = live[stems.recs.view(i).reshape(stems.capacity[i], -1)[live & (stems.capacity[i] - 1), 1] >= 0]
    live = live[_heads(stems, i, x, live)[:, column] <= MARKED]
    blocked = np.zeros(len(live), bool)
    for z in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
        attribute_links = links[stems.attrs[z, A_LINK0] : stems.attrs[z, A_LINK1]]
        if z != x and stems.attrs[x, A_LINK0] < stems.attrs[x, A_LINK1]:
            others = _heads(stems, i, z, live)[:, attribute_links[:, N_COLUMN]]
            blocked |= (others < streams[attribute_links[:, N_STREAM], S_LO]).any(axis=1)
    wrong = live[~blocked][:20].tolist()
    require(not wrong, f"{what}: tuples {wrong} have a no-good mark that rests on nothing")
