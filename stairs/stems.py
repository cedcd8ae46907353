"""The SteMs of one engine: the arrays of all windows and key directories, their layout and their growth.

The arrays are segments of a few flat ones (`stairs.memory.arena`). An exception may occur between any two statements: a
signal, or a lack of memory. So each change of the layout takes effect in one statement: new arrays are made first, and
`_install` puts them in place together with the descriptors that locate them.

Invariants: `stairs.checks.stems`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stairs import key_room
from stairs.bands import Bands
from stairs.bytes_directory import BytesDirectory
from stairs.caches import Caches, VersionMove
from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_FIELDS,
    A_HITS,
    A_LINK0,
    A_LINK1,
    A_LOST,
    A_MARKS,
    A_OFFSET,
    A_PAUSE,
    A_REST,
    A_STREAM,
    A_SUPPORT,
    A_WORTH,
    C_CAPACITY,
    C_CROWDED,
    C_DEBT,
    C_FACTOR,
    C_FREE,
    C_FREELIST,
    C_HAND,
    C_HEADS,
    C_LAST,
    C_MAY_PASS,
    C_MEMBER,
    C_NEXT,
    C_SCAN,
    C_SECRET,
    C_SHIFT,
    C_STEMS,
    C_STRIDE,
    C_TABLE,
    C_TAG_FACTOR,
    C_TAG_SEED,
    C_WIDTH,
    C_WORDS,
    M_AFTER,
    M_APART,
    M_ARRIVALS,
    M_BEHIND,
    M_FIELDS,
    M_MARKS,
    M_NEWEST,
    M_RESULTS,
    M_SUPPRESSED,
    M_TIMED,
    M_WATERMARK,
    N_FIELDS,
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
    S_WALKED,
    S_WIDTH,
)
from stairs.graph import FOREVER, JoinGraph, WindowKind
from stairs.kernels.arena import rehash
from stairs.kernels.hashes import MIXED, SPACED
from stairs.kernels.marks import clear_all
from stairs.kernels.presence import MANY, words_of
from stairs.kernels.versions import ALIVE, LIFE_FIELDS
from stairs.key_room import is_room, next_room, power_of_two, shift_of, slots_of
from stairs.links import links_of
from stairs.memory.allowance import Allowance
from stairs.memory.arena import Arena, Int64s
from stairs.memory.segments import Segments, copy_ring, widen_ring
from stairs.seeds import seeds, spacing
from stairs.storage.parts import MOST, Parts, Plain, powers_of_two

FIRST_ROOM = 64
KNOWN, UNKNOWN = 1024, 64
"""By how much an array can grow in place at most: where windows bound the number of rows, and where nothing does."""
RENUMBER_AT = 1 << 30
"""Sequence numbers are int32 in the arena; a stream that reaches this number is renumbered from near 0."""
MOST_NUMBER = (1 << 31) - 1
"""The greatest sequence number or key id."""
SAVED = ("heads", "recs", "values", "words", "table", "freed")
SEGMENTS = (*SAVED, "presence")
"""The arrays of an `Arena` that are cut into segments, and those of them that are no cache."""
KEPT_STREAMS = [S_NEXT, S_LO, S_BASE, S_WALKED]
KEPT_CLASSES = [C_CAPACITY, C_NEXT, C_FREE, C_HAND, C_DEBT]
KEPT_ATTRS = [A_MARKS, A_HITS, A_LOST, A_REST, A_PAUSE, A_WORTH, A_SUPPORT]
KEPT_META = [M_WATERMARK, M_NEWEST, M_BEHIND, M_RESULTS, M_ARRIVALS, M_SUPPRESSED]
HASH, TAGS = [C_SECRET, C_FACTOR, C_LAST, C_MAY_PASS], [C_TAG_SEED, C_TAG_FACTOR]
"""Fields of the descriptors that follow neither from the graph and the strategy nor from the rest of the state."""


def are_hashes(classes: Int64s) -> bool:
    """Return whether the factors and seeds of the classes are such as `Stems` draws."""
    odd = (classes[:, [C_FACTOR, C_LAST, *TAGS]] & 1).all()
    return bool(odd and np.isin(classes[:, C_MAY_PASS], (SPACED, MIXED)).all())


class Growth(NamedTuple):
    """Growth of the rings by a push: bytes of records and values, and the slots of each stream after it."""

    n_bytes: int
    rooms: list[int]


class Stems:
    """SteMs of all streams of a join, their key directories, and the caches computed from them.

    allowance   the bound on the bytes of these arrays and the caches
    texts       one directory of strings for each word of a key that stands for a string, by (class, word)
    texts_of    the directories of each class, by word
    bands       sorted copies of values, for scans
    caches      the states that follow the SteMs; each registers itself

    Memory: O(live tuples + rows of the largest push + live keys).
    """

    arena: Arena
    last_move: VersionMove | None
    """The last compaction of a table (`moves`)."""
    apart: ClassVar[bool] = False
    """Whether a null in one key of a tuple leaves its other keys alive (`stairs.shared`)."""

    is_shared: ClassVar[bool] = False
    """Whether several joins read the tuples, so that a head row has columns of other joins too (`stairs.shared`)."""

    def __init__(self, graph: JoinGraph, renumber_at: int = RENUMBER_AT) -> None:
        self.graph = graph
        self.renumber_at = renumber_at
        self.allowance = Allowance()
        self.allowance.parts.append(self._counted)
        m, n = graph.n_streams, graph.n_classes
        self._widths = [2 * len(classes) for classes in graph.indexed]
        for i in graph.tables:
            # A newer neighbour for each attribute, then the life of the version (`stairs.kernels.versions`).
            self._widths[i] += len(graph.indexed[i]) + LIFE_FIELDS
        self._strides = [len(members) for members in graph.members]
        self.before = [stride * stride if self.apart else 0 for stride in self._strides]
        """Heads of each class before those of its first key: those of nulls, whose ids are -1 - column."""
        self.recs = Segments(np.int32, [FIRST_ROOM * width for width in self._widths], 0)
        self.values = Segments(np.int64, [FIRST_ROOM * count for count in graph.rings], 0)
        self.heads = Segments(np.int32, self._head_sizes([key_room.FIRST_KEYS] * n), -1)
        self.words = Segments(np.int64, [key_room.FIRST_KEYS * width for width in graph.widths], 0)
        self.freed = Segments(np.int32, [key_room.FIRST_KEYS] * n, 0)
        self.table = Segments(np.int64, [2 * key_room.FIRST_SLOTS] * n, -1)
        self.on_one_key = graph.on_one_key and not self.is_shared
        """Whether the head row of one key decides whether an arrival has results."""
        # Versions end anywhere in a chain.
        kept = self.on_one_key and m >= MANY and not graph.tables
        self._presence = words_of(m) if kept else 0
        """Words of a key in `presence`."""
        self.presence = Segments(np.int64, [key_room.FIRST_KEYS * self._presence] * n, -1)
        self.streams: Int64s = np.zeros((m, S_FIELDS), np.int64)
        self.classes: Int64s = np.zeros((n, C_MEMBER + max([m, *self._strides])), np.int64)
        self.attrs: Int64s = np.zeros((sum(map(len, graph.indexed)), A_FIELDS), np.int64)
        self.meta: Int64s = np.zeros(M_FIELDS, np.int64)
        self.meta[[M_WATERMARK, M_NEWEST, M_AFTER]] = -FOREVER
        self.meta[[M_TIMED, M_APART]] = graph.timed, self.apart
        self.figures = self.meta.data
        """`meta` again: Python reads and writes single numbers here in half the time."""
        self.capacity = [FIRST_ROOM] * m
        """Slots of the ring of each stream."""
        self.attribute_rows: dict[tuple[int, int], int] = {}
        """Row of `attrs` by (stream, class)."""
        self.links: Int64s = np.zeros((0, N_FIELDS), np.int64)
        self.bands = Bands(graph, self.allowance)
        self._describe()
        texts = graph.texts or ((),) * n
        self.texts = {(c, word): BytesDirectory(self.allowance) for c in range(n) for word in texts[c]}
        self.texts_of = [{word: self.texts[c, word] for word in texts[c]} for c in range(n)]
        self.caches = Caches()
        self.move_count, self.last_move = np.zeros(1, np.int64), None
        self._install()

    @property
    def has_presence(self) -> bool:
        """Whether keys have presence words (`stairs.kernels.presence`)."""
        return self._presence > 0

    @property
    def moves(self) -> int:
        """The number of compactions of tables; the payload follows them."""
        return int(self.move_count[0])

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes, without the caches."""
        return {
            "capacity": self.capacity,
            "streams": self.streams[:, KEPT_STREAMS].tolist(),
            "classes": self.classes[:, KEPT_CLASSES].tolist(),
            "hashes": self.classes[:, [*HASH, *TAGS]],
            "attrs": self.attrs[:, KEPT_ATTRS].tolist(),
            "meta": self.meta[KEPT_META].tolist(),
            "texts": [strings.to_parts() for strings in self.texts.values()],
            **{name: getattr(self, name).dense() for name in SAVED},
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts that modules of the same graph kept. Raises StateError for parts that do not fit."""
        m, n = self.graph.n_streams, self.graph.n_classes
        capacity = parts.integers("capacity", m, FIRST_ROOM, RENUMBER_AT)
        parts.require(powers_of_two(capacity), f"rings of {capacity} slots")
        streams = self.streams.copy()
        for i, (following, low, base, walked) in enumerate(parts.rows("streams", m, len(KEPT_STREAMS))):
            parts.require(low <= following <= MOST_NUMBER, f"stream {i}: low mark {low}, next {following}")
            parts.require(following - low <= capacity[i], f"stream {i}: {following - low} tuples, {capacity[i]} slots")
            streams[i, KEPT_STREAMS] = following, low, base, walked
        classes, rooms = self.classes.copy(), []
        for c, (room, following, free, hand, debt) in enumerate(parts.rows("classes", n, len(KEPT_CLASSES))):
            parts.require(0 < room <= MOST_NUMBER and is_room(room), f"class {c}: room for {room} keys")
            parts.require(
                free <= following <= room and hand <= following,
                f"class {c}: {free} ids free of {following}, room for {room}, hand at {hand}",
            )
            rooms.append(room)
            classes[c, KEPT_CLASSES] = room, following, free, hand, debt
            classes[c, C_SHIFT] = shift_of(room)
        classes[:, [*HASH, *TAGS]] = parts.array("hashes", np.int64, (n, len(HASH) + len(TAGS)))
        parts.require(are_hashes(classes), "seeds of hashes that no directory draws")
        sizes = self._sizes(capacity, rooms)
        kinds = self._segments()
        segments = {
            name: Segments.over(
                parts.array(name, kinds[name].array.dtype, (sum(sizes[name]),)), sizes[name], kinds[name].fill
            )
            for name in SAVED
        }
        segments["presence"] = Segments(np.int64, sizes["presence"], -1)
        attrs = parts.rows("attrs", len(self.attrs), len(KEPT_ATTRS))
        meta = parts.integers("meta", len(KEPT_META), low=-MOST)
        for strings, own_parts in zip(self.texts.values(), parts.items("texts", len(self.texts)), strict=True):
            strings.load_parts(own_parts)
        self.attrs[:, KEPT_ATTRS] = attrs
        self.meta[KEPT_META] = meta
        self.meta[M_MARKS] = self.attrs[:, A_MARKS].sum()
        self.bands.reset()
        self._install(streams, classes, capacity, **segments)

    # Layout

    def _segments(self) -> dict[str, Segments]:
        return {name: getattr(self, name) for name in SEGMENTS}

    def _sizes(self, capacity: list[int], rooms: list[int]) -> dict[str, list[int]]:
        """Return the sizes of all segments; rooms[c] is the room for keys of class c."""
        graph = self.graph
        return {
            "recs": [room * width for room, width in zip(capacity, self._widths, strict=True)],
            "values": [room * count for room, count in zip(capacity, graph.rings, strict=True)],
            "heads": self._head_sizes(rooms),
            "words": [room * width for room, width in zip(rooms, graph.widths, strict=True)],
            "freed": rooms,
            "table": [2 * slots_of(room) for room in rooms],
            "presence": [room * self._presence for room in rooms],
        }

    def _head_sizes(self, rooms: list[int]) -> list[int]:
        return [room * stride + before for room, stride, before in zip(rooms, self._strides, self.before, strict=True)]

    def _describe(self) -> None:
        graph, x = self.graph, 0
        for c, members in enumerate(graph.members):
            self.classes[c, [C_STRIDE, C_WIDTH, C_STEMS]] = self._strides[c], graph.widths[c], len(members)
            self.classes[c, C_MEMBER : C_MEMBER + len(members)] = members
            self.classes[c, C_SCAN] = c in graph.scans
            self.classes[c, HASH] = 0, spacing(), 1, SPACED
            self.classes[c, TAGS] = seeds(2)
            self.classes[c, [C_CAPACITY, C_SHIFT]] = key_room.FIRST_KEYS, shift_of(key_room.FIRST_KEYS)
        for i, classes in enumerate(graph.indexed):
            window = graph.windows[i]
            self.streams[i, [S_WIDTH, S_KIND, S_SIZE]] = self._widths[i], window.kind, window.size
            self.streams[i, [S_ATTR0, S_ATTR1]] = x, x + len(classes)
            self.streams[i, S_BANDS] = sum(graph.rings[:i])
            self.streams[i, S_KEY] = -1
            if i in graph.tables:
                self.streams[i, [S_KEY, S_LIFE]] = x + len(classes) - 1, 3 * len(classes)
            for c in classes:
                self.attrs[x, [A_STREAM, A_CLASS]] = i, c
                self.attrs[x, [A_COLUMN, A_OFFSET]] = graph.columns[c][i], graph.offsets[i][c]
                self.attribute_rows[i, c] = x
                x += 1
        self.links, self.attrs[:, [A_LINK0, A_LINK1]] = links_of(graph)

    def _install(
        self,
        streams: Int64s | None = None,
        classes: Int64s | None = None,
        capacity: list[int] | None = None,
        **segments: Segments,
    ) -> None:
        """Replace arrays, and the descriptors that locate them, in one statement (see the module)."""
        new: dict[str, Any] = {name: segments.get(name, getattr(self, name)) for name in SEGMENTS}
        new["streams"] = streams = (self.streams if streams is None else streams).copy()
        new["classes"] = classes = (self.classes if classes is None else classes).copy()
        new["capacity"] = capacity = self.capacity if capacity is None else capacity
        streams[:, S_RECS] = new["recs"].base
        streams[:, S_VALUES] = new["values"].base
        streams[:, S_MASK] = [room - 1 for room in capacity]
        streams[:, S_NUMBERS] = [
            start + (rings - 1) * room
            for start, rings, room in zip(new["values"].base, self.graph.rings, capacity, strict=True)
        ]
        classes[:, C_HEADS] = np.add(new["heads"].base, self.before)
        classes[:, C_WORDS] = new["words"].base
        classes[:, C_FREELIST] = new["freed"].base
        classes[:, C_TABLE] = new["table"].base
        arrays = {name: new[name].array for name in SEGMENTS}
        arrays |= {"attrs": self.attrs, "links": self.links, "bands": self.bands.table, "meta": self.meta}
        new["arena"] = Arena(**arrays, streams=streams, classes=classes)
        vars(self).update(new)

    # Room

    def reserve(self, rows: Sequence[int], keys: Sequence[int]) -> None:
        """Make room in empty modules for rows[i] tuples of stream i and keys[c] keys of class c."""
        rooms = [key_room.FIRST_KEYS * power_of_two(-(-n // key_room.FIRST_KEYS)) for n in keys]
        capacity = [power_of_two(max(n, FIRST_ROOM)) for n in rows]
        classes = self.classes.copy()
        classes[:, C_CAPACITY] = rooms
        classes[:, C_SHIFT] = list(map(shift_of, rooms))
        kinds = self._segments()
        segments = {
            name: Segments(kinds[name].array.dtype, sizes, kinds[name].fill)
            for name, sizes in self._sizes(capacity, rooms).items()
        }
        self._install(None, classes, capacity, **segments)

    def growth(self, rows: Sequence[int]) -> Growth:
        """Return by how much `begin` would enlarge the rings for a push of rows[i] rows of stream i. O(streams)."""
        n_bytes, rooms = 0, []
        for i, (n, old) in enumerate(zip(rows, self.capacity, strict=True)):
            room = max(old, power_of_two(self.rows(i) + n)) if n else old
            n_bytes += self.ring_bytes(i, room) - self.ring_bytes(i, old)
            rooms.append(room)
        return Growth(n_bytes, rooms)

    def _most_rows(self, i: int, rows: int) -> int | None:
        """Return the most rows that stream i can ever have in pushes of `rows` rows, None if nothing bounds them."""
        window = self.graph.windows[i]
        return window.size + rows if window.kind == WindowKind.ROWS else None

    def _most_slots(self, rows: int) -> list[int]:
        """Return the slots up to which the ring of each stream may grow in place, in pushes of `rows` rows of each."""
        bounds = [self._most_rows(i, rows) for i in range(len(self.capacity))]
        return [
            UNKNOWN * room if bound is None else min(KNOWN * room, power_of_two(bound))
            for room, bound in zip(self.capacity, bounds, strict=True)
        ]

    @property
    def ring_rooms(self) -> list[int]:
        """The slots up to which the ring of each stream grows in place."""
        return [room // width for room, width in zip(self.recs.room, self._widths, strict=True)]

    def _grow_ring(self, i: int, least: int) -> None:
        room, old = power_of_two(least), self.capacity[i]
        width, rings = self._widths[i], self.graph.rings
        live = int(self.streams[i, S_LO]), int(self.streams[i, S_NEXT])
        most = self._most_slots(least - self.rows(i))
        recs = self.recs.grown(i, room * width, [n * w for n, w in zip(most, self._widths, strict=True)])
        widen_ring(recs.view(i).reshape(room, width), old, *live)
        values = self.values
        if rings[i] == 1:
            # Several rings of one stream lie one after another, so they cannot grow in place.
            values = values.grown(i, room, [n * (count == 1) for n, count in zip(most, rings, strict=True)])
            widen_ring(values.view(i), old, *live)
        elif rings[i]:
            values = values.renewed(i, room * rings[i])
            after, before = values.view(i).reshape(rings[i], room), self.values.view(i).reshape(rings[i], old)
            copy_ring(after.T, before.T, *live)
        capacity = [*self.capacity[:i], room, *self.capacity[i + 1 :]]
        self._install(recs=recs, values=values, capacity=capacity)

    def least_room(self, i: int) -> int:
        """Return the slots that `shrink_ring` leaves the ring of stream i. O(1), of a table O(rows).

        They are twice those that its live tuples need, so that the next push seldom enlarges the ring again.
        """
        return min(self.capacity[i], max(FIRST_ROOM, 2 * power_of_two(self.live(i))))

    def ring_bytes(self, i: int, room: int) -> int:
        """Return the bytes of the records and values of stream i in rings of `room` slots."""
        return room * (4 * self._widths[i] + 8 * self.graph.rings[i])

    def shrink_ring(self, i: int, room: int) -> None:
        """Give stream i rings of `room` slots, which hold all of its tuples. Between two pushes. O(all rings)."""
        old, width, rings = self.capacity[i], self._widths[i], self.graph.rings[i]
        live = int(self.streams[i, S_LO]), int(self.streams[i, S_NEXT])
        assert self.rows(i) <= room <= old, (live, room, old)
        recs, values = self.recs.renewed(i, room * width), self.values.renewed(i, room * rings)
        copy_ring(recs.view(i).reshape(room, width), self.recs.view(i).reshape(old, width), *live)
        if rings:
            after, before = values.view(i).reshape(rings, room), self.values.view(i).reshape(rings, old)
            copy_ring(after.T, before.T, *live)
        self._install(recs=recs, values=values, capacity=[*self.capacity[:i], room, *self.capacity[i + 1 :]])

    def _most_keys(self) -> list[int]:
        """Return the number of keys up to which the directory of each class may grow in place."""
        most = []
        for members, room in zip(self.graph.members, self.classes[:, C_CAPACITY].tolist(), strict=True):
            bounds = [self._most_rows(i, 0) for i in members]
            known = [bound for bound in bounds if bound is not None]
            bounded = len(known) == len(bounds)
            most.append(min(KNOWN * room, 3 * slots_of(2 * sum(known)) // 4) if bounded else UNKNOWN * room)
        return most

    def _grow_keys(self, c: int) -> None:
        old, stride, width = int(self.classes[c, C_CAPACITY]), self._strides[c], self.graph.widths[c]
        room, slots = next_room(old), slots_of(old)
        wider = slots_of(room) > slots
        n_bytes = (room - old) * (4 * stride + 8 * (width + self._presence) + 4) + 16 * slots * wider
        self.allowance.ask(n_bytes + sum(cache.wider(c, room) for cache in self.caches), f"room for {room} keys")
        most = self._most_keys()
        heads = self.heads.grown(c, room * stride + self.before[c], self._head_sizes(most))
        words = self.words.grown(c, room * width, [n * w for n, w in zip(most, self.graph.widths, strict=True)])
        freed = self.freed.grown(c, room, most)
        presence = self.presence.grown(c, room * self._presence, [n * self._presence for n in most])
        classes, table = self.classes.copy(), self.table
        classes[c, [C_CAPACITY, C_SHIFT]] = room, shift_of(room)
        if wider:
            table = table.renewed(c, 4 * slots)
            rehash(classes, c, table.view(c), self.table.view(c))
        self._install(classes=classes, heads=heads, words=words, freed=freed, table=table, presence=presence)

    def renew_hash(self, c: int) -> None:
        """Give class c a table with other homes, since its keys crowd: as good as random ones. O(slots)."""
        classes = self.classes.copy()
        classes[c, HASH] = [*seeds(3), MIXED]
        classes[c, C_CROWDED] = 0
        table = self.table.renewed(c, self.table.size[c])
        rehash(classes, c, table.view(c), self.table.view(c))
        self._install(classes=classes, table=table)

    def key_room(self, c: int) -> int:
        """Return the number of keys of class c that fill its hash table: room for keys comes up to it in steps."""
        return slots_of(int(self.classes[c, C_CAPACITY])) * 3 // 4

    def most_keys(self, c: int) -> int:
        """Return the number of keys up to which the directory of class c grows in place."""
        return max(self.key_room(c), self.freed.room[c])

    def renumber(self) -> None:
        """Renumber the tuples of each stream from near 0, so that sequence numbers stay in an int32. O(state)."""
        self.clear_marks()
        self.bands.reset()
        shifts = [int(low) // room * room for low, room in zip(self.streams[:, S_LO], self.capacity, strict=True)]
        streams, heads, recs = self.streams.copy(), self.heads.copy(), self.recs.copy()
        for i, shift in enumerate(shifts):
            room, width = self.capacity[i], self._widths[i]
            if shift == 0:
                continue
            records = recs.view(i).reshape(room, width)
            for k, c in enumerate(self.graph.indexed[i]):
                x = int(self.streams[i, S_ATTR0]) + k
                column = heads.view(c).reshape(-1, self._strides[c])[:, self.attrs[x, A_COLUMN]]
                np.maximum(column - shift, np.minimum(column, -1), out=column)
                np.maximum(records[:, 2 * k] - shift, -1, out=records[:, 2 * k])
                if i in self.graph.tables:
                    newer = records[:, 2 * len(self.graph.indexed[i]) + k]
                    np.maximum(newer - shift, -1, out=newer)
            streams[i, [S_NEXT, S_LO]] -= shift
            streams[i, S_BASE] += shift
        self._install(streams=streams, heads=heads, recs=recs)
        for cache in self.caches:
            cache.renumbered(shifts)

    def clear_marks(self) -> None:
        """Clear all no-good marks. O(key ids * streams) if there are any."""
        if self.meta[M_MARKS]:
            clear_all(self.arena)

    # Sizes

    def value_ring(self, i: int, k: int) -> Int64s:
        """Return ring k of the values of stream i, a view: int64[capacity]."""
        room = self.capacity[i]
        return self.values.view(i)[k * room : (k + 1) * room]

    def rows(self, i: int) -> int:
        """Return the number of tuples from the low mark of stream i on; of a table, some of them have ended."""
        return int(self.streams[i, S_NEXT] - self.streams[i, S_LO])

    def live_tuples(self, i: int) -> Int64s:
        """Return the numbers of the live tuples of stream i, ascending; those of a table are its living versions.

        O(rows).
        """
        low, following = self.streams[i, [S_LO, S_NEXT]].tolist()
        numbers = np.arange(low, following)
        if not self.streams[i, S_LIFE]:
            return numbers
        records = self.recs.view(i).reshape(self.capacity[i], -1)
        return numbers[records[numbers & (self.capacity[i] - 1), self.streams[i, S_LIFE]] == ALIVE]

    def live(self, i: int) -> int:
        """Return the number of live tuples of stream i. O(1), of a table O(rows)."""
        return len(self.live_tuples(i)) if self.streams[i, S_LIFE] else self.rows(i)

    def keys(self, c: int) -> int:
        """Return the number of keys of class c with an id: live keys, and dead keys not yet swept."""
        return int(self.classes[c, C_NEXT] - self.classes[c, C_FREE])

    def stem_bytes(self, i: int) -> int:
        """Return the bytes of the records, values and bands of stream i."""
        return self.recs.view(i).nbytes + self.values.view(i).nbytes + self.bands.bytes_of(i)

    def key_bytes(self, c: int) -> int:
        """Return the bytes of the key directory of class c: heads, words, hash table, free list, strings."""
        parts = (self.heads, self.words, self.table, self.freed, self.presence)
        strings = sum(strings.nbytes for strings in self.texts_of[c].values())
        return sum(part.view(c).nbytes for part in parts) + strings

    @property
    def state_bytes(self) -> int:
        """Bytes of records, values, bands and key directories, the state that lasts between pushes."""
        strings = sum(strings.nbytes for strings in self.texts.values())
        return sum(part.nbytes for part in self._segments().values()) + strings + self.bands.nbytes

    def _counted(self) -> int:
        return self.state_bytes + sum(cache.counted_bytes for cache in self.caches)
