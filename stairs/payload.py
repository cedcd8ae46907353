"""Payload columns of the live windows, kept in Arrow's memory layout and gathered only for results.

A column of fixed width lies in a ring of values, slot = sequence number & mask as in the arena. Once the column has a
null, a second ring of bytes contains its validity. The kernels know the rings by address, so that one call gathers all
columns of all results into buffers that become the Arrow arrays of the output without another copy. Columns of other
types (strings, lists, structs, …) are kept as Arrow arrays of their plain type (`stairs.chunk_log`,
`stairs.plain_types`) and gathered by Arrow's take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stairs.caches import VersionMove
from stairs.chunk_log import ChunkLog
from stairs.gathered import ColumnId, Gathered, laid_out
from stairs.kernels.payload import P_FIELDS, P_MASK, P_RING, P_STREAM, P_WIDTH, gather
from stairs.memory.allowance import Allowance
from stairs.memory.segments import LEAST_RESERVED, copy_ring, widen_ring
from stairs.plain_types import Column, declared, merged, plain, to_plain
from stairs.storage.parts import Parts, Plain

_BOOL = pa.bool_()

Slices = list[tuple[slice, slice]]


def fixed_width(kind: pa.DataType) -> int:
    """Return the bytes of a value in a ring, 0 for a type that is kept as Arrow arrays. A boolean takes one byte."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_null(kind) or pa.types.is_nested(kind) or plain(kind) != kind:
        return 0
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return 0
    try:
        width = kind.bit_width // 8
    except ValueError:
        return 0
    return width if width in (1, 2, 4, 8, 16) else 0


def _bytes_of(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """Return the values of a column as they lie in its ring, uint8[rows, width]; booleans are bytes."""
    column = column.cast(pa.uint8()) if column.type == _BOOL else column
    values = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return values.reshape(-1, width)


def aligned(n: int) -> int:
    """Return the least multiple of 64 that is at least `n`: columns and rings begin at cache lines."""
    return (n + 63) // 64 * 64


def _packed(memory: pa.Buffer, start: int, n: int) -> pa.Buffer:
    """Return n bytes, each 0 or 1, as a bitmap."""
    return pa.py_buffer(np.packbits(np.frombuffer(memory, np.uint8, n, start), bitorder="little"))


def _spread(log: ChunkLog, arrivals: npt.NDArray[np.int64], present: npt.NDArray[np.bool_]) -> Column:
    """Return the values of the arrivals that are present, and nulls in the other places."""
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    return log.take(arrivals[present]).take(places)


class Payload:
    """The kept columns of all streams.

    kinds       per stream, the Arrow types of its kept columns
    room        per stream, the slots of its rings
    held        per stream, the slots up to which its rings can grow in place (`stairs.memory.segments`)
    addresses   address of the ring of each column that is kept in one
    laid_out    number of times the rings moved: addresses hold while it does not change

    Memory: O(room * bytes of a row), plus the Arrow arrays of the other columns.
    """

    room: list[int]
    held: list[int]
    addresses: dict[ColumnId, int]
    laid_out: int
    moves: int = 0
    """The number of compactions of tables that the columns have followed."""
    _ring: dict[ColumnId, npt.NDArray[np.uint8]]
    _valid: dict[ColumnId, npt.NDArray[np.uint8]]
    _block: npt.NDArray[np.uint8]
    _bytes: int
    _whole: Gathered
    _parts: dict[tuple[tuple[int, ...], frozenset[ColumnId]], Gathered]

    def __init__(self, kinds: list[list[pa.DataType]], room: list[int], allowance: Allowance | None = None) -> None:
        self.kinds = kinds
        self.room, self.held = list(room), list(room)
        self.allowance = Allowance() if allowance is None else allowance
        self.allowance.parts.append(self._counted)
        self._column_ids = [(i, k) for i, types in enumerate(kinds) for k in range(len(types))]
        self._width = {(i, k): fixed_width(kinds[i][k]) for i, k in self._column_ids}
        self._logs = {(i, k): ChunkLog(plain(kinds[i][k])) for i, k in self._column_ids if not self._width[i, k]}
        self._rings = [column_id for column_id in self._column_ids if self._width[column_id]]
        self._bools = {(i, k) for i, k in self._rings if kinds[i][k] == _BOOL}
        # A column has a validity ring once it had a null.
        self._null_rings: list[ColumnId] = []
        self._saved: dict[ColumnId, list[tuple[int, pa.Array]]] | None = None
        self.laid_out = 0
        self._blocks = [np.zeros(0, np.uint8)] * len(room)
        self._layout(range(len(room)), {}, {})

    # Memory

    def _layout(
        self,
        streams: Iterable[int],
        values: dict[ColumnId, npt.NDArray[np.uint8]],
        valid: dict[ColumnId, npt.NDArray[np.uint8]],
        room: list[int] | None = None,
        held: list[int] | None = None,
        null_rings: list[ColumnId] | None = None,
    ) -> None:
        """Replace the rings of some streams, and fill them with the given contents, or with zeros that are valid.

        room, held, null_rings   the new values; None = unchanged. All changes take effect in one statement.
        """
        room = self.room if room is None else room
        held = self.held if held is None else held
        null_rings = self._null_rings if null_rings is None else null_rings
        vars(self).update(self._moved(streams, values, valid, room, held, null_rings))

    def _moved(
        self,
        streams: Iterable[int],
        values: dict[ColumnId, npt.NDArray[np.uint8]],
        valid: dict[ColumnId, npt.NDArray[np.uint8]],
        room: list[int],
        held: list[int],
        null_rings: list[ColumnId],
    ) -> dict[str, Any]:
        """Return the attributes for new rings of some streams, each of which begins with the given contents."""
        moved, held, blocks = set(streams), list(held), list(self._blocks)
        for i in moved:
            try:
                blocks[i] = np.zeros(self._size(i, held[i], null_rings), np.uint8)
            except MemoryError:
                # Some systems count room as memory.
                held[i] = room[i]
                blocks[i] = np.zeros(self._size(i, held[i], null_rings), np.uint8)
        laid = self._laid(blocks, room, held, null_rings)
        for column_id, ring in laid["_ring"].items():
            if column_id[0] in moved and column_id in values:
                ring[: len(values[column_id])] = values[column_id]
        for column_id, ring in laid["_valid"].items():
            if column_id[0] in moved:
                contents = valid.get(column_id)
                if contents is None:
                    ring[:] = 1
                else:
                    ring[: len(contents)] = contents
        return laid

    def _size(self, i: int, slots: int, null_rings: list[ColumnId]) -> int:
        """Return the bytes of the rings of stream i."""
        sizes = [slots * self._width[one] for one in self._rings if one[0] == i]
        return sum(map(aligned, sizes)) + aligned(slots) * sum(j == i for j, _ in null_rings)

    def _laid(
        self, blocks: list[npt.NDArray[np.uint8]], room: list[int], held: list[int], null_rings: list[ColumnId]
    ) -> dict[str, Any]:
        """Return the attributes for rings that lie in the block of their stream, each from a multiple of 64 on."""
        rings: dict[ColumnId, npt.NDArray[np.uint8]] = {}
        valid: dict[ColumnId, npt.NDArray[np.uint8]] = {}
        columns, starts, addresses = [], [0] * len(blocks), [block.ctypes.data for block in blocks]
        for n, column_id in enumerate(self._rings + null_rings):
            i = column_id[0]
            null_ring, start = n >= len(self._rings), starts[i]
            width = 1 if null_ring else self._width[column_id]
            size = room[i] * width
            (valid if null_ring else rings)[column_id] = blocks[i][start : start + size].reshape(-1, width)
            row = [0] * P_FIELDS
            row[P_STREAM], row[P_WIDTH], row[P_RING], row[P_MASK] = i, width, addresses[i] + start, room[i] - 1
            columns.append(row)
            starts[i] += aligned(held[i] * width)
        described = np.array(columns, np.int64).reshape(-1, P_FIELDS)
        return {
            "room": room,
            "held": held,
            "_null_rings": null_rings,
            "_ring": rings,
            "_valid": valid,
            "_parts": {},
            "_whole": Gathered(
                described,
                laid_out(described),
                self._rings,
                null_rings,
                list(self._logs),
                {i: i for i in range(len(self.kinds))},
            ),
            "addresses": dict(zip(self._rings, described[:, P_RING].tolist(), strict=False)),
            "laid_out": self.laid_out + 1,
            "_blocks": blocks,
            "_bytes": sum(self._size(i, slots, null_rings) for i, slots in enumerate(room)),
        }

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes. Arrow arrays that share memory are copied first."""
        for log in self._logs.values():
            log.compact()
        return {
            "nulls": [list(column_id) for column_id in self._null_rings],
            "rings": self._blocks if self.held == self.room else self._dense(),
            "logs": [
                [{"first": first, "values": values} for first, values in log.chunks] for log in self._logs.values()
            ],
        }

    def load_parts(self, parts: Parts, room: list[int]) -> None:
        """Resume from the parts of a payload of the same columns, with room[i] slots of stream i. Raises StateError."""
        nulls = [(i, k) for i, k in parts.rows("nulls", None, 2)]
        parts.require(len(set(nulls)) == len(nulls) and set(nulls) <= set(self._rings), f"nulls of columns {nulls}")
        sizes = [(self._size(i, slots, nulls),) for i, slots in enumerate(room)]
        blocks = parts.arrays("rings", np.uint8, sizes)
        chunks = []
        for log, saved in zip(self._logs.values(), parts.lists("logs", len(self._logs)), strict=True):
            chunks.append([(chunk.integer("first"), chunk.arrow("values", log.kind)) for chunk in saved])
        for log, loaded in zip(self._logs.values(), chunks, strict=True):
            log.chunks = loaded
        vars(self).update(self._laid(blocks, list(room), list(room), nulls))

    def _dense(self) -> list[npt.NDArray[np.uint8]]:
        """Return copies of all rings without room to grow."""
        streams = range(len(self.room))
        return list(self._moved(streams, self._ring, self._valid, self.room, self.room, self._null_rings)["_blocks"])

    def _counted(self) -> int:
        return self.nbytes

    def resize(self, i: int, room: int, low: int, following: int, most: Sequence[int] = ()) -> None:
        """Change the rings of stream i to `room` slots; tuples low .. following - 1 keep their values.

        O(slots of the stream). Large rings can then grow in place, up to the `most` slots that are given for their
        streams.
        """
        old, rooms = self.room[i], [*self.room[:i], room, *self.room[i + 1 :]]
        if room < old:
            values, valid = dict(self._ring), dict(self._valid)
            for kept in (values, valid):
                for column_id in [known for known in kept if known[0] == i]:
                    ring = np.zeros((room, kept[column_id].shape[1]), np.uint8)
                    copy_ring(ring, kept[column_id], low, following)
                    kept[column_id] = ring
            self._layout([i], values, valid, rooms, [*self.held[:i], room, *self.held[i + 1 :]])
            return
        if room <= self.held[i]:
            laid = self._laid(self._blocks, rooms, self.held, self._null_rings)
        else:
            width = max((self._width[column_id] for column_id in self._rings if column_id[0] == i), default=0)
            large = room * width >= LEAST_RESERVED
            held = [*self.held[:i], max(room, most[i]) if large and most else room, *self.held[i + 1 :]]
            laid = self._moved([i], self._ring, self._valid, rooms, held, self._null_rings)
        for kept in (laid["_ring"], laid["_valid"]):
            for (j, _), ring in kept.items():
                if j == i:
                    widen_ring(ring, old, low, following)
        vars(self).update(laid)

    def copied(self) -> Payload:
        """Return payload with the same columns, which share their memory until one of both moves; it has no bound."""
        other = copy(self)
        other.allowance = Allowance()
        other.allowance.parts.append(other._counted)
        return other

    def follow(self, move: VersionMove, base: int) -> None:
        """Follow the compaction of a table, in one statement. Between two pushes. O(rings of the table).

        base   arrival number - sequence number of the stream
        """
        i, mask = move.stream, self.room[move.stream] - 1
        alive = move.low + np.flatnonzero(move.to >= 0)
        after = np.arange(move.first, move.first + len(alive))
        values, valid = dict(self._ring), dict(self._valid)
        for kept in (values, valid):
            for column_id in [known for known in kept if known[0] == i]:
                ring = kept[column_id].copy()
                ring[after & mask] = kept[column_id][alive & mask]
                kept[column_id] = ring
        logs = dict(self._logs)
        for column_id in [known for known in logs if known[0] == i]:
            log, first = ChunkLog(logs[column_id].kind), move.first + base
            values_left = logs[column_id].take(alive + base)
            for chunk in values_left.chunks if isinstance(values_left, pa.ChunkedArray) else [values_left]:
                if len(chunk):
                    log.append(first, chunk)
                    first += len(chunk)
            logs[column_id] = log
        # Without room to grow: if the new memory has been in use, the whole of it is cleared.
        held = [*self.held[:i], self.room[i], *self.held[i + 1 :]]
        laid = self._moved([i], values, valid, self.room, held, self._null_rings)
        vars(self).update({**laid, "_logs": logs, "moves": self.moves + 1})

    @property
    def nbytes(self) -> int:
        """Bytes of all rings and arrays kept."""
        return self._bytes + sum(log.nbytes for log in self._logs.values())

    def bytes_of(self, i: int) -> int:
        """Return the bytes of the columns of stream i."""
        rings = [ring.nbytes for kept in (self._ring, self._valid) for (j, _), ring in kept.items() if j == i]
        return sum(rings) + self.logged_bytes(i)

    def logged_bytes(self, i: int) -> int:
        """Return the bytes of the columns of stream i that are kept as Arrow arrays."""
        return sum(log.nbytes for (j, _), log in self._logs.items() if j == i)

    def growth(self, factors: Sequence[float]) -> int:
        """Return the bytes by which the rings grow when those of each stream i become factors[i] times as long."""
        rings = [(i, ring) for kept in (self._ring, self._valid) for (i, _), ring in kept.items()]
        return sum(int(ring.nbytes * factors[i]) - ring.nbytes for i, ring in rings)

    @property
    def logged(self) -> bool:
        """Whether any column is kept as Arrow arrays; if not, `expire` does nothing."""
        return bool(self._logs)

    # A push

    def begin(self) -> None:
        """Open a push, which `undo` can revert until `commit`."""
        if self._logs:
            self._saved = {column_id: log.chunks for column_id, log in self._logs.items()}

    def commit(self) -> None:
        """Close the push, which can no longer be undone."""
        self._saved = None

    def undo(self) -> None:
        """Undo the open push. Its values in the rings stay; they lie beyond the next sequence number."""
        for column_id, chunks in (self._saved or {}).items():
            self._logs[column_id].chunks = chunks
        self._saved = None

    def keeps_nulls(self, i: int, k: int) -> bool:
        """Return whether column k of stream i has a validity ring, because it has had a null."""
        return (i, k) in self._valid

    def append(self, i: int, k: int, column: pa.Array, slices: Slices) -> None:
        """Write column k of the rows of stream i to its ring; `slices` comes from `Modules.ring_slices`.

        The first null of a column creates its validity ring, which moves the rings of its stream. Raises CapacityError.
        """
        column_id = (i, k)
        if column.null_count and column_id not in self._valid:
            self.allowance.ask(-(-self.room[i] // 64) * 64, "room for the nulls of a column")
            self._layout([i], self._ring, self._valid, null_rings=[*self._null_rings, column_id])
        written = [(self._ring[column_id], _bytes_of(column, self._width[column_id]))]
        if column_id in self._valid:
            written.append((self._valid[column_id], np.asarray(pc.is_valid(column).cast(pa.uint8())).reshape(-1, 1)))
        for ring, values in written:
            for slots, rows in slices:
                ring[slots] = values[rows]

    def append_log(self, i: int, k: int, column: pa.Array, first: int) -> None:
        """Append column k of rows of stream i, the first of which is arrival `first`. Raises `plain_types.TOO_LONG`."""
        self._logs[i, k].append(first, to_plain(column))

    # All contents

    def window(self, i: int, low: int, following: int, base: int) -> list[Column]:
        """Return the kept columns of tuples low .. following - 1 of stream i, copied, in their plain types.

        base   arrival number - sequence number of the stream
        """
        n, mask = following - low, self.room[i] - 1

        def live(ring: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
            first = low & mask
            return np.concatenate([ring[first : first + n], ring[: max(0, first + n - len(ring))]])

        columns: list[Column] = []
        for k, kind in enumerate(self.kinds[i]):
            if (i, k) in self._logs:
                columns.append(self._logs[i, k].span(low + base, n))
                continue
            values, bits = live(self._ring[i, k]), None
            if (i, k) in self._valid:
                valid = live(self._valid[i, k]).reshape(-1)
                # The ring may have been created for a null of a tuple that is no longer live.
                bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
            if (i, k) in self._bools:
                values = np.packbits(values.reshape(-1), bitorder="little")
            columns.append(pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(values)]))
        return columns

    def fill(self, room: list[int], firsts: list[int], columns: list[list[Column]]) -> None:
        """Replace all contents by these columns of tuples 0, 1, … of each stream, as `window` returns them.

        room     slots of the rings
        firsts   per stream, the arrival number of its tuple 0
        columns  per stream its kept columns, or an empty list if the stream has no tuples; the columns are copied
        """
        null_rings = [(i, k) for i, k in self._rings if columns[i] and columns[i][k].null_count]
        self._layout(range(len(room)), {}, {}, list(room), list(room), null_rings)
        for i, k in self._column_ids:
            if not columns[i]:
                continue
            column, width = columns[i][k], self._width[i, k]
            if (i, k) in self._logs:
                first = firsts[i]
                for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                    self._logs[i, k].append(first, merged([chunk]))
                    first += len(chunk)
                continue
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if column.null_count:
                self._valid[i, k][: len(column), 0] = np.asarray(pc.is_valid(column).cast(pa.uint8()))
            self._ring[i, k][: len(column)] = _bytes_of(column, width)

    def turn(self, i: int, slots: int) -> None:
        """Rotate the rings of stream i: the value in slot s moves to slot s + slots."""
        for rings in (self._ring, self._valid):
            for (j, _), ring in rings.items():
                if j == i:
                    ring[:] = np.roll(ring, slots, axis=0)

    def expire(self, lows: Iterable[int]) -> None:
        """Drop arrivals below lows[i] of each stream i."""
        if self._logs:
            low = list(lows)
            for (i, _), log in self._logs.items():
                log.drop_before(low[i])

    # Results

    def described(self, columns: Sequence[ColumnId]) -> npt.NDArray[np.int64] | None:
        """Return what the kernel `gather` needs for some columns, which holds while `laid_out` does not change.

        None if one of them is no plain ring: it has strings or the like, booleans, or has had a null.
        """
        plain = dict(zip(self._rings, self._whole.described, strict=False))
        if not columns or any(
            column not in plain or column in self._bools or column in self._valid for column in columns
        ):
            return None
        rows = np.stack([plain[column] for column in columns])
        laid_out(rows)
        return rows

    def gather(
        self,
        ids: npt.NDArray[np.int32],
        n: int,
        bases: npt.NDArray[np.int64],
        absent: npt.NDArray[np.bool_] | None = None,
        streams: Sequence[int] | None = None,
        columns: frozenset[ColumnId] | None = None,
    ) -> dict[ColumnId, Column]:
        """Return the kept columns of the components of n results, by (stream, column), in the types of `kinds`.

        A column that does not fit in one array comes in several. One kernel call gathers all columns in rings; each
        other column takes one call of Arrow's take.

        ids     int32[n * streams], sequence numbers, result by result
        bases   int64[streams], arrival number - sequence number
        absent  bool[n, streams], components that a result lacks; its columns of them are null
        streams the streams of the components, in their order; None = all. Then `ids` and `bases` have only those
        columns the columns to return, if `streams` are given
        """
        whole = self._whole
        if streams is not None:
            chosen = tuple(streams), columns or frozenset()
            if chosen not in self._parts:
                self._parts[chosen] = whole.part(*chosen)
            whole = self._parts[chosen]
        lacking = [] if absent is None else [i for i in range(len(self.kinds)) if absent[:, i].any()]
        room = aligned(n)
        starts = [room * before for before in whole.before]
        # Arrow's pool reuses memory that is already mapped; fresh pages would cost more than the copy.
        memory = pa.allocate_buffer(starts[-1])
        gather(whole.described, ids, len(whole.places), n, memory.address, room, 0)
        found: dict[ColumnId, Column] = {}
        bits: dict[ColumnId, pa.Buffer] = {}
        for column_id, start in zip(whole.nulls, starts[len(whole.rings) :], strict=False):
            bits[column_id] = _packed(memory, start, n)
        for i, k in whole.rings:
            if i in lacking:
                assert absent is not None
                present = ~absent[:, i]
                if (i, k) in bits:
                    present &= np.unpackbits(np.frombuffer(bits[i, k], np.uint8), count=n, bitorder="little") != 0
                bits[i, k] = pa.py_buffer(np.packbits(present, bitorder="little"))
        for column_id, start in zip(whole.rings, starts, strict=False):
            kind = self.kinds[column_id[0]][column_id[1]]
            if column_id in self._bools:
                values = _packed(memory, start, n)
            else:
                values = memory.slice(start, n * self._width[column_id])
            found[column_id] = pa.Array.from_buffers(kind, n, [bits.get(column_id), values])
        for i, k in whole.logs:
            log, place = self._logs[i, k], whole.places[i]
            seqs = ids[: n * len(whole.places)].reshape(n, len(whole.places))[:, place]
            if i in lacking:
                assert absent is not None
                found[i, k] = declared(_spread(log, seqs + bases[place], ~absent[:, i]), self.kinds[i][k])
            else:
                found[i, k] = declared(log.take(seqs + bases[place]), self.kinds[i][k])
        return found
