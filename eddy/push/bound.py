"""The bound on the bytes of a runtime (`max_bytes`): which bytes count, and when they are compared with the bound.

Windows, keys and payload are necessary; stored states may take the rest of the bound. The growth of the rings is known
before a push begins, so a push that is too large is refused before it changes anything. Key directories and states grow
while rows arrive: each asks before it grows (`stairs.memory.allowance`), and a refusal takes the push back. Payload
kept as Arrow arrays is counted at the end of the push.

Late rows may take what all of these leave (`left`). They never cause a push to fail: after the commit, the oldest late
rows are dropped until the rest fits. During the push they may exceed the bound.

Records, times, key directories, payload, bands, groups, stored states and late rows count. Bands (`stairs.bands`) are
given up first, since scans can do without them. The input and the results of a push do not count, nor does the sample
of the router, whose size is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from eddy.aggregates.groups import Groups
from eddy.query.numbers import at_least
from stairs.errors import CapacityError, InputError
from stairs.modules import Modules
from stairs.payload import Payload


class Bound:
    """A bound of `max_bytes` bytes, None = no bound. Raises InputError for any other value."""

    def __init__(self, max_bytes: int | None, modules: Modules, payload: Payload, groups: Groups | None = None) -> None:
        self.max_bytes = None if max_bytes is None else at_least(1, max_bytes)
        if self.max_bytes is None and max_bytes is not None:
            raise InputError(f"max_bytes is a number of bytes, 1 or more, not {max_bytes!r}")
        self.modules, self.payload, self._groups = modules, payload, groups
        modules.allowance.limit = float("inf") if self.max_bytes is None else float(self.max_bytes)

    def base(self) -> int:
        """Return the bytes of windows, bands, keys, payload and groups, which do not depend on the stored states."""
        groups = 0 if self._groups is None else self._groups.nbytes
        return self.modules.state_bytes + self.payload.nbytes + groups

    @property
    def left(self) -> float:
        """Bytes that are left for late rows. O(parts)."""
        return float("inf") if self.max_bytes is None else self.max_bytes - self.modules.allowance.used

    def room(self, rows: Sequence[int]) -> float:
        """Return the bytes that states may take during a push of rows[i] rows of stream i. O(streams).

        Raises CapacityError if the push does not fit even without states.
        """
        if self.max_bytes is None:
            return float("inf")
        growth = self.modules.growth(rows)
        more = growth.n_bytes + self.payload.growth(growth.factors)
        if self.base() + more > self.max_bytes:
            self.modules.bands.drop()
        n_bytes = self.base() + more
        if n_bytes > self.max_bytes:
            raise CapacityError(
                f"windows, keys and payload alone would take {n_bytes:,} bytes, max_bytes is {self.max_bytes:,}: narrow"
                " the windows, push fewer rows at a time, select fewer columns, or raise max_bytes"
            )
        return float(self.max_bytes - n_bytes)
