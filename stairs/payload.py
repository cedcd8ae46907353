"""Payload columns of the live windows, kept in Arrow's memory layout and gathered only for results.

A column of fixed width lies in a ring of values (`stairs.rings`). The kernels know the rings by address, so that one
call gathers all columns of all results into buffers that become the Arrow arrays of the output without another copy.
Columns of other types (strings, lists, structs, …) are kept as Arrow arrays of their plain type (`stairs.chunk_log`,
`stairs.plain_types`) and gathered by Arrow's take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stairs.caches import VersionMove
from stairs.chunk_log import ChunkLog, KeptArray
from stairs.gathered import ColumnId, Gathered, laid_out
from stairs.kernels.payload import P_FIELDS, P_MASK, P_RING, P_STREAM, P_STRIDE, P_WIDTH, gather
from stairs.memory.allowance import Allowance
from stairs.memory.spill import FullDiskError, SpillDirectory, disk_reads
from stairs.plain_types import Column, declared, merged, plain, to_plain
from stairs.rings import ColumnRings, FileRings, MemoryRings, aligned, make_rings, ring_bytes
from stairs.storage.parts import Parts, Plain

_BOOL = pa.bool_()
SPAN = 1 << 16
"""The tuples in files whose columns are copied together where all of a window are read."""
SELDOM = 100
"""One result in so many may wait for the disk."""
AHEAD = 4096
"""The results whose rows are asked for while those before them are gathered."""
COLD = 16
"""The gathers after one that waited for the disk that ask for their rows ahead; the next one waits, or finds them."""


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


def _written(column: pa.Array, width: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8] | None]:
    """Return the values of a column as they lie in its ring, and a byte for each, 1 = valid; None = all are."""
    valid = None if not column.null_count else np.asarray(pc.is_valid(column).cast(pa.uint8())).reshape(-1, 1)
    return _bytes_of(column, width), valid


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
    addresses   address of each ring to which a kernel may write values as they are
    laid_out    number of times the rings moved: addresses hold while it does not change

    Memory: O(room * bytes of a row), plus the Arrow arrays of the other columns; with `spill`, those of large windows
    lie in files.
    """

    room: list[int]
    addresses: dict[ColumnId, int]
    laid_out: int
    moves: int = 0
    """The number of compactions of tables that the columns have followed."""
    _rings: list[ColumnRings]
    _in_files: bool
    _whole: Gathered
    _parts: dict[tuple[tuple[int, ...], frozenset[ColumnId]], Gathered]

    def __init__(
        self,
        kinds: list[list[pa.DataType]],
        room: list[int],
        allowance: Allowance | None = None,
        spill: SpillDirectory | None = None,
    ) -> None:
        self.kinds, self.spill = kinds, spill
        self.allowance = Allowance() if allowance is None else allowance
        self.allowance.parts.append(self._counted)
        self._column_ids = [(i, k) for i, types in enumerate(kinds) for k in range(len(types))]
        self._widths = [{k: width for k, kind in enumerate(types) if (width := fixed_width(kind))} for types in kinds]
        self._logs = {
            (i, k): ChunkLog(plain(kinds[i][k]), spill) for i, k in self._column_ids if k not in self._widths[i]
        }
        self._bools = {(i, k) for i, k in self._column_ids if kinds[i][k] == _BOOL}
        self._saved: dict[ColumnId, list[KeptArray]] | None = None
        self._cold = 0
        """The number of gathers to come that ask for rows in files ahead: many were not in memory."""
        self.laid_out = 0
        rings = [make_rings(widths, [], slots, None, spill) for widths, slots in zip(self._widths, room, strict=True)]
        vars(self).update(self._laid(rings))

    # Memory

    def _laid(self, rings: list[ColumnRings]) -> dict[str, Any]:
        """Return the attributes for new rings: all changes take effect in one statement."""
        places = [(i, k) for i, stream_rings in enumerate(rings) for k in stream_rings.values]
        nulls = [(i, k) for i, stream_rings in enumerate(rings) for k in stream_rings.valid]
        array = np.zeros((len(places) + len(nulls), P_FIELDS), np.int64)
        views = [*(rings[i].values[k] for i, k in places), *(rings[i].valid[k] for i, k in nulls)]
        for row, (i, _), ring in zip(array, [*places, *nulls], views, strict=True):
            row[P_STREAM], row[P_WIDTH], row[P_MASK] = i, ring.shape[1], rings[i].room - 1
            row[P_RING], row[P_STRIDE] = ring.ctypes.data, ring.strides[0]
        addresses = zip(places, array[:, P_RING].tolist(), strict=False)
        plain = {(i, k) for i, k in places if not (k in rings[i].nulls or (i, k) in self._bools or rings[i].file_bytes)}
        streams = {i: i for i in range(len(self.kinds))}
        return {
            "room": [stream_rings.room for stream_rings in rings],
            "_rings": rings,
            "_in_files": any(stream_rings.file_bytes for stream_rings in rings),
            "_parts": {},
            "_whole": Gathered(array, laid_out(array), places, nulls, list(self._logs), streams),
            "addresses": {column: address for column, address in addresses if column in plain},
            "laid_out": self.laid_out + 1,
        }

    def _replace(self, i: int, rings: ColumnRings) -> None:
        """Replace the rings of stream i, in one statement."""
        vars(self).update(self._laid([*self._rings[:i], rings, *self._rings[i + 1 :]]))

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes. Arrow arrays that share memory are copied first."""
        for log in self._logs.values():
            log.compact()
        return {
            "nulls": [[i, k] for i, rings in enumerate(self._rings) for k in rings.nulls],
            "rings": [rings.in_memory().block for rings in self._rings],
            "logs": [
                [
                    {"first": chunk.first, "values": merged([chunk.values]) if chunk.filed else chunk.values}
                    for chunk in log.chunks
                ]
                for log in self._logs.values()
            ],
        }

    def load_parts(self, parts: Parts, room: list[int]) -> None:
        """Resume from the parts of a payload of the same columns, with room[i] slots of stream i. Raises StateError."""
        nulls = [(i, k) for i, k in parts.rows("nulls", None, 2)]
        known = {(i, k) for i, widths in enumerate(self._widths) for k in widths}
        parts.require(len(set(nulls)) == len(nulls) and set(nulls) <= known, f"nulls of columns {nulls}")
        by_stream = [[k for j, k in nulls if j == i] for i in range(len(room))]
        sizes = [(ring_bytes(*shape),) for shape in zip(self._widths, by_stream, room, strict=True)]
        blocks = parts.arrays("rings", np.uint8, sizes)
        chunks = []
        for log, saved in zip(self._logs.values(), parts.lists("logs", len(self._logs)), strict=True):
            chunks.append([KeptArray(chunk.integer("first"), chunk.arrow("values", log.kind)) for chunk in saved])
        for log, loaded in zip(self._logs.values(), chunks, strict=True):
            log.chunks = loaded
        rings: list[ColumnRings] = [
            MemoryRings(widths, null_columns, slots, slots, block)
            for widths, null_columns, slots, block in zip(self._widths, by_stream, room, blocks, strict=True)
        ]
        vars(self).update(self._laid(rings))

    def _counted(self) -> int:
        return self.nbytes

    def resize(self, i: int, room: int, low: int, following: int, most: Sequence[int] = ()) -> None:
        """Change the rings of stream i to `room` slots; tuples low .. following - 1 keep their values.

        O(slots of the stream). Large rings can then grow in place, up to the `most` slots that are given for their
        streams. Raises CapacityError if the disk is full.
        """
        self._replace(i, self._rings[i].resized(room, low, following, most[i] if most else room, self.spill))

    def copied(self) -> Payload:
        """Return payload with the same columns, which share their memory until one of both moves; it has no bound."""
        other = copy(self)
        other.allowance = Allowance()
        other.allowance.parts.append(other._counted)
        return other

    def follow(self, move: VersionMove, base: int) -> None:
        """Follow the compaction of a table, in one statement. Between two pushes. O(rings of the table).

        base   arrival number - sequence number of the stream

        The compaction has happened, so a full disk must not fail this: rows then stay in memory until the rings grow.
        """
        try:
            self._follow(move, base, self.spill)
        except FullDiskError:
            self._follow(move, base, None)

    def _follow(self, move: VersionMove, base: int, spill: SpillDirectory | None) -> None:
        i = move.stream
        alive = move.low + np.flatnonzero(move.to >= 0)
        logs = dict(self._logs)
        for column_id in [known for known in logs if known[0] == i]:
            log, first = ChunkLog(logs[column_id].kind, spill), move.first + base
            values_left = logs[column_id].take(alive + base)
            for chunk in values_left.chunks if isinstance(values_left, pa.ChunkedArray) else [values_left]:
                if len(chunk):
                    log.append(first, chunk)
                    first += len(chunk)
            logs[column_id] = log
        # Without room to grow: if the new memory has been in use, the whole of it is cleared.
        moved = self._rings[i].reordered(alive, move.first, spill)
        laid = self._laid([*self._rings[:i], moved, *self._rings[i + 1 :]])
        vars(self).update({**laid, "_logs": logs, "moves": self.moves + 1})

    @property
    def nbytes(self) -> int:
        """Bytes of all rings and arrays kept in memory."""
        return sum(rings.nbytes for rings in self._rings) + sum(log.nbytes for log in self._logs.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of all rings and arrays kept in files."""
        return sum(rings.file_bytes for rings in self._rings) + sum(log.file_bytes for log in self._logs.values())

    def bytes_of(self, i: int) -> int:
        """Return the bytes of the columns of stream i in memory, without the padding of the rings."""
        rings = self._rings[i]
        values = 0 if rings.file_bytes else rings.room * (sum(rings.widths.values()) + len(rings.nulls))
        return values + self.logged_bytes(i)

    def logged_bytes(self, i: int) -> int:
        """Return the bytes of the columns of stream i that are kept as Arrow arrays in memory."""
        return sum(log.nbytes for (j, _), log in self._logs.items() if j == i)

    def growth(self, rooms: Sequence[int]) -> int:
        """Return the bytes by which memory grows when the rings of each stream i get rooms[i] slots."""
        return sum(
            (0 if rings.in_file(room, self.spill) else ring_bytes(rings.widths, rings.nulls, room)) - rings.nbytes
            for rings, room in zip(self._rings, rooms, strict=True)
            if room != rings.room
        )

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
        return k in self._rings[i].nulls

    def append(self, i: int, k: int, column: pa.Array, slot: int) -> None:
        """Write column k of rows of stream i to its ring, from a slot on. Raises CapacityError.

        The first null of a column creates its validity ring, which moves the rings of its stream.
        """
        rings = self._rings[i]
        if column.null_count and k not in rings.nulls:
            if not rings.file_bytes:
                self.allowance.ask(aligned(rings.room), "room for the nulls of a column")
            self._replace(i, rings.with_nulls(k))
        self._rings[i].append(k, slot, *_written(column, self._widths[i][k]))

    def append_log(self, i: int, k: int, column: pa.Array, first: int) -> None:
        """Append column k of rows of stream i, the first of which is arrival `first`. Raises `plain_types.TOO_LONG`."""
        self._logs[i, k].append(first, to_plain(column))

    # All contents

    def window(self, i: int, low: int, following: int, base: int) -> list[Column]:
        """Return the kept columns of tuples low .. following - 1 of stream i, copied, in their plain types.

        base   arrival number - sequence number of the stream
        """
        rings, n = self._rings[i], following - low
        first = low & (rings.room - 1)

        def live(ring: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
            return np.concatenate([ring[first : first + n], ring[: max(0, first + n - len(ring))]])

        columns: list[Column] = []
        for k, kind in enumerate(self.kinds[i]):
            if (i, k) in self._logs:
                columns.append(self._logs[i, k].span(low + base, n))
                continue
            values, bits = live(rings.values[k]), None
            if k in rings.valid:
                valid = live(rings.valid[k]).reshape(-1)
                # The ring may have been created for a null of a tuple that is no longer live.
                bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
            if (i, k) in self._bools:
                values = np.packbits(values.reshape(-1), bitorder="little")
            columns.append(pa.Array.from_buffers(kind, n, [bits, pa.py_buffer(values)]))
        return columns

    def windows(self, i: int, low: int, following: int, base: int) -> Iterator[list[Column]]:
        """Yield what `window` returns: at once, or some tuples after the others if rows are in files."""
        span = SPAN if self.file_bytes else following - low
        for first in range(low, following, max(span, 1)):
            yield self.window(i, first, min(first + span, following), base)

    def fill(
        self, room: list[int], firsts: list[int], columns: list[list[Column]], slots: Sequence[int] | None = None
    ) -> None:
        """Replace all contents by these columns of tuples 0, 1, … of each stream, as `window` returns them.

        room     slots of the rings
        firsts   per stream, the arrival number of its tuple 0
        columns  per stream its kept columns, or an empty list if the stream has no tuples; the columns are copied
        slots    per stream, the slot of its tuple 0; None = 0
        """
        filled: list[ColumnRings] = []
        for i, kept in enumerate(columns):
            nulls = [k for k in self._widths[i] if kept and kept[k].null_count]
            rings = make_rings(self._widths[i], nulls, room[i], None, self.spill)
            slot, first = 0 if slots is None else slots[i], firsts[i]
            # Columns may come in pieces of different lengths.
            for batch in pa.Table.from_arrays(kept, names=list(map(str, range(len(kept))))).to_batches():
                rings.put(slot, {k: _written(batch.column(k), width) for k, width in self._widths[i].items()})
                for k in range(len(kept)):
                    if (i, k) in self._logs:
                        self._logs[i, k].append(first, merged([batch.column(k)]))
                slot, first = (slot + len(batch)) & (room[i] - 1), first + len(batch)
            filled.append(rings)
        vars(self).update(self._laid(filled))

    def expire(self, lows: Iterable[int]) -> None:
        """Drop arrivals below lows[i] of each stream i."""
        if self._logs:
            low = list(lows)
            for (i, _), log in self._logs.items():
                log.drop_before(low[i])

    # Results

    def described(self, columns: Sequence[ColumnId]) -> npt.NDArray[np.int64] | None:
        """Return what the kernel `gather` needs for some columns, which holds while `laid_out` does not change.

        None if one of them is no plain ring: it has strings or the like, booleans, has had a null, or lies in a file.
        """
        if not columns or any(column not in self.addresses for column in columns):
            return None
        described = dict(zip(self._whole.rings, self._whole.described, strict=False))
        rows = np.stack([described[column] for column in columns])
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
        self._gather(whole, ids, n, memory.address, room)
        gathered: dict[ColumnId, Column] = {}
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
                values = memory.slice(start, n * self._widths[column_id[0]][column_id[1]])
            gathered[column_id] = pa.Array.from_buffers(kind, n, [bits.get(column_id), values])
        for i, k in whole.logs:
            log, place = self._logs[i, k], whole.places[i]
            seqs = ids[: n * len(whole.places)].reshape(n, len(whole.places))[:, place]
            if i in lacking:
                assert absent is not None
                gathered[i, k] = declared(_spread(log, seqs + bases[place], ~absent[:, i]), self.kinds[i][k])
            else:
                gathered[i, k] = declared(log.take(seqs + bases[place]), self.kinds[i][k])
        return gathered

    def _gather(self, whole: Gathered, ids: npt.NDArray[np.int32], n: int, out: int, room: int) -> None:
        """Call the kernel, and ask for rows in files ahead if many rows of the last gathers came from the disk.

        A gather waits for one page after another, and a disk reads many at a time. To ask for pages that are in memory
        costs about as much as to gather their rows, so only gathers after a slow one do. They ask for the rows of the
        next results while they gather some, so that few pages wait to be read.
        """
        width = len(whole.places)
        if not self._in_files:
            gather(whole.described, ids, width, n, out, room, 0)
            return
        if not self._cold:
            before = disk_reads()
            gather(whole.described, ids, width, n, out, room, 0)
            if disk_reads() - before > n // SELDOM:
                self._cold = COLD
            return
        self._cold -= 1
        files = {place: rings for i, place in whole.places.items() if isinstance(rings := self._rings[i], FileRings)}
        for first in range(-AHEAD, n, AHEAD):
            following = ids[(first + AHEAD) * width : min(first + 2 * AHEAD, n) * width].reshape(-1, width)
            for place, rings in files.items():
                rings.fetch(following[:, place])
            if first >= 0:
                gather(whole.described, ids[first * width :], width, min(AHEAD, n - first), out, room, first)
