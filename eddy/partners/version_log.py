"""The versions of one versioned table: their columns, and the chain of each key in the order of event time.

Versions are numbered in the order of their arrival. A push appends versions, and `cut` removes them again. Versions
that no row can get stay until `compacted` makes a log of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.directory import SlotDirectory, numbered
from eddy.ingest.keys import KeyEncoder
from eddy.partners.rows import Int64s
from eddy.partners.version_kernels import (
    BACKWARD,
    DIRECTIONS,
    FORWARD,
    R_FIELDS,
    find_versions,
    insert_versions,
    mark_needed,
    remove_versions,
)
from eddy.query.as_of import AsOfJoin
from eddy.query.query import Query
from eddy.storage.arrow_bytes import write_rows
from eddy.streams.key_types import text_words
from stairs.bytes_directory import BytesDirectory
from stairs.errors import InputError, StateError
from stairs.graph import FOREVER
from stairs.kernels.stable_hashes import mix_words
from stairs.payload import Payload, fixed_width
from stairs.plain_types import Column, plain, taken
from stairs.storage.parts import Parts, Plain

LEAST_ROOM = 64
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]


class VersionLog:
    """The versions of the table of one as-of join.

    join     the as-of join
    columns  the columns that are kept, those of the key among them
    n        the number of versions
    """

    def __init__(self, query: Query, join: AsOfJoin, columns: Sequence[str]) -> None:
        self.query, self.join, self.columns = query, join, list(columns)
        table = query.streams[join.table]
        self._kinds = [table.type_of(column) for column in columns]
        self._encoders = [KeyEncoder(table.name, [[key.key]], [key.kind]) for key in join.keys]
        self._probing = [KeyEncoder(query.streams[key.stream].name, [[key.column]], [key.kind]) for key in join.keys]
        self._texts = [{word: BytesDirectory() for word in text_words([key.kind])} for key in join.keys]
        self._direction, self._tolerance = DIRECTIONS.index(join.direction), -1
        if join.tolerance is not None:
            self._tolerance = join.tolerance
        self._directory = SlotDirectory(sum(encoder.width for encoder in self._encoders), 1)
        self._heads = np.full(self._directory.capacity, -1, np.int64)
        self._rests = np.zeros((len(self._heads), R_FIELDS), np.int64)
        self._searches = 0
        self._payload = Payload([self._kinds], [LEAST_ROOM])
        self._times, self._links, self._keys, self._numbers = (np.zeros(LEAST_ROOM, np.int64) for _ in range(4))
        self._gone = np.zeros(LEAST_ROOM, np.uint8)
        self.n = self._settled = 0

    @property
    def room(self) -> int:
        """The number of versions for which there is room."""
        return len(self._times)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self._heads, self._rests, self._times, self._links, self._keys, self._numbers, self._gone)
        texts = sum(directory.nbytes for directories in self._texts for directory in directories.values())
        return sum(array.nbytes for array in arrays) + self._directory.nbytes + self._payload.nbytes + texts

    # A push

    def append(self, columns: Sequence[Column], times: Int64s, gone: Bytes, numbers: Int64s) -> Int64s:
        """Append versions, which `cut` removes until `settle`. Raises InputError for a value that does not fit its key.

        Return the first and the last time of the rows that each version may concern, int64[n, 2].

        columns  the columns that are kept, in their own or their plain types
        times    int64[n] ticks
        gone     uint8[n], 1 = from its time on the key has no version
        numbers  int64[n] arrival numbers, ascending
        """
        first, end = self.n, self.n + len(times)
        if end > self.room:
            self._widen(1 << (end - 1).bit_length())
        self._payload.begin()
        at = first
        # A column that does not fit in one array comes in several.
        for batch in pa.Table.from_arrays(list(columns), names=self.columns).to_batches():
            self._keys[at : at + len(batch)] = self._slots(batch)
            for k, column in enumerate(batch.columns):
                if fixed_width(self._kinds[k]):
                    self._payload.append(0, k, column, at)
                else:
                    self._payload.append_log(0, k, column, at)
            at += len(batch)
        for array, values in ((self._times, times), (self._gone, gone), (self._numbers, numbers)):
            array[first:end] = values
        order = first + np.argsort(times, kind="stable")
        until = np.empty(len(order), np.int64)
        insert_versions(self._times, self._links, self._keys, self._heads, order, until)
        self.n = end
        spans = np.stack([times, times], axis=1)
        if self._direction != FORWARD:
            spans[order - first, 1] = until - 1
        if self._direction != BACKWARD:
            spans[:, 0] -= self._tolerance
        return spans

    def settle(self) -> None:
        """Keep the versions that were appended. Idempotent."""
        self._settled = self.n
        self._payload.commit()

    def cut(self) -> None:
        """Remove the versions that were appended since `settle`. O(keys + versions). Idempotent."""
        remove_versions(self._links, self._heads, self._settled)
        self._payload.undo()
        # The exception may have come before the strings of new keys had a user.
        keys = self._directory.keys[self._directory.slots]
        for column, texts in self._text_columns():
            texts.recount(np.ascontiguousarray(keys[:, column]))
        self.n = self._settled

    def _widen(self, room: int) -> None:
        if self._payload.room[0] < room:
            self._payload.resize(0, room, 0, self.n)
        arrays = {}
        for name in ("_times", "_links", "_keys", "_numbers", "_gone"):
            arrays[name] = np.zeros(room, getattr(self, name).dtype)
            arrays[name][: self.n] = getattr(self, name)[: self.n]
        # In one statement: an exception may come between any two.
        vars(self).update(arrays)

    def _slots(self, batch: pa.RecordBatch) -> Int64s:
        """Return the slot of the key of each version; new keys get one."""
        words, _ = self._encoded(self._encoders, [batch] * len(self._encoders), len(batch))
        slots = self._directory.find(words)
        new = np.flatnonzero(slots < 0)
        if len(new):
            places, firsts = numbered(words[new])
            keys = words[new[firsts]]
            self._directory.make_room(len(keys))
            if len(self._heads) < self._directory.capacity:
                heads = np.full(self._directory.capacity, -1, np.int64)
                heads[: len(self._heads)] = self._heads
                self._rests = np.zeros((len(heads), R_FIELDS), np.int64)
                self._heads = heads
            new_slots = self._directory.write(keys, np.zeros((len(keys), 1), np.int64), np.ones(len(keys), np.bool_))
            slots[new] = new_slots[places]
            # Until the strings have a user, a search would forget them.
            self._settle_texts(keys)
        return slots

    def _encoded(self, encoders: list[KeyEncoder], batches: list[pa.RecordBatch], n: int) -> tuple[Int64s, Bytes]:
        """Return the keys of n rows, int64[n, words], and which of them equal nothing, uint8[n]."""
        parts, dead = [], np.zeros(n, np.uint8)
        for encoder, batch, texts in zip(encoders, batches, self._texts, strict=True):
            words = np.zeros(n * encoder.width, np.int64)
            encoder.encode(batch, words, dead, texts)
            parts.append(words.reshape(n, encoder.width))
        return np.concatenate(parts, axis=1), dead

    def _settle_texts(self, keys: Int64s) -> None:
        """Give the strings of new keys their users, and forget all other new strings."""
        for column, texts in self._text_columns():
            texts.settle(np.ascontiguousarray(keys[:, column]))

    def _text_columns(self) -> Iterator[tuple[int, BytesDirectory]]:
        """Yield the words of a key that stand for byte strings, and the directory of each."""
        at = 0
        for encoder, texts in zip(self._encoders, self._texts, strict=True):
            for word, directory in texts.items():
                yield at + word, directory
            at += encoder.width

    # Searches

    @property
    def settled(self) -> int:
        """The number of versions before the open push."""
        return self._settled

    def hashes_of_rows(self, batches: Mapping[int, pa.RecordBatch]) -> Hashes:
        """Return the hash of the key of each row, uint64[n]; `batches` as in `find`."""
        return _hashes(self._probing, [batches[key.stream] for key in self.join.keys])

    def hashes_of_versions(self, batch: pa.RecordBatch) -> Hashes:
        """Return the hash of the key of each version of a batch, which is that of the rows with the key: uint64[n]."""
        return _hashes(self._encoders, [batch] * len(self._encoders))

    def find(self, batches: Mapping[int, pa.RecordBatch], times: Int64s, end: int | None = None) -> Int64s:
        """Return the version of each row, int64[n], -1 = none.

        batches  the columns that the keys of the rows are made of, by stream; absent components have nulls
        times    of the rows, ascending
        end      the number of versions that count, None = all
        """
        n, versions = len(times), np.full(len(times), -1, np.int64)
        if not n or not self.n:
            return versions
        words, dead = self._encoded(self._probing, [batches[key.stream] for key in self.join.keys], n)
        slots = self._directory.find(words)
        slots[dead != 0] = -1
        self._settle_texts(words[:0])
        self._searches += 1
        asked = np.array([self._direction, self._tolerance, self._searches, self.n if end is None else end], np.int64)
        find_versions(self._times, self._links, self._gone, self._heads, slots, times, asked, self._rests, versions)
        return versions

    def numbers(self, versions: Int64s) -> Int64s:
        """Return the arrival numbers of versions; -1 for -1."""
        return np.where(versions < 0, -1, self._numbers[np.maximum(versions, 0)])

    def gather(self, versions: Int64s) -> list[Column]:
        """Return the columns of versions; -1 has nulls."""
        absent = versions < 0
        ids = np.where(absent, 0, versions).astype(np.int32)
        lacking = absent.reshape(-1, 1) if absent.any() else None
        columns = self._payload.gather(ids, len(ids), np.zeros(1, np.int64), lacking)
        return [columns[0, k] for k in range(len(self.columns))]

    # All contents

    def compacted(self, limit: int) -> VersionLog:
        """Return a settled log of the versions that rows of time `limit` or later may get. Between two pushes. O(n)."""
        needed = np.zeros(self.room, np.uint8)
        asked = limit, self._direction, self._tolerance
        mark_needed(self._times, self._links, self._gone, self._heads, *asked, needed)
        kept = np.flatnonzero(needed[: self.n])
        log = VersionLog(self.query, self.join, self.columns)
        columns = [taken(column, kept) for column in self._payload.window(0, 0, self.n, 0)]
        log.append(columns, self._times[kept], self._gone[kept], self._numbers[kept])
        log.settle()
        return log

    def needed(self, limit: int) -> int:
        """Return how many versions rows of time `limit` or later may get. O(n)."""
        marks = np.zeros(self.room, np.uint8)
        asked = limit, self._direction, self._tolerance
        return int(mark_needed(self._times, self._links, self._gone, self._heads, *asked, marks))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns in their plain types."""
        return pa.schema([(name, plain(kind)) for name, kind in zip(self.columns, self._kinds, strict=True)])

    def to_parts(self) -> Plain:
        """Return all parts from which `load_parts` makes an equal log."""
        columns = self._payload.window(0, 0, self.n, 0)
        batches = pa.Table.from_arrays(columns, schema=self.schema).to_batches()
        what = f"table {self.query.streams[self.join.table].name}"
        return {
            "n": self.n,
            "rows": write_rows(self.schema, [batch.columns for batch in batches], what),
            **{name: array[: self.n] for name, array in self._saved.items()},
        }

    @property
    def _saved(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"times": self._times, "gone": self._gone, "numbers": self._numbers}

    def load_parts(self, parts: Parts, arrived: int) -> None:
        """Fill an empty log with the parts of another one. Raises StateError for parts that do not fit together.

        arrived  the number of arrivals of the table
        """
        n = parts.integer("n", high=arrived)
        times, gone, numbers = (parts.array(name, array.dtype, (n,)) for name, array in self._saved.items())
        table = pa.Table.from_batches(parts.batches("rows", self.schema, n), schema=self.schema)
        parts.require(table.num_rows == n, f"{n} versions, and columns of {table.num_rows}")
        parts.require(bool((np.abs(times) <= FOREVER).all()), "event times out of range")
        parts.require(bool((gone <= 1).all()), "versions that are neither there nor gone")
        rising = bool((np.diff(numbers) > 0).all()) and (not n or bool(numbers[0] >= 0 and numbers[-1] < arrived))
        parts.require(rising, "arrival numbers of versions that do not rise, or that have not arrived")
        for batch in table.to_batches():
            for key in self.join.keys:
                absent = batch.column(key.key).is_null(nan_is_null=True)
                parts.require(not absent.true_count, f"a version without a key {key.key}")
        try:
            self.append(table.columns, times, gone, numbers)
        except InputError as problem:
            raise parts.wrong(str(problem)) from problem
        self.settle()

    def check(self) -> None:
        """Raise StateError unless each version is in the chain of its key, in order. O(n), for tests."""
        seen = np.zeros(self.n, bool)
        for key, head in enumerate(self._heads.tolist()):
            newer = -1
            while head >= 0:
                if head >= self.n or seen[head] or self._keys[head] != key:
                    raise StateError(f"version {head} is in the chain of key {key}, where it does not belong")
                seen[head] = True
                if newer >= 0 and (self._times[newer], newer) <= (self._times[head], head):
                    raise StateError(f"version {head} comes after version {newer} in the chain of key {key}")
                newer, head = head, int(self._links[head])
        if not seen.all():
            raise StateError(f"{self.n - int(seen.sum())} versions are in no chain")


def _hashes(encoders: Sequence[KeyEncoder], batches: Sequence[pa.RecordBatch]) -> Hashes:
    """Return the hash of a key whose columns are encoded one by one, uint64[rows]."""
    parts = [encoder.hashes(batch)[0] for encoder, batch in zip(encoders, batches, strict=True)]
    for part in parts[1:]:
        mix_words(part.view(np.int64), parts[0])
    return parts[0]
