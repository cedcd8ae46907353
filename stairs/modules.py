"""The state modules of one engine: owns the arena, makes room in it, and takes a failed push back.

A push is a transaction. `begin` sweeps dead keys and makes room for all its rows *beside* the windows as they stand, so
that nothing live before the push is overwritten while it runs; `undo` then only has to unlink what was inserted, newest
first.

An exception may come between any two statements: a signal, no memory. So each change of what lasts is one statement
that happens or not: one call of a kernel, or arrays made aside and put in place together (`_install`). What takes
several of those can be done again from its beginning: `commit` and `undo` have the same effect once or twice, and the
counts of strings are made anew when a sequence of them was cut off (`_doubt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.bytes_directory import BytesDirectory
from stairs.caches import Caches
from stairs.checks.modules import check_modules
from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_FIELDS,
    A_OFFSET,
    A_STREAM,
    C_CAPACITY,
    C_DEBT,
    C_FREE,
    C_FREE0,
    C_FREELIST,
    C_HAND,
    C_HEADS,
    C_MEMBER,
    C_NEXT,
    C_NEXT0,
    C_SHIFT,
    C_STEMS,
    C_STRIDE,
    C_TABLE,
    C_WIDTH,
    C_WORDS,
    DONE,
    M_ARRIVAL,
    M_ARRIVALS,
    M_CAP,
    M_CHANGELOG,
    M_FIELDS,
    M_GIVEN,
    M_LATENESS,
    M_NEED,
    M_OF_PUSH,
    M_OUT,
    M_RESULTS,
    M_STARTED,
    M_STOP,
    M_SUPPRESSED,
    M_TIMED,
    M_WATERMARK,
    NEED_ENTRIES,
    NEED_KEYS,
    NEED_LISTS,
    NEED_OUTPUT,
    S_ATTR0,
    S_ATTR1,
    S_BASE,
    S_FIELDS,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_TIMES,
    S_WALKED,
    S_WIDTH,
)
from stairs.errors import CapacityError
from stairs.graph import FOREVER, JoinGraph
from stairs.kernels.arena import rehash, transpose, undo
from stairs.kernels.keys import sweep
from stairs.kernels.push import push
from stairs.memory.allowance import Allowance
from stairs.memory.arena import Arena, Batch, Bytes, Entries, Int64s, Routes, Walk
from stairs.memory.scratch import Room, Scratch
from stairs.memory.segments import Segments
from stairs.routes import no_entries
from stairs.storage.parts import MOST, Parts, Plain, powers_of_two

NEVER = 2 * FOREVER
"""A time beyond all times."""
FIRST_ROOM = 64
FIRST_SLOTS = 128
FIRST_KEYS = FIRST_SLOTS * 3 // 4
"""A hash table is at most three quarters full: tight tables stay in the cache, and probing is still short."""
RENUMBER_AT = 1 << 30
"""Sequence numbers are int32 in the arena; a stream that gets here is numbered anew from near 0."""


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least`."""
    return 1 << max(least - 1, 0).bit_length()


SEGMENTS = ("heads", "recs", "times", "words", "table", "freed")
"""The arrays of an `Arena` that are cut into segments."""


class Growth(NamedTuple):
    """What a push adds to the rings: bytes of records and times, and how many times as long each stream's ring gets."""

    n_bytes: int
    factors: list[int]


MOST_ROOM = 1 << 40
"""Room for a push that nobody needs."""
MOST_NUMBER = (1 << 31) - 1
"""The greatest sequence number or key id."""
KEPT_STREAMS = [S_NEXT, S_LO, S_BASE, S_WALKED]
KEPT_CLASSES = [C_CAPACITY, C_NEXT, C_FREE, C_HAND, C_DEBT]
KEPT_META = [M_WATERMARK, M_LATENESS, M_RESULTS, M_ARRIVALS, M_SUPPRESSED, M_CAP, M_GIVEN]
"""What of the descriptors does not follow from the graph, the strategy and the rest."""


class Modules:
    """SteMs of all streams of a join, their key directories, and room for the results of a push.

    Cost: memory O(live tuples + rows of the largest push + live keys); `begin` O(rows of the last push) beside growth.
    """

    arena: Arena

    def __init__(self, graph: JoinGraph, renumber_at: int = RENUMBER_AT) -> None:
        self.graph = graph
        self.renumber_at = renumber_at
        self.allowance = Allowance()
        """The bytes that these modules and what is computed from them may take."""
        self.allowance.parts.append(self._counted)
        m, n = graph.n_streams, graph.n_classes
        self._widths = [2 * len(classes) for classes in graph.attributes]
        self._strides = [len(members) for members in graph.members]
        self.recs = Segments(np.int32, [FIRST_ROOM * width for width in self._widths], -1)
        self.times = Segments(np.int64, [FIRST_ROOM if graph.timed else 0] * m, 0)
        self.heads = Segments(np.int32, [FIRST_KEYS * stride for stride in self._strides], -1)
        self.words = Segments(np.int64, [FIRST_KEYS * width for width in graph.widths], 0)
        self.freed = Segments(np.int32, [FIRST_KEYS] * n, 0)
        self.table = Segments(np.int64, [2 * FIRST_SLOTS] * n, -1)
        self.streams: Int64s = np.zeros((m, S_FIELDS), np.int64)
        self.classes: Int64s = np.zeros((n, C_MEMBER + m), np.int64)
        self.attrs: Int64s = np.zeros((sum(map(len, graph.attributes)), A_FIELDS), np.int64)
        self.meta: Int64s = np.zeros(M_FIELDS, np.int64)
        self.meta[[M_WATERMARK, M_LATENESS, M_TIMED]] = -FOREVER, graph.lateness, graph.timed
        self.meta[[M_CAP, M_GIVEN]] = NEVER, -NEVER
        self.capacity = [FIRST_ROOM] * m
        self.attribute_rows: dict[tuple[int, int], int] = {}
        self._describe()
        self.scratch = Scratch(m, n)
        self._no_entries = no_entries()
        texts = graph.texts or ((),) * n
        self.texts = {(c, word): BytesDirectory(self.allowance) for c in range(n) for word in texts[c]}
        """One directory of strings for each word of a key that stands for one, by (class, word)."""
        self.texts_of = [{word: self.texts[c, word] for word in texts[c]} for c in range(n)]
        """The directories of each class, by word."""
        self._attribute_widths = [(i, graph.widths[c]) for i in range(m) for c in graph.attributes[i]]
        self.following = [0] * m
        """Sequence number of the next arrival of each stream when the push under way began."""
        self._saved: tuple[Int64s, Int64s] | None = None
        self._doubt = False
        """Whether users of strings may be counted wrongly, a change of them having been begun and not ended."""
        self.caches = Caches()
        """What is computed from these modules and must follow them; each puts itself in."""
        self._install()

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that goes on, but what is computed from these modules."""
        return {
            "capacity": self.capacity,
            "streams": self.streams[:, KEPT_STREAMS].tolist(),
            "classes": self.classes[:, KEPT_CLASSES].tolist(),
            "meta": self.meta[KEPT_META].tolist(),
            "room": list(self.scratch.room),
            "texts": [strings.to_parts() for strings in self.texts.values()],
            **{name: own.array for name, own in self._segments().items()},
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from what modules of the same graph kept. Raises StateError for what does not fit together."""
        m, n = self.graph.n_streams, self.graph.n_classes
        capacity = parts.integers("capacity", m, FIRST_ROOM, RENUMBER_AT)
        parts.require(powers_of_two(capacity), f"rings of {capacity} slots")
        streams = self.streams.copy()
        for i, (following, low, base, walked) in enumerate(parts.rows("streams", m, len(KEPT_STREAMS))):
            parts.require(low <= following <= MOST_NUMBER, f"stream {i}: low mark {low}, next {following}")
            parts.require(following - low <= capacity[i], f"stream {i}: {following - low} tuples, {capacity[i]} slots")
            streams[i, KEPT_STREAMS] = following, low, base, walked
        classes, factors = self.classes.copy(), []
        for c, (room, following, free, hand, debt) in enumerate(parts.rows("classes", n, len(KEPT_CLASSES))):
            factor = room // FIRST_KEYS
            parts.require(powers_of_two([factor]) and room == factor * FIRST_KEYS, f"class {c}: room for {room} keys")
            parts.require(
                free <= following <= room <= MOST_NUMBER and hand <= following,
                f"class {c}: {free} ids free of {following}, room for {room}, hand at {hand}",
            )
            factors.append(factor)
            classes[c, KEPT_CLASSES] = room, following, free, hand, debt
            classes[c, C_SHIFT] = 66 - FIRST_SLOTS.bit_length() - factor.bit_length()
        sizes = self._sizes(capacity, factors)
        segments = {
            name: Segments.over(parts.array(name, own.array.dtype, (sum(sizes[name]),)), sizes[name], own.fill)
            for name, own in self._segments().items()
        }
        meta = parts.integers("meta", len(KEPT_META), low=-MOST)
        rooms = Room(*parts.integers("room", len(Room._fields), high=MOST_ROOM))
        for strings, own_parts in zip(self.texts.values(), parts.items("texts", len(self.texts)), strict=True):
            strings.load_parts(own_parts)
        self.meta[KEPT_META] = meta
        self.scratch = Scratch(m, n, rooms)
        self._install(streams, classes, capacity, **segments)

    def _segments(self) -> dict[str, Segments]:
        return {name: getattr(self, name) for name in SEGMENTS}

    def _sizes(self, capacity: list[int], factors: list[int]) -> dict[str, list[int]]:
        """Return the sizes of all segments, with `factors` times the key ids to begin with in each class."""
        graph = self.graph
        return {
            "recs": [room * width for room, width in zip(capacity, self._widths, strict=True)],
            "times": capacity if graph.timed else [0] * len(capacity),
            "heads": [factor * FIRST_KEYS * stride for factor, stride in zip(factors, self._strides, strict=True)],
            "words": [factor * FIRST_KEYS * width for factor, width in zip(factors, graph.widths, strict=True)],
            "freed": [factor * FIRST_KEYS for factor in factors],
            "table": [factor * 2 * FIRST_SLOTS for factor in factors],
        }

    def _counted(self) -> int:
        return self.state_bytes + sum(cache.counted_bytes for cache in self.caches)

    def _describe(self) -> None:
        graph, x = self.graph, 0
        for c, members in enumerate(graph.members):
            self.classes[c, [C_STRIDE, C_WIDTH, C_STEMS]] = self._strides[c], graph.widths[c], len(members)
            self.classes[c, C_MEMBER : C_MEMBER + len(members)] = members
            self.classes[c, [C_CAPACITY, C_SHIFT]] = FIRST_KEYS, 65 - FIRST_SLOTS.bit_length()
        for i, classes in enumerate(graph.attributes):
            window = graph.windows[i]
            self.streams[i, [S_WIDTH, S_KIND, S_SIZE]] = self._widths[i], window.kind, window.size
            self.streams[i, [S_ATTR0, S_ATTR1]] = x, x + len(classes)
            for k, c in enumerate(classes):
                self.attrs[x, [A_STREAM, A_CLASS]] = i, c
                self.attrs[x, [A_COLUMN, A_OFFSET]] = graph.members[c].index(i), 2 * k
                self.attribute_rows[i, c] = x
                x += 1

    def _install(
        self,
        streams: Int64s | None = None,
        classes: Int64s | None = None,
        capacity: list[int] | None = None,
        **segments: Segments,
    ) -> None:
        """Put new arrays, and descriptors that know where they lie, in place of the old ones: all in one statement."""
        new: dict[str, Any] = {name: segments.get(name, getattr(self, name)) for name in SEGMENTS}
        new["streams"] = streams = (self.streams if streams is None else streams).copy()
        new["classes"] = classes = (self.classes if classes is None else classes).copy()
        new["capacity"] = capacity = self.capacity if capacity is None else capacity
        streams[:, S_RECS] = new["recs"].base
        streams[:, S_TIMES] = new["times"].base
        streams[:, S_MASK] = [room - 1 for room in capacity]
        classes[:, C_HEADS] = new["heads"].base
        classes[:, C_WORDS] = new["words"].base
        classes[:, C_FREELIST] = new["freed"].base
        classes[:, C_TABLE] = new["table"].base
        arrays = {name: new[name].array for name in SEGMENTS}
        new["arena"] = Arena(**arrays, streams=streams, classes=classes, attrs=self.attrs, meta=self.meta)
        vars(self).update(new)

    # Room

    def reserve(self, rows: Sequence[int], keys: Sequence[int]) -> None:
        """Give modules that hold nothing room for rows[i] tuples of stream i and keys[c] keys of class c."""
        factors = [power_of_two(-(-n // FIRST_KEYS)) for n in keys]
        capacity = [power_of_two(max(n, FIRST_ROOM)) for n in rows]
        classes = self.classes.copy()
        classes[:, C_CAPACITY] *= factors
        classes[:, C_SHIFT] -= [f.bit_length() - 1 for f in factors]
        self._install(
            classes=classes,
            capacity=capacity,
            recs=Segments(np.int32, [n * width for n, width in zip(capacity, self._widths, strict=True)], -1),
            times=Segments(np.int64, capacity if self.graph.timed else [0] * len(capacity), 0),
            heads=Segments(np.int32, [f * n for f, n in zip(factors, self.heads.size, strict=True)], -1),
            words=Segments(np.int64, [f * n for f, n in zip(factors, self.words.size, strict=True)], 0),
            freed=Segments(np.int32, [f * n for f, n in zip(factors, self.freed.size, strict=True)], 0),
            table=Segments(np.int64, [f * n for f, n in zip(factors, self.table.size, strict=True)], -1),
        )

    def _grow_ring(self, i: int, least: int) -> None:
        room, old = power_of_two(least), self.capacity[i]
        width = self._widths[i]
        live = np.arange(self.streams[i, S_LO], self.streams[i, S_NEXT])
        recs = self.recs.resized(i, room * width)
        recs.view(i).reshape(room, width)[live & (room - 1)] = self.recs.view(i).reshape(old, width)[live & (old - 1)]
        times = self.times
        if self.graph.timed:
            times = times.resized(i, room)
            times.view(i)[live & (room - 1)] = self.times.view(i)[live & (old - 1)]
        capacity = [*self.capacity[:i], room, *self.capacity[i + 1 :]]
        self._install(recs=recs, times=times, capacity=capacity)

    def _grow_keys(self, c: int) -> None:
        old = int(self.classes[c, C_CAPACITY])
        room, stride, width = 2 * old, self._strides[c], self.graph.widths[c]
        own = old * (4 * stride + 8 * width + 4) + 8 * self.table.size[c]
        self.allowance.ask(own + sum(cache.wider(c, room) for cache in self.caches), f"room for {room} keys")
        heads = self.heads.resized(c, room * stride)
        words = self.words.resized(c, room * width)
        freed = self.freed.resized(c, room)
        table = self.table.resized(c, 2 * self.table.size[c])
        heads.view(c)[: old * stride] = self.heads.view(c)
        words.view(c)[: old * width] = self.words.view(c)
        freed.view(c)[:old] = self.freed.view(c)
        classes = self.classes.copy()
        classes[c, [C_CAPACITY, C_SHIFT]] = room, classes[c, C_SHIFT] - 1
        rehash(table.view(c), int(classes[c, C_SHIFT]), self.table.view(c))
        self._install(classes=classes, heads=heads, words=words, freed=freed, table=table)

    def renumber(self) -> None:
        """Number the tuples of each stream from near 0 again, so that sequence numbers stay in an int32. O(state)."""
        shifts = [int(low) // room * room for low, room in zip(self.streams[:, S_LO], self.capacity, strict=True)]
        streams, heads, recs = self.streams.copy(), self.heads.copy(), self.recs.copy()
        for i, shift in enumerate(shifts):
            room, width = self.capacity[i], self._widths[i]
            if shift == 0:
                continue
            records = recs.view(i).reshape(room, width)
            for k, c in enumerate(self.graph.attributes[i]):
                x = self.attribute_rows[i, c]
                column = heads.view(c).reshape(-1, self._strides[c])[:, self.attrs[x, A_COLUMN]]
                np.maximum(column - shift, -1, out=column)
                np.maximum(records[:, 2 * k] - shift, -1, out=records[:, 2 * k])
            streams[i, [S_NEXT, S_LO]] -= shift
            streams[i, S_BASE] += shift
        self._install(streams=streams, heads=heads, recs=recs)
        for cache in self.caches:
            cache.renumbered(shifts)

    def growth(self, rows: Sequence[int]) -> Growth:
        """Return what `begin` would add to the rings for a push of rows[i] rows of stream i. O(streams)."""
        n_bytes, factors = 0, []
        for i, (n, old) in enumerate(zip(rows, self.capacity, strict=True)):
            room = max(old, power_of_two(self.rows(i) + n)) if n else old
            n_bytes += (room - old) * (4 * self._widths[i] + 8 * self.graph.timed)
            factors.append(room // old)
        return Growth(n_bytes, factors)

    @property
    def walk(self) -> Walk:
        """What kernels walk in; the ids of the results of a push are in it."""
        return self.scratch.walk

    # A push

    def begin(self, rows: Sequence[int]) -> None:
        """Open a push of rows[i] rows of stream i: make room, lay out the input.

        Raises CapacityError with nothing changed.
        """
        if self.texts:
            # Without strings the kernel does this by itself.
            self._sweep()
        # One look at both, as small pushes are many.
        following, low = self.streams.T[S_NEXT : S_LO + 1].tolist()
        if max(map(add, following, rows)) > self.renumber_at:
            self.renumber()
            following, low = self.streams.T[S_NEXT : S_LO + 1].tolist()
        for i, n in enumerate(rows):
            least = following[i] - low[i] + n
            if least > self.capacity[i] and n:
                if least > RENUMBER_AT:
                    raise CapacityError(
                        f"stream {self.graph.names[i]}: its window would hold {least} tuples, the most is {RENUMBER_AT}"
                    )
                self._grow_ring(i, least)
        self.following = following
        self._rows = np.array(rows, np.int64)
        self._row_starts = [0, *accumulate(rows)]
        self._word_starts = [0, *accumulate(rows[i] * width for i, width in self._attribute_widths)]
        self.scratch.take_in(self._word_starts[-1], self._row_starts[-1])
        self.meta[:M_OF_PUSH] = 0
        self._saved = self.streams.copy(), self.meta.copy()

    @property
    def given(self) -> int | None:
        """The watermark that the caller gave last, None = it follows from the arrivals."""
        given = int(self.meta[M_GIVEN])
        return given if given >= -FOREVER else None

    def give(self, watermark: int, rising: bool) -> None:
        """Let the push under way end with this watermark; from then on it no longer follows from the arrivals.

        rising   the arrivals come by time: so it may rise with them as far as the one given, else it stays until the
                 end as it was before the push
        """
        cap = watermark if rising else int(self.meta[M_WATERMARK])
        self.meta[[M_CAP, M_GIVEN, M_LATENESS]] = cap, watermark, 0

    def key_words(self, i: int, c: int) -> Int64s:
        """Return the place for the key words of stream i in class c: int64[rows of the push * width], row by row."""
        x = self.attribute_rows[i, c]
        return self.scratch.words[self._word_starts[x] : self._word_starts[x + 1]]

    def key_address(self, i: int, c: int) -> int:
        """Return the address of `key_words`."""
        return self.scratch.address + 8 * self._word_starts[self.attribute_rows[i, c]]

    def dead_rows(self, i: int) -> Bytes:
        """Return the marks of the rows of stream i that can join nothing: uint8[rows], 0 until set to 1."""
        return self.scratch.dead[self._row_starts[i] : self._row_starts[i + 1]]

    def ring_slices(self, i: int, n: int) -> list[tuple[slice, slice]]:
        """Return (slots of the ring, rows of the push) for the next n tuples of stream i: two pairs at the wrap."""
        room = self.capacity[i]
        first = self.following[i] & (room - 1)
        head = min(n, room - first)
        slices = [(slice(first, first + head), slice(0, head))]
        if head < n:
            slices.append((slice(0, n - head), slice(head, n)))
        return slices

    def arrival_numbers(self) -> Int64s:
        """Return the arrival number of each component of the results of the push: int64[streams, results]."""
        m, n = self.graph.n_streams, int(self.meta[M_OUT])
        numbers = np.empty((m, n), np.int64)
        transpose(self.walk.ids, self.streams, numbers)
        return numbers

    def first_arrival(self, i: int) -> int:
        """Return the arrival number that the first row of stream i in the push under way gets."""
        return self.following[i] + int(self.streams[i, S_BASE])

    def set_times(self, i: int, times: Int64s, slices: list[tuple[slice, slice]]) -> None:
        """Give the event times of the rows of stream i, in ticks within ±2^61; slices as `ring_slices` gives them."""
        ring = self.times.view(i)
        for slots, rows in slices:
            ring[slots] = times[rows]

    def run(
        self,
        routes: Routes,
        order: Bytes,
        count_only: bool = False,
        entries: Entries | None = None,
        stop: int | None = None,
    ) -> int:
        """Take the arrivals of the push in the order given and return the number of results (ids in `walk.ids`).

        One call of the kernel, plus one for each time it needs room. On any exception the push is undone.

        entries   the STAIRs that the routes speak of
        stop      arrivals of the push to take, those taken before included; None = all. Call again for the others.
        """
        scratch, meta = self.scratch, self.meta
        batch = Batch(order, scratch.words, scratch.dead)
        tables = self._no_entries if entries is None else entries
        meta[M_STOP] = len(order) if stop is None else stop
        try:
            for cache in self.caches:
                cache.follow()
            while (status := push(self.arena, tables, routes, batch, scratch.walk, self._rows, count_only)) != DONE:
                if status == NEED_OUTPUT:
                    scratch.grow_results(int(meta[M_OUT]), int(meta[M_NEED]), bool(meta[M_CHANGELOG]))
                elif status == NEED_LISTS:
                    scratch.grow_lists(int(meta[M_NEED]))
                elif status == NEED_KEYS:
                    self._grow_keys(int(meta[M_NEED]))
                    for cache in self.caches:
                        cache.follow()
                elif status == NEED_ENTRIES:
                    for cache in self.caches:
                        cache.make_room()
        except BaseException:
            self.undo()
            raise
        return int(self.meta[M_OUT])

    def commit(self) -> None:
        """Close the push: from here on it can't be undone. Nothing happens when it is closed."""
        meta = self.meta
        if self._saved is not None:
            if self.texts:
                self._settle()
            before = self._saved[1]
            meta[M_RESULTS] = before[M_RESULTS] + meta[M_OUT]
            meta[M_ARRIVALS] = before[M_ARRIVALS] + meta[M_ARRIVAL]
            self._saved = None
        meta[M_ARRIVAL] = 0
        self._doubt = False

    def undo(self) -> None:
        """Take the push under way back: heads, low marks and the watermark are as before `begin`. O(rows taken).

        Without one there is nothing to take back but what `begin` was cut off in: a sweep, or a renumbering of which
        not every cache was told.
        """
        if self._saved is not None:
            undo(self.arena, *self._saved)
            if not self._doubt:
                for strings in self.texts.values():
                    strings.settle(np.zeros(0, np.int64))
        if self._doubt:
            self._recount()
        for cache in self.caches:
            cache.forget()
        self._saved, self._doubt = None, False

    def _adopted(self, c: int) -> npt.NDArray[np.int64]:
        """Return the key ids of class c that the push under way has handed out."""
        if not self.meta[M_STARTED]:
            return np.zeros(0, np.int64)
        own = self.classes[c]
        again = self.freed.view(c)[int(own[C_FREE]) : int(own[C_FREE0])].astype(np.int64)
        return np.concatenate([again, np.arange(own[C_NEXT0], own[C_NEXT])])

    def _words_of(self, c: int, kids: npt.NDArray[np.int64], word: int) -> Int64s:
        width = self.graph.widths[c]
        return np.ascontiguousarray(self.words.view(c).reshape(-1, width)[kids, word])

    def _sweep(self) -> None:
        """Take dead keys back, and the strings they contained. Between pushes, in modules with strings."""
        if self._doubt:
            self._recount()
        self._doubt = True
        free = self.classes[:, C_FREE].tolist()
        if sweep(self.arena):
            for (c, word), strings in self.texts.items():
                kids = self.freed.view(c)[free[c] : int(self.classes[c, C_FREE])]
                strings.release(self._words_of(c, kids, word))
        self._doubt = False

    def _settle(self) -> None:
        """Count the strings of the keys that the push has added; the count is in doubt until the push is closed."""
        if self._doubt:
            self._recount()
            return
        self._doubt = True
        for (c, word), strings in self.texts.items():
            strings.settle(self._words_of(c, self._adopted(c), word))

    def _recount(self) -> None:
        """Count the strings of all keys in use anew. O(key ids + strings)."""
        for (c, word), strings in self.texts.items():
            held = self.table.view(c)[1::2]
            strings.recount(self._words_of(c, held[held >= 0], word))

    # Looking in

    def rows(self, i: int) -> int:
        """Return the tuples in the window of stream i."""
        return int(self.streams[i, S_NEXT] - self.streams[i, S_LO])

    def keys(self, c: int) -> int:
        """Return the keys of class c that have an id: those live, and dead ones the sweep has not come by yet."""
        return int(self.classes[c, C_NEXT] - self.classes[c, C_FREE])

    def stem_bytes(self, i: int) -> int:
        """Return the bytes of the records and times of stream i."""
        return self.recs.view(i).nbytes + self.times.view(i).nbytes

    def key_bytes(self, c: int) -> int:
        """Return the bytes of the key directory of class c: heads, words, hash table, free list, strings."""
        parts = (self.heads, self.words, self.table, self.freed)
        strings = sum(strings.nbytes for strings in self.texts_of[c].values())
        return sum(part.view(c).nbytes for part in parts) + strings

    @property
    def nbytes(self) -> int:
        """Bytes of all state and of the room for results."""
        strings = sum(strings.nbytes for strings in self.texts.values())
        return sum(array.nbytes for array in self.arena) + self.scratch.nbytes + strings

    @property
    def state_bytes(self) -> int:
        """Bytes of records, times and key directories: of what is there between pushes."""
        arrays = (self.recs, self.times, self.heads, self.words, self.freed, self.table)
        return sum(part.array.nbytes for part in arrays) + sum(strings.nbytes for strings in self.texts.values())

    @property
    def pushing(self) -> bool:
        """Whether a push is neither committed nor undone."""
        return self._saved is not None

    def check(self) -> None:
        """Raise StateError unless all invariants of the module hold, naming the first that does not. O(state)."""
        check_modules(self)
