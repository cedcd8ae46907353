"""The state modules of one engine: the SteMs, and the push as a transaction on them.

`begin` sweeps dead keys and makes room for all rows of the push in addition to the live windows, so that the push
overwrites no tuple that was live before it. `undo` then only unlinks the inserted tuples, newest first.

An exception may occur between any two statements: a signal, or a lack of memory. So each change of lasting state is one
statement that takes effect completely or not at all: one kernel call, or the installation of new arrays (`Stems`). A
sequence of such statements can be repeated from its beginning: `commit` and `undo` have the same effect once or twice,
and the counts of strings are recomputed if a sequence that changes them was interrupted (`_doubt`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from stairs.checks.bands import check_bands
from stairs.checks.byte_strings import require
from stairs.checks.stems import check_stems
from stairs.clock_reading import ClockReading
from stairs.descriptors import (
    A_DEAD,
    A_INPUT,
    C_FREE,
    C_FREE0,
    C_NEXT,
    C_NEXT0,
    DONE,
    J_DEAD,
    J_FIELDS,
    J_FIRST,
    J_ROWS,
    LOADING,
    M_AFTER,
    M_ARRIVAL,
    M_ARRIVALS,
    M_BEHIND,
    M_CHANGELOG,
    M_DELETED,
    M_LAGS,
    M_MODE,
    M_NEED,
    M_NEWEST,
    M_OUT,
    M_PRESENCE,
    M_RESULTS,
    M_STARTED,
    M_STOP,
    NEED_BAND,
    NEED_ENTRIES,
    NEED_HASH,
    NEED_INPUT,
    NEED_KEYS,
    NEED_NUMBERS,
    NEED_OUTPUT,
    NEED_PARTIALS,
    NEED_RING,
    S_BASE,
    S_LIFE,
    S_LO,
    S_NEXT,
    S_NUMBERS,
    VIRTUAL,
)
from stairs.errors import CapacityError
from stairs.graph import JoinGraph
from stairs.kernels.arena import transpose, undo
from stairs.kernels.batched import push_batched
from stairs.kernels.by_address import Descriptions
from stairs.kernels.keys import sweep
from stairs.kernels.net_results import net_results
from stairs.kernels.one_by_one import push_singly
from stairs.kernels.one_key import push_one_key
from stairs.kernels.opening import begin_push, write_times
from stairs.kernels.pairs import NO_SLOTS, pair_results
from stairs.key_room import power_of_two
from stairs.memory.arena import Bytes, Entries, Int64s, Opening, Routes, Walk
from stairs.memory.scratch import Scratch, ScratchSizes
from stairs.routes import no_entries
from stairs.stems import RENUMBER_AT, Stems
from stairs.storage.parts import Parts, Plain

MOST_ROOM = 1 << 40
"""More room than any push needs."""


class Modules(Stems):
    """SteMs of all streams of a join, and the push that changes them.

    opening     the rows of the open push, and what was before it

    Memory: O(live tuples + rows of the largest push + live keys + results of the largest push).
    """

    def __init__(self, graph: JoinGraph, renumber_at: int = RENUMBER_AT) -> None:
        super().__init__(graph, renumber_at)
        m = graph.n_streams
        self.scratch = self._scratch_of(None)
        self._no_entries, self._described = no_entries(), Descriptions()
        self._opened: tuple[tuple[Any, Any], tuple[int, int, int]] | None = None
        self._called: tuple[tuple[Any, ...], tuple[int, ...]] | None = None
        """The arrays of the last call of the kernel that opens a push, and of the kernel of a push, and the addresses
        of their descriptions."""
        self._owners = [i for i, classes in enumerate(graph.indexed) for _ in classes]
        """Per attribute, its stream."""
        self._attribute_widths = [graph.widths[c] for classes in graph.indexed for c in classes]
        """Per attribute, the words of its keys."""
        self.words_before = [
            sum(graph.widths[c] for c in classes[:k]) for classes in graph.indexed for k in range(len(classes))
        ]
        """Per attribute, the words of a row before its own in the input of its stream."""
        self.opening = Opening(
            np.zeros((J_FIELDS, m), np.int64),
            np.zeros(2, np.int64),
            np.zeros_like(self.streams),
            np.zeros_like(self.meta),
        )
        self._rows = self.opening.rows[J_ROWS]
        self._row_counts, self._before = self._rows.data, self.opening.meta.data
        """The rows of each stream, and `meta` before the push, as Python reads and writes single numbers quickly."""
        self._saved: tuple[Int64s, Int64s] | None = None
        self._doubt = False
        """Whether the counts of strings may be wrong, because a change of them began and did not end."""

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes, without the caches."""
        return {**super().to_parts(), "room": list(self.scratch.room)}

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts that modules of the same graph kept. Raises StateError for parts that do not fit."""
        rooms = ScratchSizes(*parts.integers("room", len(ScratchSizes._fields), high=MOST_ROOM))
        super().load_parts(parts)
        self.scratch = self._scratch_of(rooms)

    def release_scratch(self) -> None:
        """Give back the room for input and results; the next push makes it again."""
        room = ScratchSizes(frames=self.scratch.room.frames)  # only the strategy grows these
        self.scratch = self._scratch_of(room)
        self._opened = self._called = None

    def _scratch_of(self, room: ScratchSizes | None) -> Scratch:
        graph = self.graph
        words, comparisons = self._presence // 2, len(graph.comparisons)
        return Scratch(graph.n_streams, graph.n_classes, comparisons, room, timed=graph.timed, words=words)

    # The open push

    def begin(self, rows: Sequence[int]) -> None:
        """Open a push of rows[i] rows of stream i: make room and lay out the input. O(streams) unless a ring grows.

        Raises CapacityError with nothing changed.
        """
        if self.texts:
            # Without strings the kernel sweeps.
            self._sweep()
        self.bands.begin()
        opening, limit, counts = self.opening, self.renumber_at, self._row_counts
        for i, n in enumerate(rows):
            counts[i] = n
        while (status := self._begin_push(limit)) != DONE:
            if status == NEED_NUMBERS:
                self.renumber()
                # Once is all that helps.
                limit = MOST_ROOM
            elif status == NEED_INPUT:
                self.scratch.take_in(*opening.need.tolist())
            else:
                assert status == NEED_RING, status
                i = int(self.meta[M_NEED])
                least = self.rows(i) + rows[i]
                if least > RENUMBER_AT:
                    remedy = "divide its keys among runtimes" if i in self.graph.tables else "use a smaller window"
                    raise CapacityError(
                        f"{self.graph.place(i)}: its part of the state would contain {least} tuples, the limit is"
                        f" {RENUMBER_AT}; {remedy}"
                    )
                self._grow_ring(i, least)
        for i in self.graph.tables:
            if rows[i]:
                numbers = self.first_arrival(i) + np.arange(rows[i])
                self.set_values(i, self.graph.rings[i] - 1, numbers, self.ring_slices(i, rows[i]))
        self._saved = opening.streams, opening.meta

    def _begin_push(self, limit: int) -> int:
        arena, given, known = self.arena, self.scratch.input, self._opened
        if known is None or known[0][0] is not arena or known[0][1] is not given:
            address_of = self._described.address
            addresses = address_of(arena), self.scratch.described.address(given), address_of(self.opening)
            known = self._opened = (arena, given), addresses
        status: int = begin_push(*known[1], limit)
        return status

    @property
    def following(self) -> list[int]:
        """The sequence number of the next arrival of each stream when the open push began."""
        numbers: list[int] = self.opening.rows[J_FIRST].tolist()
        return numbers

    def read_clock(self, reading: ClockReading) -> None:
        """Give the open push its time; of a timed query."""
        figures = self.figures
        figures[M_AFTER], figures[M_BEHIND], figures[M_LAGS] = reading.after, reading.behind, reading.lags
        figures[M_NEWEST] = max(reading.newest, figures[M_NEWEST])
        self.scratch.input.clock[: len(reading.marks)] = reading.marks

    def key_words(self, i: int, c: int) -> Int64s:
        """Return a view for the key words of stream i in class c: int64[rows of the push * width], row by row."""
        return self.words_of(self.attribute_rows[i, c])

    def words_of(self, x: int) -> Int64s:
        """Return a view for the key words of attribute x, as `key_words` does."""
        start = int(self.attrs[x, A_INPUT])
        return self.scratch.input.words[start : start + self._row_counts[self._owners[x]] * self._attribute_widths[x]]

    def dead_of(self, x: int) -> Bytes:
        """Return a view of the marks for nulls of attribute x: uint8[rows], 0 until the caller sets 1.

        Unless the modules are `apart`, the attributes of a stream share their marks (`dead_rows`).
        """
        start = int(self.attrs[x, A_DEAD])
        return self.scratch.input.dead[start : start + self._row_counts[self._owners[x]]]

    def dead_rows(self, i: int) -> Bytes:
        """Return a view of the marks of rows of stream i that cannot join: uint8[rows], 0 until the caller sets 1."""
        start = int(self.opening.rows[J_DEAD, i])
        return self.scratch.input.dead[start : start + self._row_counts[i]]

    def ring_slices(self, i: int, n: int) -> list[tuple[slice, slice]]:
        """Return pairs (slots of the ring, rows of the push) for the next n tuples of stream i: two at the wrap."""
        room = self.capacity[i]
        first = int(self.opening.rows[J_FIRST, i]) & (room - 1)
        head = min(n, room - first)
        slices = [(slice(first, first + head), slice(0, head))]
        if head < n:
            slices.append((slice(0, n - head), slice(head, n)))
        return slices

    def first_arrival(self, i: int) -> int:
        """Return the arrival number of the first row of stream i in the open push."""
        return int(self.opening.rows[J_FIRST, i]) + int(self.streams[i, S_BASE])

    def oldest(self, before: bool = False) -> Int64s:
        """Return the arrival number of the oldest live tuple of each stream, int64[streams].

        before   as it was before the open push, if there is one
        """
        streams = self._saved[0] if before and self._saved is not None else self.streams
        return streams[:, S_LO] + streams[:, S_BASE]

    @property
    def saved(self) -> tuple[Int64s, Int64s] | None:
        """The descriptors of the streams and `meta` when the open push began; None if no push is open."""
        return self._saved

    def lowest_before(self, i: int) -> int:
        """Return the sequence number of the oldest live tuple of stream i as it was before the open push."""
        assert self._saved is not None
        return int(self._saved[0][i, S_LO])

    def times_of(self, i: int, numbers: Int64s) -> Int64s:
        """Return the event times of some tuples of stream i, by their sequence numbers; of a timed query."""
        times: Int64s = self.value_ring(i, 0)[numbers & (self.capacity[i] - 1)]
        return times

    def watermarks(self, order: Bytes) -> Int64s:
        """Return the watermark at each arrival of the open push, int64[arrivals]; empty if the query is not timed."""
        return self.scratch.input.clock[: len(order) * self.graph.timed]

    def set_times(self, times: Int64s) -> None:
        """Store the event times of the rows of the push in ticks within ±2^61, int64[rows], stream after stream.

        Ring 0 of a timed query is that of the event times.
        """
        assert self._opened is not None
        assert len(times) == sum(self._row_counts)
        arena_at, _, opening_at = self._opened[1]
        write_times(arena_at, opening_at, times)

    def set_values(self, i: int, ring: int, values: Int64s, slices: list[tuple[slice, slice]]) -> None:
        """Store a value of each row of stream i in one of its rings; `slices` comes from `ring_slices`.

        Integers lie within ±2^61.
        """
        values_ring = self.value_ring(i, ring)
        for slots, rows in slices:
            values_ring[slots] = values[rows]

    def run(
        self,
        routes: Routes,
        order: Bytes,
        count_only: bool = False,
        entries: Entries | None = None,
        stop: int | None = None,
    ) -> int:
        """Process the arrivals of the push in this order, and return the number of results (ids in `walk.ids`).

        The kernel runs once, and once more each time it needs room. Any exception undoes the push. Raises
        CapacityError.

        order     uint8[arrivals], the stream of each arrival
        entries   the STAIRs that the routes refer to
        stop      the position in `order` at which to stop; None = the end. Another call resumes there.
        """
        scratch, meta = self.scratch, self.figures
        tables = self._no_entries if entries is None else entries
        meta[M_STOP] = len(order) if stop is None else stop
        try:
            self.caches.follow()
            while (status := self._push(tables, routes, order, count_only)) != DONE:
                if status == NEED_OUTPUT:
                    scratch.grow_results(meta[M_OUT], meta[M_NEED], bool(meta[M_CHANGELOG]))
                elif status == NEED_PARTIALS:
                    scratch.grow_partials()
                elif status == NEED_BAND:
                    self.bands.require(meta[M_NEED], self.capacity[self.bands.streams[meta[M_NEED]]])
                elif status == NEED_KEYS:
                    self._grow_keys(meta[M_NEED])
                    self.caches.follow()
                elif status == NEED_HASH:
                    self.renew_hash(meta[M_NEED])
                else:
                    assert status == NEED_ENTRIES, status
                    for cache in self.caches:
                        cache.make_room()
        except BaseException:
            self.undo()
            raise
        return meta[M_OUT]

    @property
    def kernel(self) -> Callable[..., int]:
        """The kernel of a push in the present mode. Each is compiled at its first use."""
        mode = self.figures[M_MODE]
        if mode != VIRTUAL and mode != LOADING:
            return push_singly
        return push_one_key if self.on_one_key and not self.figures[M_CHANGELOG] else push_batched

    def _push(self, entries: Entries, routes: Routes, order: Bytes, count_only: bool) -> int:
        scratch = self.scratch
        arrays = self.arena, entries, routes, scratch.input, scratch.walk, scratch.chunk
        known = self._called
        if known is None or not all(map(is_, known[0], arrays)):
            lasting, temporary = self._described.address, scratch.described.address
            known = self._called = arrays, (*map(lasting, arrays[:3]), *map(temporary, arrays[3:]))
        kernel = self.kernel
        if kernel is not push_one_key:
            self.figures[M_PRESENCE] = 0
        return kernel(*known[1], order, self._rows, count_only)

    @property
    def walk(self) -> Walk:
        """Memory in which kernels walk; it contains the ids of the results of a push."""
        return self.scratch.walk

    def arrival_numbers(self) -> Int64s:
        """Return the arrival number of each component of the results of the push: int64[streams, results]."""
        m, n = self.graph.n_streams, int(self.meta[M_OUT])
        numbers = np.empty((m, n), np.int64)
        transpose(self.arena, self.walk.ids, numbers)
        return numbers

    def living_numbers(self, i: int) -> Int64s:
        """Return the arrival numbers of the living versions of table i, ascending. O(versions)."""
        return self._numbers_of(i, self.live_tuples(i))

    def replaced(self, i: int, first: int) -> Int64s:
        """Return the arrival numbers of the versions that the changes of table i from `first` on ended, -1 for none.

        int64[changes]; a push is open, or has just been closed. O(changes).
        """
        base, following, at = self.streams[i, [S_BASE, S_NEXT, S_LIFE]].tolist()
        records = self.recs.view(i).reshape(self.capacity[i], -1)
        ended = records[np.arange(first - base, following) & (self.capacity[i] - 1), at + 1].astype(np.int64)
        return np.where(ended < 0, -1, self._numbers_of(i, ended))

    def _numbers_of(self, i: int, versions: Int64s) -> Int64s:
        return np.array(self.arena.values[self.streams[i, S_NUMBERS] + (versions & (self.capacity[i] - 1))])

    def pair_results(self) -> None:
        """Let the results that a change of a table replaced, and those that replace them, follow each other in pairs.

        O(results * tables).
        """
        n, m, walk = self.figures[M_OUT], self.graph.n_streams, self.scratch.walk
        if not 0 < self.figures[M_DELETED] < n:
            return
        partners, order = np.empty(n, np.int32), np.empty(n, np.int32)
        ids, signs = walk.ids[: n * m], walk.signs[:n]
        pairs = pair_results(self.arena, ids, signs, np.zeros(0, np.int32), partners, order)
        if pairs == NO_SLOTS:
            slots = np.full(power_of_two(2 * n), -1, np.int32)
            pairs = pair_results(self.arena, ids, signs, slots, partners, order)
        if pairs:
            # `take` copies rows several times as fast as an index does.
            ids[:] = ids.reshape(n, m).take(order, axis=0).reshape(-1)
            signs[:] = signs[order]

    def net_results(self) -> None:
        """Leave the difference between the answers before and after the open push as its results.

        O(results * tables).
        """
        n, m, walk = self.figures[M_OUT], self.graph.n_streams, self.scratch.walk
        if n == 0:
            return
        slots, partners = np.full(power_of_two(2 * n), -1, np.int32), np.empty(n, np.int32)
        order, ids, signs = np.empty(n, np.int32), walk.ids[: n * m], walk.signs[:n]
        firsts = np.array(self.following)
        left = net_results(self.arena, ids, signs, firsts, slots, partners, np.empty(m, np.int32), order)
        ids[: left * m] = ids.reshape(n, m).take(order[:left], axis=0).reshape(-1)
        signs[:left] = signs[order[:left]]
        self.figures[M_OUT], self.figures[M_DELETED] = left, int(np.count_nonzero(signs[:left] & 1))

    def commit(self) -> None:
        """Close the push, which can no longer be undone. Does nothing if no push is open."""
        figures = self.figures
        if self._saved is not None:
            if self.texts:
                self._settle()
            before = self._before
            figures[M_RESULTS] = before[M_RESULTS] + figures[M_OUT]
            figures[M_ARRIVALS] = before[M_ARRIVALS] + figures[M_ARRIVAL]
            self._saved = None
        figures[M_ARRIVAL] = 0
        self._doubt = False

    def undo(self) -> None:
        """Undo the open push: heads, low marks and the watermark are as before `begin`. O(rows processed).

        If no push is open, only an interrupted `begin` needs repair: a sweep, or a renumbering that did not reach every
        cache.
        """
        if self._saved is not None:
            undo(self.arena, *self._saved, self._rows)
            if not self._doubt:
                for strings in self.texts.values():
                    strings.settle(np.zeros(0, np.int64))
        if self._doubt:
            self._recount()
        self.bands.forget(self.streams)
        for cache in self.caches:
            cache.forget()
        self._saved, self._doubt = None, False

    @property
    def pushing(self) -> bool:
        """Whether a push is neither committed nor undone."""
        return self._saved is not None

    # Strings in keys

    def _adopted(self, c: int) -> npt.NDArray[np.int64]:
        """Return the key ids of class c that the open push has assigned."""
        if not self.meta[M_STARTED]:
            return np.zeros(0, np.int64)
        directory = self.classes[c]
        again = self.freed.view(c)[int(directory[C_FREE]) : int(directory[C_FREE0])].astype(np.int64)
        return np.concatenate([again, np.arange(directory[C_NEXT0], directory[C_NEXT])])

    def _words_of(self, c: int, kids: npt.NDArray[np.int64], word: int) -> Int64s:
        width = self.graph.widths[c]
        return np.ascontiguousarray(self.words.view(c).reshape(-1, width)[kids, word])

    def _sweep(self) -> None:
        """Recycle dead keys and release the strings in them. Between pushes, in modules with strings."""
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
        """Count the strings of the keys that the push added; the counts are in doubt until the push is closed."""
        if self._doubt:
            self._recount()
            return
        self._doubt = True
        for (c, word), strings in self.texts.items():
            strings.settle(self._words_of(c, self._adopted(c), word))

    def _recount(self) -> None:
        """Recount the strings of all keys in use. O(key ids + strings)."""
        for (c, word), strings in self.texts.items():
            held = self.table.view(c)[1::2]
            strings.recount(self._words_of(c, held[held >= 0], word))

    # All state

    @property
    def nbytes(self) -> int:
        """Bytes of all state, and of the room for input and results."""
        tables = (self.streams, self.classes, self.attrs, self.links, self.bands.table, self.meta)
        return self.state_bytes + sum(table.nbytes for table in tables) + self.scratch.nbytes

    def check(self) -> None:
        """Raise StateError, naming the first invariant of the arrays that fails. O(state * log state)."""
        require(not self.pushing, "a push is neither committed nor undone")
        check_stems(self)
        check_bands(self)
