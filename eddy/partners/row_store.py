"""The rows that results may still need: payload and event times, by arrival number.

The inner joins keep no payload. A row stays in the row store as long as the row is live in an inner join, or is a
component of an entry of a ledger. The row store looks for rows that are not needed only when a ring is full and enough
rows have arrived to justify the cost of reading all entries. The new ring is at least twice as large as the rows that
it keeps.

The place of a row of a stream is its arrival number. A version of a table may stay for ever, so a ring of which most
versions are dead is compacted: the living ones move to the last places before that of the next arrival, in their order,
and the row store notes the arrival number of each place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals
from eddy.ingest.loader import Loader, sources_of
from eddy.partners.rows import Int64s
from eddy.query.query import Query
from stairs.caches import VersionMove
from stairs.descriptors import J_FIELDS, J_FIRST
from stairs.kernels.rows import to_places, to_sequence_numbers
from stairs.memory.allowance import Allowance
from stairs.memory.spill import SpillDirectory
from stairs.payload import Payload
from stairs.plain_types import Column
from stairs.storage.parts import Parts, Plain, powers_of_two

LEAST_ROOM = 64


class RowStore:
    """The rows of all streams of a query.

    following, low   per stream the arrival number of its next row, and the place of the oldest row kept
    columns          per stream, the payload columns
    numbers          per table the arrival numbers of the versions kept, ascending, and room for more
    """

    def __init__(
        self, query: Query, columns: list[list[str]], allowance: Allowance, spill: SpillDirectory | None = None
    ) -> None:
        self.query, self.columns, self._allowance = query, columns, allowance
        n = len(query.streams)
        self.following, self.low = [0] * n, [0] * n
        kinds = [[query.streams[i].type_of(column) for column in names] for i, names in enumerate(columns)]
        self.payload = Payload(kinds, [LEAST_ROOM] * n, None, spill)
        self.numbers = {i: np.zeros(0, np.int64) for i in query.tables_at}
        self._settled = dict.fromkeys(query.tables_at, 0)
        """Per table the versions kept after its last compaction, or when most of them lived."""
        self._dense = dict.fromkeys(query.tables_at, 0)
        """Per table the index in `numbers` from which on the numbers are consecutive."""
        self._times: list[Int64s] = [np.zeros(LEAST_ROOM if query.graph.timed else 0, np.int64) for _ in range(n)]
        # The loader writes to the places in these attributes; a query with branches has no keys of its own.
        self._rows: Int64s = np.zeros((J_FIELDS, n), np.int64)
        place = SimpleNamespace(
            ring_slices=self._slices,
            first_arrival=lambda i: self.following[i],
            opening=SimpleNamespace(rows=self._rows),
        )
        self._place = place
        self._loader = self._loader_of(self.payload)
        self._elsewhere = frozenset(join.table for join in query.as_of_joins)
        """The versioned tables, whose rows are kept in logs of their own."""
        self._saved: list[int] | None = None
        self._since = 0
        """Rows that arrived since the oldest needed rows were last determined."""

    def _loader_of(self, payload: Payload) -> Loader:
        return Loader(sources_of(self.query, self.columns), self._place, payload)  # type: ignore[arg-type]

    @property
    def _room(self) -> list[int]:
        return self.payload.room

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.payload.nbytes + sum(ring.nbytes for ring in (*self._times, *self.numbers.values()))

    def _slices(self, i: int, n: int) -> list[tuple[slice, slice]]:
        first = self.following[i] & (self._room[i] - 1)
        head = min(n, self._room[i] - first)
        slices = [(slice(first, first + head), slice(0, head))]
        return slices if head == n else [*slices, (slice(0, n - head), slice(head, n))]

    def load(self, arrivals: Arrivals, lows: Callable[[], Int64s], cost: int) -> None:
        """Take the rows of a push, which may be undone.

        lows   returns the oldest row of each stream that is needed
        cost   number of entries that `lows` reads
        """
        self._saved = list(self.following)
        self.payload.begin()
        self._pass_by()
        rows = [0 if i in self._elsewhere else n for i, n in enumerate(arrivals.rows)]
        batches = [None if i in self._elsewhere else batch for i, batch in enumerate(arrivals.batches)]
        self._number(arrivals.rows)
        full = [i for i, n in enumerate(rows) if self.following[i] + n - self.low[i] > self._room[i]]
        self._since += sum(rows)
        if full and self._since >= 2 * cost:
            self._since = 0
            # Rows that are not needed now are also not needed after the push was undone.
            self.low = [min(int(low), end) for low, end in zip(lows(), self.following, strict=True)]
            self.payload.expire(self.low)
        rooms = list(self._room)
        for i in full:
            least = self.following[i] + rows[i] - self.low[i]
            rooms[i] = max(rooms[i], 1 << (2 * least - 1).bit_length())
        # An undo leaves larger rings as they are, so the bound is asked before.
        times = 8 * (sum(rooms) - sum(map(len, self._times))) if self.query.graph.timed else 0
        if rooms != self._room:
            self._allowance.ask(self.payload.growth(rooms) + times, "rows kept for branches")
        for i in full:
            if rooms[i] > self._room[i]:
                self.payload.resize(i, rooms[i], self.low[i], self.following[i])
        self._fit_times()
        self._rows[J_FIRST] = self.following
        self._loader.load(Arrivals(batches, rows, arrivals.order, [None] * len(rows), {}))
        if sum(rows):
            self._allowance.ask(0, "what was pushed")
        for i, ticks in enumerate(arrivals.times):
            if ticks is not None and i not in self._elsewhere:
                for slots, part in self._slices(i, rows[i]):
                    self._times[i][slots] = ticks[part]
        self.following = [end + n for end, n in zip(self.following, arrivals.rows, strict=True)]

    def _number(self, rows: Sequence[int]) -> None:
        """Note the arrival numbers of the changes of a push."""
        for i, known in self.numbers.items():
            held, first = self.following[i] - self.low[i], self.following[i]
            if held + rows[i] > len(known):
                self._allowance.ask(16 * (held + rows[i]) - known.nbytes, "versions kept for branches")
                longer = np.zeros(2 * (held + rows[i]), np.int64)
                longer[:held] = known[:held]
                self.numbers[i] = known = longer
            known[held : held + rows[i]] = np.arange(first, first + rows[i])

    @property
    def before(self) -> list[int]:
        """The arrival number of the next row of each stream, before the open push."""
        return self.following if self._saved is None else self._saved

    def kept(self, i: int) -> Int64s:
        """Return the arrival numbers of the versions of table i that are kept, ascending."""
        return self.numbers[i][: self.following[i] - self.low[i]]

    def crowded(self, i: int) -> bool:
        """Return whether table i has had as many changes, since its dead versions left, as it kept versions then."""
        return self.following[i] - self.low[i] >= 2 * max(self._settled[i], LEAST_ROOM)

    def compact(self, i: int, living: Int64s) -> None:
        """Keep only the versions of table i that live, in one statement; between two pushes. O(all rows kept).

        living   their arrival numbers, ascending
        """
        low, end = self.low[i], self.following[i]
        first = end - len(living)
        to = np.full(end - low, -1, np.int64)
        to[np.searchsorted(self.kept(i), living)] = np.arange(first, end)
        payload = self.payload.copied()
        payload.follow(VersionMove(i, low, to, first), 0)
        vars(self).update(
            payload=payload,
            _loader=self._loader_of(payload),
            low=[*self.low[:i], first, *self.low[i + 1 :]],
            numbers={**self.numbers, i: living},
            _settled={**self._settled, i: len(living)},
            _dense={**self._dense, i: len(living)},
        )

    def _places(self, rows: Int64s) -> Int64s:
        """Return rows with the places of their components in place of arrival numbers."""
        if not self.numbers:
            return rows
        rows = rows.copy()
        for i in self.numbers:
            to_places(rows, i, self.kept(i), self._dense[i], self.low[i])
        return rows

    def _places_of(self, i: int, numbers: Int64s) -> Int64s:
        """Return the places of rows of stream i; -1 = none stays."""
        if i not in self.numbers:
            return numbers
        places = numbers.reshape(-1, 1).copy()
        to_places(places, 0, self.kept(i), self._dense[i], self.low[i])
        return places.reshape(-1)

    def _pass_by(self) -> None:
        """Leave out the rows of versioned tables, which only have numbers here."""
        for i in self._elsewhere:
            self.low[i] = self.following[i]

    def _fit_times(self) -> None:
        """Give each ring of event times as many slots as the payload of its stream has."""
        for i, room in enumerate(self._room if self.query.graph.timed else ()):
            if len(self._times[i]) != room:
                numbers = np.arange(self.low[i], self.following[i])
                times = np.zeros(room, np.int64)
                times[numbers & (room - 1)] = self.times(i, numbers)
                self._times[i] = times

    def commit(self) -> None:
        """Close the push."""
        self.payload.commit()
        self._saved = None
        self._pass_by()

    def undo(self) -> None:
        """Undo the open push. The call may be repeated."""
        self.payload.undo()
        if self._saved is not None:
            self.following, self._saved = self._saved, None

    def times(self, i: int, numbers: Int64s) -> Int64s:
        """Return the event times of rows of stream i."""
        return self._times[i][numbers & (len(self._times[i]) - 1)]

    def gather(self, rows: Int64s) -> dict[tuple[int, int], Column]:
        """Return the payload columns of results, int64[n, streams], by (stream, column); -1 = a null component."""
        n, m = rows.shape
        bases = np.array([low // room * room for low, room in zip(self.low, self._room, strict=True)], np.int64)
        ids, absent = np.empty(n * m, np.int32), np.zeros((n, m), np.bool_)
        any_absent = to_sequence_numbers(self._places(rows), bases, ids, absent)
        return self.payload.gather(ids, n, bases, absent if any_absent else None)

    def column_batch(self, i: int, names: list[str], numbers: Int64s) -> pa.RecordBatch:
        """Return columns of rows of stream i as a batch; -1 = a null row."""
        absent, base = numbers < 0, self.low[i] // self._room[i] * self._room[i]
        ids = np.where(absent, 0, self._places_of(i, numbers) - base).astype(np.int32)
        lacking = np.zeros((len(ids), len(self.columns)), np.bool_)
        lacking[:, i] = absent
        wanted = {name: (i, self.columns[i].index(name)) for name in names}
        columns = self.payload.gather(
            ids, len(ids), np.array([base]), lacking if absent.any() else None, [i], frozenset(wanted.values())
        )
        whole = [columns[place] for place in wanted.values()]
        arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in whole]
        return pa.RecordBatch.from_arrays(arrays, names=list(wanted))

    # Parts for another process

    def to_parts(self) -> Plain:
        """Return all parts from which `load_parts` resumes."""
        return {
            "following": self.following,
            "low": self.low,
            "since": self._since,
            "room": self._room,
            "payload": self.payload.to_parts(),
            "times": self._times,
            "numbers": [self.kept(i) for i in self.numbers],
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of a row store of the same query. Raises StateError for parts that do not fit."""
        n = len(self.following)
        following, low, room = (parts.integers(name, n) for name in ("following", "low", "room"))
        fits = all(0 <= end - first <= slots for first, end, slots in zip(low, following, room, strict=True))
        parts.require(fits and powers_of_two(room), f"rows {low} to {following} in {room} slots")
        times = parts.arrays("times", np.int64, [(slots * self.query.graph.timed,) for slots in room])
        tables = list(self.numbers)
        numbers = parts.arrays("numbers", np.int64, [(following[i] - low[i],) for i in tables])
        for i, arrived in zip(tables, numbers, strict=True):
            rising = bool((np.diff(arrived) > 0).all()) and (
                not len(arrived) or 0 <= arrived[0] <= arrived[-1] < following[i]
            )
            parts.require(rising, f"table {i} keeps versions whose arrival numbers do not rise, or have not arrived")
        self.numbers, self._settled = dict(zip(tables, numbers, strict=True)), dict.fromkeys(tables, 0)
        self._dense = {i: len(table_numbers) for i, table_numbers in self.numbers.items()}
        self.payload.load_parts(parts.part("payload"), room)
        self.following, self.low, self._since, self._times = following, low, parts.integer("since"), times

    # Snapshots

    def window(self, i: int, low: int) -> tuple[Int64s, Iterator[list[Column]]]:
        """Return the event times, and the columns in pieces, of the rows of stream i from `low` on."""
        base = low // self._room[i] * self._room[i]
        columns = self.payload.windows(i, low - base, self.following[i] - base, base)
        numbers = np.arange(low, self.following[i] if self.query.graph.timed else low)
        times = self.times(i, numbers) if len(numbers) else numbers
        return times, columns

    def fill(
        self,
        firsts: list[int],
        counts: list[int],
        times: list[Int64s],
        columns: list[list[Column]],
        numbers: dict[int, Int64s],
    ) -> None:
        """Fill an empty row store with what `window` and `kept` returned: counts[i] rows of stream i from firsts[i]."""
        self.numbers, self._settled = numbers, {i: len(table_numbers) for i, table_numbers in numbers.items()}
        self._dense = dict(self._settled)
        self.low, self.following = list(firsts), [first + n for first, n in zip(firsts, counts, strict=True)]
        rooms = [1 << (2 * max(n, LEAST_ROOM) - 1).bit_length() for n in counts]
        slots = [first & (room - 1) for first, room in zip(firsts, rooms, strict=True)]
        self.payload.fill(rooms, firsts, columns, slots)
        for i, (first, room) in enumerate(zip(firsts, rooms, strict=True)):
            if self.query.graph.timed:
                self._times[i] = np.zeros(room, np.int64)
                self._times[i][np.arange(first, self.following[i]) & (room - 1)] = times[i]
