"""The newest version of each key of a table, deletes included, by which a change is known to be stale.

A push first *takes* its changes, which leaves the versions as they are, and its commit *settles* them. A push that does
not happen is *forgotten*: only the keys go that it brought. So a refused push leaves everything as it was.

The keys are byte strings in a directory of their own (`stairs.bytes_directory`), whose ids are places in two arrays. A
key that is deleted keeps its version for a while, its *tombstone*. A tombstone has ended as soon as the newest version
of the table is more than `Table.tombstones` ahead; when it is dropped has no influence on that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddy.ingest.arrivals import NewVersions, Rows
from eddy.ingest.changes import TableChanges
from eddy.ingest.kernels import find_stale
from eddy.ingest.keys import key_bytes
from eddy.streams.key_types import unified
from eddy.streams.table import Table
from stairs.bytes_directory import BytesDirectory
from stairs.errors import StateError
from stairs.graph import FOREVER
from stairs.memory.allowance import Allowance
from stairs.storage.parts import Parts, Plain

UNKNOWN = -(1 << 62)
"""The version of a key that is not known."""
_FIRST = 64


class NewestVersions:
    """The newest versions of the keys of one table."""

    def __init__(self, table: Table, allowance: Allowance | None = None) -> None:
        self.table = table
        self.tombstones = FOREVER if table.tombstone_ticks is None else table.tombstone_ticks
        kinds = [unified([table.type_of(column)]) for column in table.keys]
        self._kinds = [kind for kind in kinds if kind is not None]
        self.directory = BytesDirectory(allowance)
        self.newest: Rows = np.full(_FIRST, UNKNOWN, np.int64)
        self.gone: npt.NDArray[np.uint8] = np.zeros(_FIRST, np.uint8)
        self.top = np.array([UNKNOWN], np.int64)
        """The newest version of all keys."""
        self._ended = 0
        """Deletes since tombstones were last dropped."""

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and their versions."""
        return self.directory.nbytes + self.newest.nbytes + self.gone.nbytes

    def take(self, changed: TableChanges) -> tuple[TableChanges, TableChanges | None, NewVersions]:
        """Return the changes that are not stale, those that are (None = none), and what `settle` needs. O(changes).

        Raises CapacityError if there is no room for new keys.
        """
        assert changed.versions is not None
        n = len(changed.batch)
        offsets, text = key_bytes(self.table.place, self.table.keys, self._kinds, changed.batch)
        ids = self.directory.intern(offsets, text, np.zeros(n, np.uint8))
        self._widen()
        gone = np.zeros(n, bool) if changed.deletes is None else changed.deletes
        stale, until = np.zeros(n, np.uint8), np.array([self.top[0], self.tombstones])
        scratch = np.empty((2, n), np.int64)
        stale_count = find_stale(
            ids, changed.versions, gone.view(np.uint8), self.newest, self.gone, until, scratch, stale
        )
        if not stale_count:
            return changed, None, NewVersions(ids, changed.versions, gone)
        kept, left = np.flatnonzero(stale == 0), np.flatnonzero(stale)
        return changed.of(kept), changed.of(left), NewVersions(ids[kept], changed.versions[kept], gone[kept])

    def _widen(self) -> None:
        """Give each key of the directory a place."""
        room = len(self.directory.arena.start)
        if room > len(self.newest):
            more = room - len(self.newest)
            # The longer array is installed last: until then, an exception leads here again.
            self.gone = np.concatenate([self.gone[: len(self.newest)], np.zeros(more, np.uint8)])
            self.newest = np.concatenate([self.newest, np.full(more, UNKNOWN)])

    def settle(self, new: NewVersions, again: bool = False) -> None:
        """Let the changes of a push happen. Idempotent; again: an exception may have interrupted an earlier call."""
        ids, versions, gone = new
        fresh = np.unique(ids[self.newest[ids] == UNKNOWN])
        # Of several changes of one key, NumPy keeps the last one.
        self.newest[ids], self.gone[ids] = versions, gone
        if len(versions):
            self.top[0] = max(int(self.top[0]), int(versions.max()))
        if again:
            self._recount()
        else:
            self.directory.settle(fresh)
        self._ended += int(gone.sum())
        if 4 * self._ended > self.directory.most:
            self.drop_tombstones()

    def forget(self) -> None:
        """Forget the keys of a push that did not happen. Idempotent."""
        self.directory.settle(np.zeros(0, np.int64))

    def drop_tombstones(self) -> None:
        """Drop the tombstones that have ended. O(keys)."""
        self._ended = 0
        ended = self._known()[self._tombstones_ended(self._known())]
        if len(ended):
            self.gone[ended] = 0
            self.newest[ended] = UNKNOWN
            self._recount()

    def _tombstones_ended(self, ids: Rows) -> npt.NDArray[np.bool_]:
        ended: npt.NDArray[np.bool_] = self.newest[ids] < self.top[0] - self.tombstones
        return ended & (self.gone[ids] != 0)

    def _known(self) -> Rows:
        """Return the keys with a version, ascending. O(keys)."""
        return np.flatnonzero(self.newest != UNKNOWN)

    def _recount(self) -> None:
        self.directory.recount(self._known())

    # Snapshots and live files

    def to_parts(self) -> Plain:
        """Return the keys with a version and their versions, from which `load_parts` resumes. O(keys)."""
        self.drop_tombstones()
        ids = self._known()
        offsets, text = self.directory.read(ids)
        return {
            "offsets": offsets,
            "text": text,
            "newest": self.newest[ids],
            "gone": self.gone[ids],
            "top": int(self.top[0]),
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of another object for the same table. Raises StateError for parts that do not fit."""
        newest = parts.array("newest", np.int64, (-1,))
        n, text = len(newest), parts.array("text", np.uint8, (-1,))
        gone, top = parts.array("gone", np.uint8, (n,)), parts.integer("top", UNKNOWN, FOREVER)
        offsets = parts.array("offsets", np.int64, (n + 1,))
        parts.require(
            bool(offsets[0] == 0 and offsets[-1] == len(text) and (offsets[1:] >= offsets[:-1]).all()),
            f"keys of table {self.table.name} that are not the bytes there are",
        )
        fits = (newest >= -FOREVER) & (newest <= top) & (gone <= 1)
        parts.require(bool(fits.all()), f"versions of table {self.table.name} that are out of range")
        ids = self.directory.intern(np.array(offsets), np.array(text), np.zeros(n, np.uint8))
        parts.require(np.array_equal(ids, np.arange(n)), f"a key of table {self.table.name} twice")
        self._widen()
        self.newest[:n], self.gone[:n], self.top[0] = newest, gone, top
        self.directory.settle(ids)

    def check(self) -> None:
        """Raise StateError unless the keys with a version are those of the directory. O(keys), for tests."""
        size, most = self.directory.arena.size, self.directory.most
        if not np.array_equal(np.flatnonzero(size[:most] >= 0), self._known()):
            raise StateError(f"the versions of table {self.table.name} have other keys than its directory")
        if len(self._known()) and self.newest[self._known()].max() > self.top[0]:
            raise StateError(f"table {self.table.name} has a version beyond its newest one")
