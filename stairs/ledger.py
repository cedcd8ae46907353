"""The ledger: which matches of a join have partners in the branches that hang on it.

An *entry* is a match of the join, with the *options* of each branch: the rows that the branch can contribute, which
its partners make. The ledger turns events (matches and options that begin or end, branches of an entry that can get no
further option) into the rows that begin or end with them.

    a LEFT branch contributes each of its options, or nothing if it has none
    a SEMI branch contributes nothing, if it has an option; else there is no row
    an ANTI branch contributes nothing, if it has no option; else there is no row

"Has none" counts from the moment when no option can come any more (`close`), or at once (`enter(…, at_once=True)`), for
a changelog. Rows are the product of what the branches of an entry contribute. Options are stored only where rows need
them again: in a left branch beside other branches.

Memory: O(entries + stored options). Cost: O(1) per event, plus the rows that it puts out; a stored option that ends is
searched for in the list of its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stairs.errors import CapacityError, StateError
from stairs.kernels.ledger import appear, close, enter, follow, forget, leave, locate, mark
from stairs.kernels.ledger_arrays import (
    B_COUNT,
    B_DONE,
    B_FIELDS,
    B_HEAD,
    F_BRANCHES,
    F_SERIAL,
    HOWS,
    LEFT,
    LOGGED,
    MOST,
    N_COUNTERS,
    N_FIRST_FREED,
    N_FREE_OPTIONS,
    N_FREED,
    N_FRESH,
    N_LIVE,
    N_LOG,
    N_LOW,
    N_NEXT,
    N_OPTIONS,
    N_OUT,
    N_ROWS,
    N_WRITES,
    NEVER,
    Int64s,
    LedgerArrays,
    advance,
    least,
    relink,
    undo,
)
from stairs.memory.allowance import Allowance
from stairs.seeds import seeds
from stairs.storage.parts import Parts, Plain, powers_of_two

Signs = npt.NDArray[np.uint8]
LEAST_ROOM = 256
SPARE_ROOM = 1 << 14
"""Rows, and numbers in the log, that are kept from push to push however few are used."""


class Ledger:
    """The ledger of one join.

    hows       how each branch hangs on the join: "left", "semi" or "anti"
    n_streams  components of a row, -1 = none
    key        the streams of the join, whose components identify an entry
    changing   one of them is a table: an entry may stay for ever, and others come and go; `enter` is at once
    allowance  is asked before the ledger grows; None = no bound
    """

    def __init__(
        self,
        hows: Sequence[str],
        n_streams: int,
        key: Sequence[int],
        changing: bool = False,
        allowance: Allowance | None = None,
    ) -> None:
        self._changing, self._allowance = changing, allowance or Allowance()
        self.stride = F_BRANCHES + B_FIELDS * len(hows) + n_streams
        kinds = [HOWS.index(how) for how in hows]
        counters = np.zeros(N_COUNTERS, np.int64)
        counters[[N_FREE_OPTIONS, N_FREED, N_FRESH]] = -1, -1, NEVER
        self.arrays = LedgerArrays(
            entries=self._unused(LEAST_ROOM),
            options=np.zeros(0, np.int64),
            buckets=np.full(LEAST_ROOM, -1, np.int64),
            seeds=seeds(2),
            counters=counters,
            hows=np.array(kinds, np.int64),
            key=np.array(key, np.int64),
            kept=np.array([int(len(kinds) > 1 and kind == LEFT) for kind in kinds], np.int64),
            rows=np.zeros((LEAST_ROOM, n_streams), np.int64),
            signs=np.zeros(LEAST_ROOM, np.uint8),
            log=np.zeros(LEAST_ROOM * LOGGED, np.int64),
            turn=np.zeros(len(kinds), np.int64),
            mask=LEAST_ROOM - 1,
            alone=int(len(key) == 1 and not changing),
        )
        self._saved: Int64s | None = None
        self._leaving: list[Int64s] = []
        """Where entries are that `put_out` forgets."""

    def __len__(self) -> int:
        return int(self.arrays.counters[N_LIVE])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays if isinstance(array, np.ndarray))

    # Parts for another process

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes."""
        arrays = self.arrays
        return {
            "entries": arrays.entries,
            "options": arrays.options,
            "buckets": arrays.buckets,
            "seeds": arrays.seeds,
            "counters": arrays.counters[:N_FRESH].tolist(),
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of a ledger of the same branches. Raises StateError for parts that do not fit."""
        entries, options = (parts.array(name, np.int64, (-1,)) for name in ("entries", "options"))
        buckets = parts.array("buckets", np.int64, (-1,))
        room = len(entries) // self.stride
        whole = room * self.stride == len(entries) and powers_of_two([room, len(buckets)])
        parts.require(whole, f"{len(entries)} numbers of entries in {len(buckets)} buckets")
        closed = parts.integers("counters", N_FRESH, low=-1)
        counters = np.array([*closed, *self.arrays.counters[N_FRESH:].tolist()], np.int64)
        width = self.arrays.rows.shape[1] + 1
        low, following, live = (int(counters[k]) for k in (N_LOW, N_NEXT, N_LIVE))
        fits = 0 <= low <= following <= low + room and 0 <= live <= following - low
        fits = fits and 0 <= counters[N_OPTIONS] * width <= len(options)
        parts.require(fits and counters[N_FREE_OPTIONS] < max(len(options), 1), f"counters {counters.tolist()}")
        seeds = parts.array("seeds", np.int64, (2,))
        parts.require(bool((seeds & 1).all()), "seeds of the hash that are even")
        self.arrays = self.arrays._replace(
            entries=entries, options=options, buckets=buckets, seeds=seeds, counters=counters, mask=room - 1
        )

    # A push

    def begin(self) -> None:
        """Open a push, which `undo` can revert until `commit`."""
        if self._changing:
            self._renumber()
        self._leaving = []
        self._saved = self.arrays.counters.copy()

    def _renumber(self) -> None:
        """Give the entries new serial numbers if most numbers are free: room for entries is for consecutive numbers.

        The numbers rise by three times the entries until the next time, so the cost is O(1) for each new entry.
        """
        counters = self.arrays.counters.copy()
        live, span = int(counters[N_LIVE]), int(counters[N_NEXT] - counters[N_LOW])
        if span < LEAST_ROOM or 4 * live > span:
            return
        old = self.arrays.entries.reshape(-1, self.stride)
        kept = old[self.serials() & (len(old) - 1)]
        room = max(LEAST_ROOM, 1 << (2 * live).bit_length())
        entries = self._unused(room)
        whole = entries.reshape(-1, self.stride)
        whole[:live] = kept
        whole[:live, F_SERIAL] = np.arange(live)
        counters[N_LOW], counters[N_NEXT] = 0, live
        buckets = np.full(len(self.arrays.buckets), -1, np.int64)
        arrays = self.arrays._replace(entries=entries, buckets=buckets, counters=counters, mask=room - 1)
        relink(arrays, arrays.entries)
        self.arrays = arrays

    def _unused(self, room: int) -> Int64s:
        """Return room for entries of which none is in use. Its memory is taken only as entries come."""
        entries = np.zeros(room * self.stride, np.int64)
        # In all other slots, 0 is the serial number of another slot.
        entries[F_SERIAL] = -1
        return entries

    def commit(self) -> None:
        """Close the push, and forget the rows that it put out. Room that it hardly used is halved."""
        arrays, counters = self.arrays, self.arrays.counters
        if len(arrays.rows) > SPARE_ROOM and 4 * int(counters[N_OUT]) < len(arrays.rows):
            half = len(arrays.rows) // 2
            arrays = arrays._replace(rows=arrays.rows[:half].copy(), signs=arrays.signs[:half].copy())
        if len(arrays.log) > SPARE_ROOM and 4 * LOGGED * int(counters[N_LOG]) < len(arrays.log):
            arrays = arrays._replace(log=np.zeros(len(arrays.log) // 2, np.int64))
        freed, free = int(counters[N_FREED]), int(counters[N_FREE_OPTIONS])
        if freed >= 0:
            arrays.options[counters[N_FIRST_FREED]] = free
            free = freed
        counters[[N_LOG, N_OUT, N_FREE_OPTIONS, N_FREED]] = 0, 0, free, -1
        self.arrays = arrays
        self._saved = None

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the room for the rows that a push puts out, and for its log, which `release_buffers` gives back."""
        rows, width = self.arrays.rows.shape
        return (rows - LEAST_ROOM) * (8 * width + 1) + self.arrays.log.nbytes - 8 * LEAST_ROOM * LOGGED

    def release_buffers(self) -> None:
        """Give back the room for the rows that a push puts out, and for its log. Between two pushes."""
        arrays = self.arrays
        self.arrays = arrays._replace(
            rows=np.zeros((LEAST_ROOM, arrays.rows.shape[1]), np.int64),
            signs=np.zeros(LEAST_ROOM, np.uint8),
            log=np.zeros(LEAST_ROOM * LOGGED, np.int64),
        )

    def undo(self) -> None:
        """Undo the open push. It may be repeated."""
        if self._saved is None:
            return
        undo(self.arrays)
        self.arrays.counters[:] = self._saved
        # The buckets have the entries of the push, or were only half filled.
        self.arrays.buckets[:] = -1
        relink(self.arrays, self.arrays.entries)
        self._saved = None

    def enter(self, matches: Int64s, at_once: bool) -> Int64s:
        """Make an entry for each match, int64[n, n_streams], and return their serial numbers.

        at_once   a branch without options counts as such at once

        A ledger over one stream gets the tuples of the stream in order of arrival.
        """
        n = len(matches)
        if not n:
            return np.zeros(0, np.int64)
        first = int(matches[0, self.arrays.key[0]]) if self.arrays.alone else int(self.arrays.counters[N_NEXT])
        self._make_room(first, n)
        if at_once:
            self.arrays.counters[N_FRESH] = min(first, int(self.arrays.counters[N_FRESH]))
        enter(self.arrays, matches, int(at_once), 0, n)
        return np.arange(first, first + n)

    def _make_room(self, first: int, n: int) -> None:
        """Make room for entries first .. first + n - 1."""
        room, counters = len(self.arrays.entries) // self.stride, self.arrays.counters
        live, crowded = int(counters[N_LIVE]) + n, False
        if first + n - int(counters[N_LOW]) > room:
            advance(self.arrays)
            if not counters[N_LIVE]:
                counters[N_LOW] = first
            needed = first + n - int(counters[N_LOW])
            if needed > room:
                room = 1 << (2 * needed - 1).bit_length()
                crowded = True
        buckets = len(self.arrays.buckets)
        if not self.arrays.alone and live > buckets:
            buckets, crowded = 1 << (2 * live - 1).bit_length(), True
        if crowded:
            more = room * self.stride - len(self.arrays.entries) + buckets - len(self.arrays.buckets)
            self._allowance.ask(8 * more, f"a ledger with room for {room:,} matches")
            entries = self._unused(room)
            arrays = self.arrays._replace(entries=entries, buckets=np.full(buckets, -1, np.int64), mask=room - 1)
            relink(arrays, self.arrays.entries)
            self.arrays = arrays

    def follow(self, b: int, options: Int64s, signs: Signs) -> None:
        """Process options of branch b, int64[n, n_streams], which begin (sign 1) or end (0), in their order."""
        n = len(options)
        if self.arrays.kept[b]:
            self._grow("options", (int(self.arrays.counters[N_OPTIONS]) + n) * (self.arrays.rows.shape[1] + 1))
        places = self._located(options)
        self._run(n, lambda start: follow(self.arrays, b, options, signs, places, start, n))

    def _located(self, rows: Int64s) -> Int64s:
        """Return where the entries of rows begin, -1 for none."""
        places = np.empty(len(rows), np.int64)
        locate(self.arrays, rows, places)
        return places

    @property
    def passes(self) -> bool:
        """Whether each option that begins is a row: a left branch stands alone."""
        return self.arrays.hows.tolist() == [LEFT]

    def mark(self, options: Int64s) -> None:
        """Do as `follow` for options that begin and are rows themselves, but put no rows out. Never with `at_once`."""
        self._run(len(options), lambda start: mark(self.arrays, options, start, len(options)))

    def close(self, due: Int64s) -> None:
        """Process serial number * branches + branch, int64[n]: the entry can get no further option there."""
        self._run(len(due), lambda start: close(self.arrays, due, start, len(due)))

    def leave(self, matches: Int64s) -> None:
        """Process matches that end, of a changelog. Options that end with them may come before or after."""
        places, stays = self._located(matches), self.passes
        self._run(len(places), lambda start: leave(self.arrays, places, int(stays), start, len(places)))
        if stays:
            # Their options are not stored, so the rows that end are those of the options that are still to end.
            self._leaving.append(places)

    def forget(self, matches: Int64s) -> None:
        """Forget matches whose rows are final: the rows stay."""
        self._forget(self._located(matches))

    def _forget(self, places: Int64s) -> None:
        self._run(len(places), lambda start: forget(self.arrays, places, start, len(places)))

    def _run(self, n: int, kernel: Callable[[int], int], start: int = 0) -> None:
        """Run a kernel from `start` to n, with more room for rows and the log where it stops.

        Raises CapacityError if one event makes more rows than fit in memory.
        """
        done = kernel(start) if n > start else n
        while done < n:
            arrays, counters = self.arrays, self.arrays.counters
            rows, writes = int(counters[N_OUT] + counters[N_ROWS]), int(counters[N_LOG] + counters[N_WRITES]) * LOGGED
            try:
                if writes > len(arrays.log):
                    self._grow("log", writes)
                if rows > len(arrays.rows):
                    longer = np.zeros((max(rows, 2 * len(arrays.rows)), arrays.rows.shape[1]), np.int64)
                    longer[: len(arrays.rows)] = arrays.rows
                    self.arrays = self.arrays._replace(rows=longer, signs=np.resize(arrays.signs, len(longer)))
            except MemoryError as problem:
                raise CapacityError(
                    f"one row of the core has {int(counters[N_ROWS]):,} combinations of partners in its branches, more"
                    " than fit in memory; add predicates or narrow the windows of the branches"
                ) from problem
            done = kernel(done)

    def _grow(self, name: str, size: int) -> None:
        array = getattr(self.arrays, name)
        if size > len(array):
            room = max(size, 2 * len(array), LEAST_ROOM)
            if name == "options":  # the log is a buffer
                self._allowance.ask(8 * (room - len(array)), f"a ledger with room for {room:,} numbers of options")
            larger = np.zeros(room, np.int64)
            larger[: len(array)] = array
            self.arrays = LedgerArrays(**{**self.arrays._asdict(), name: larger})

    def put_out(self) -> tuple[Int64s, Signs]:
        """Return the rows of the push, int64[n, n_streams], and whether each begins (1) or ends (0)."""
        counters = self.arrays.counters
        first, stop = int(counters[N_FRESH]), int(counters[N_NEXT])
        if first < stop:
            self._run(stop, lambda start: appear(self.arrays, start, stop), first)
        counters[N_FRESH] = NEVER
        for places in self._leaving:
            self._forget(places)
        self._leaving = []
        n = int(counters[N_OUT])
        return self.arrays.rows[:n].copy(), self.arrays.signs[:n].copy()

    def check(self) -> None:
        """Raise StateError unless the entries are as many as are counted, each of another match. For tests."""
        serials, components = self.serials(), self.matches()
        if len(serials) != len(self):
            raise StateError(f"a ledger has {len(serials)} entries and counts {len(self)}")
        if len(np.unique(components[:, self.arrays.key], axis=0)) != len(serials):
            raise StateError("two entries of a ledger are of the same match")
        used = int(self.arrays.counters[N_OPTIONS])
        free = sum(self._listed(int(self.arrays.counters[k])) for k in (N_FREE_OPTIONS, N_FREED))
        if free + len(self.contents()[1]) != used:
            raise StateError(f"a ledger has used room for {used} options: {free} are free, and others are lost")

    def _listed(self, o: int) -> int:
        """Return the number of options in the list that begins with `o`."""
        n = 0
        while o >= 0:
            n, o = n + 1, int(self.arrays.options[o])
        return n

    # All contents

    def serials(self) -> Int64s:
        """Return the serial numbers of all entries, ascending."""
        advance(self.arrays)
        numbers = np.arange(self.arrays.counters[N_LOW], self.arrays.counters[N_NEXT])
        whole = self.arrays.entries.reshape(-1, self.stride)
        return numbers[whole[numbers & (len(whole) - 1), F_SERIAL] == numbers]

    def matches(self) -> Int64s:
        """Return the matches of all entries, int64[n, n_streams], oldest first."""
        whole = self.arrays.entries.reshape(-1, self.stride)
        return np.ascontiguousarray(whole[self.serials() & (len(whole) - 1), -self.arrays.rows.shape[1] :])

    def lower(self, lows: Int64s) -> None:
        """Lower lows[i] to the smallest component of stream i that is still needed. O(entries + stored options)."""
        least(self.arrays, lows)

    def contents(self) -> tuple[Int64s, Int64s]:
        """Return all entries and stored options, from which `fill` makes an equal ledger.

        entries  int64[n, 2 * branches + n_streams], oldest first: count and done of each branch, components
        options  int64[n, 2 + n_streams], ascending: number of the entry, branch, components
        """
        arrays, n = self.arrays, len(self.arrays.hows)
        whole = arrays.entries.reshape(-1, self.stride)
        whole = whole[self.serials() & (len(whole) - 1)]
        branches = F_BRANCHES + B_FIELDS * np.arange(n)
        fields = np.column_stack([branches + B_COUNT, branches + B_DONE]).reshape(-1).tolist()
        columns, width = [*fields, *range(F_BRANCHES + B_FIELDS * n, self.stride)], arrays.rows.shape[1] + 1
        rows: list[list[int]] = []
        for b in np.flatnonzero(arrays.kept).tolist():
            for x in np.flatnonzero(whole[:, branches[b] + B_COUNT]).tolist():
                o = int(whole[x, branches[b] + B_HEAD])
                while o >= 0:
                    rows.append([x, b, *arrays.options[o + 1 : o + width].tolist()])
                    o = int(arrays.options[o])
        return np.ascontiguousarray(whole[:, columns]), np.array(sorted(rows), np.int64).reshape(-1, 1 + width)

    def fill(self, entries: Int64s, options: Int64s, at_once: bool) -> Int64s:
        """Fill an empty ledger with `contents`; return the serial number of each entry.

        at_once   as in `enter`

        Raises StateError for contents that do not fit together.
        """
        n, k, m = len(entries), len(self.arrays.hows), self.arrays.rows.shape[1]
        self._check(entries, options, at_once)
        components = entries[:, 2 * k :]
        serials = np.ascontiguousarray(components[:, self.arrays.key[0]]) if self.arrays.alone else np.arange(n)
        counters = self.arrays.counters
        counters[N_LOW] = counters[N_NEXT] = int(serials[0]) if n else 0
        self._make_room(int(counters[N_LOW]), int(serials[-1]) + 1 - int(serials[0]) if n else 1)
        whole = self.arrays.entries.reshape(-1, self.stride)
        whole[serials & (len(whole) - 1)] = np.column_stack(
            [np.full(n, -1), serials, _with_heads(entries[:, : 2 * k]), components]
        )
        lists = np.full((len(options), 1 + m), -1, np.int64)
        lists[:, 1:] = options[:, 2:]
        for o, (x, b) in enumerate(options[:, :2].tolist()):
            e = int(serials[x]) & (len(whole) - 1)
            head = F_BRANCHES + B_FIELDS * b + B_HEAD
            lists[o, 0], whole[e, head] = whole[e, head], o * (1 + m)
        counters[[N_NEXT, N_LIVE, N_OPTIONS]] = int(serials[-1]) + 1 if n else 0, n, len(options)
        self.arrays = self.arrays._replace(options=lists.reshape(-1))
        if len(self.arrays.buckets) < n:
            self.arrays = self.arrays._replace(buckets=np.full(1 << (2 * n).bit_length(), -1, np.int64))
        relink(self.arrays, self.arrays.entries)
        return serials

    def _check(self, entries: Int64s, options: Int64s, at_once: bool) -> None:
        """Raise StateError unless these can be contents of this ledger."""
        n, k, m, key = len(entries), len(self.arrays.hows), self.arrays.rows.shape[1], self.arrays.key
        components, counts = entries[:, 2 * k :], entries[:, : 2 * k : 2]
        others = np.setdiff1d(np.arange(m), key)
        fits = bool((components[:, key] >= 0).all()) and bool((components[:, others] == -1).all())
        dones, uncounted = entries[:, 1 : 2 * k : 2], (self.arrays.kept == 0) & (not at_once)
        fits = fits and bool((counts >= 0).all()) and bool((counts <= MOST).all())
        # In append output an option is counted only if it is stored, and an entry whose branches are all done is gone.
        fits = fits and bool((counts[:, uncounted] <= 1).all()) and bool(np.isin(dones, (0, 1)).all())
        fits = fits and bool((dones.all(axis=1) == at_once).all())
        fits = fits and len(np.unique(components[:, key], axis=0)) == n
        fits = fits and (not self.arrays.alone or bool((np.diff(components[:, key[0]]) > 0).all()))
        fits = fits and bool(((options[:, 0] >= 0) & (options[:, 0] < n)).all())
        fits = fits and bool(np.isin(options[:, 1], np.flatnonzero(self.arrays.kept)).all())
        if fits:
            stored = np.zeros((n, k), np.int64)
            np.add.at(stored, (options[:, 0], options[:, 1]), 1)
            kept = self.arrays.kept == 1
            fits = bool((stored[:, kept] == counts[:, kept]).all()) and bool((options[:, 2:] >= -1).all())
            fits = fits and bool((options[:, 2:][:, key] == components[options[:, 0]][:, key]).all())
        if not fits:
            raise StateError("the entries of a ledger do not fit together")


def _with_heads(fields: Int64s) -> Int64s:
    """Return count and done of each branch with an empty list between them, as entries have them."""
    n, k = fields.shape
    whole = np.full((n, k // 2 * B_FIELDS), -1, np.int64)
    whole[:, B_COUNT::B_FIELDS], whole[:, B_DONE::B_FIELDS] = fields[:, ::2], fields[:, 1::2]
    return whole
