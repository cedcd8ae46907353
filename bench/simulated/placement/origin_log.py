"""The log of an origin: the rows of the streams that arrive at a node, and the first epoch shipped to each copy.

The log of a stream has the rows of its window, by epoch. When a copy of the window is announced, the epochs that the
log has are the *base* of the copy. The log sends the keys of the base to the node of the copy, and the node requests
the rows that it needs. The log ships the rows of later epochs.

    log of S    epochs 3 4 5 | 6 7        a copy announced when 6 was due: base 3 4 5, shipped 6 7 …

The log is on disk: a crash of the node does not change it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from bench.simulated.placement.messages import Sent
from bench.simulated.placement.pieces import Base, BaseKeys, Request, Since
from eddy.placement.operators import SITE
from eddy.placement.places import Place
from eddy.placement.program import Copy
from eddy.placement.tuples import Ints, Tuples, merged, without
from stairs.errors import StateError


class OriginLog:
    """The logs of the streams that arrive at one node."""

    def __init__(self, node: int, streams: Sequence[int]) -> None:
        self._node = node
        self._parts: dict[int, list[tuple[int, Tuples]]] = {i: [] for i in streams}
        self._next = dict.fromkeys(streams, 0)
        """Stream -> the next epoch."""
        self._since: dict[Copy, Since] = {}
        self._bases: dict[Copy, dict[int, tuple[Ints, Tuples]]] = {}
        """The epochs and rows of the base of a copy by node, from its first request until rows expire."""

    def append(self, stream: int, epoch: int, rows: Tuples) -> None:
        """Add the rows of an epoch. Raises StateError for any epoch except the next one."""
        if epoch != self._next[stream]:
            raise StateError(f"stream {stream}: epoch {epoch} came when {self._next[stream]} was due")
        self._next[stream] = epoch + 1
        self._parts[stream].append((epoch, rows))

    def rows(self, stream: int) -> list[Tuples]:
        """Return the rows in the log of a stream, by epoch."""
        return [rows for _, rows in self._parts[stream] if rows.size]

    def expire(self, horizon: int) -> None:
        """Drop the rows that are due before a horizon, in ticks."""
        self._bases = {}
        for stream, parts in self._parts.items():
            kept = [(epoch, rows.take(rows.due >= horizon)) for epoch, rows in parts]
            self._parts[stream] = [(epoch, rows) for epoch, rows in kept if rows.size]

    # Copies

    def announce(self, copy: Copy) -> bool:
        """Begin to ship a stream to a copy with the next epoch, if the stream arrives at this node and the copy is new.

        Returns whether shipping begins.
        """
        stream, _, born = copy
        if stream not in self._parts or copy in self._since:
            return False
        self._since[copy] = self._from_now(stream, born)
        return True

    def base_keys(self, copy: Copy, known: int) -> list[Sent]:
        """Return the messages that tell the nodes of an announced copy the keys of its base."""
        since, bases = self._since[copy], self._base(copy)
        return [Sent(node, BaseKeys(copy, self._node, known, since, _keys_of(*base))) for node, base in bases.items()]

    def _base(self, copy: Copy) -> dict[int, tuple[Ints, Tuples]]:
        if copy not in self._bases:
            self._bases[copy] = self._dealt(copy, self._since[copy].first)
        return self._bases[copy]

    def shipped(self, stream: int) -> list[tuple[Place, Since]]:
        """Return the place of each copy to which a stream is shipped, and the first epoch."""
        return [(copy[1], since) for copy, since in self._since.items() if copy[0] == stream]

    def keep(self, copies: Collection[Copy]) -> None:
        """Ship only to these of the announced copies."""
        self._since = {copy: since for copy, since in self._since.items() if copy in copies}
        self._bases = {copy: dealt for copy, dealt in self._bases.items() if copy in copies}

    def _from_now(self, stream: int, born: int) -> Since:
        newest = max((int(rows.time.max()) for rows in self.rows(stream)), default=None)
        return Since(born, self._next[stream], newest)

    def base(self, asked: Request) -> Base | None:
        """Return the answer to a request; None if its copy was retired in the meantime."""
        since = self._since.get(asked.copy)
        if since is None:
            return None
        bases = self._base(asked.copy)
        if asked.lost:
            since = self._from_now(asked.copy[0], asked.copy[2])
            bases = self._dealt(asked.copy, since.first)
        epochs, rows = bases[asked.sender]
        if asked.keys is not None and rows.size:
            c, keys = asked.keys
            chosen = np.isin(rows.keys[c], keys)
            epochs, rows = epochs[chosen], rows.take(chosen)
        return Base(asked.copy, self._node, asked.crashes, asked.number, since, epochs, rows, asked.keys is None)

    def _dealt(self, copy: Copy, first: int) -> dict[int, tuple[Ints, Tuples]]:
        """Return by node of a copy the rows logged before an epoch, and their epochs."""
        stream, place, _ = copy
        parts = [(epoch, rows) for epoch, rows in self._parts[stream] if epoch < first and rows.size]
        if not parts:
            none = np.zeros(0, np.int64)
            return dict.fromkeys(place.nodes, (none, Tuples({stream: none}, {}, none, none, none)))
        epochs = np.repeat([epoch for epoch, _ in parts], [rows.size for _, rows in parts])
        # Routing must keep the epochs, so they are routed like rows of another stream.
        rows = merged([rows for _, rows in parts])
        rows = rows._replace(rows={**rows.rows, SITE: epochs})
        return {
            node: (part.rows[SITE], part._replace(rows={stream: part.rows[stream]})) for node, part in place.route(rows)
        }


def _keys_of(epochs: Ints, rows: Tuples) -> list[tuple[int, dict[int, Ints]]]:
    """Return the keys of rows as in `BaseKeys`, given the epoch of each row."""
    by_epoch, later = [], {c: values[:0] for c, values in rows.keys.items()}
    for epoch in np.unique(epochs)[::-1].tolist():
        part = rows.take(epochs == epoch)
        keys = {c: without(values, later[c]) for c, values in part.keys.items()}
        later = {c: np.union1d(later[c], values) for c, values in keys.items()}
        by_epoch.append((int(part.due.max()), keys))
    return by_epoch
