"""The bound on the bytes of a join (`max_bytes`): the bytes that count, and the moments of the comparison.

Windows, keys and payload are necessary; stored states may take the rest of the bound. The growth of the rings is known
before a push begins, so a push that is too large is refused before it changes anything. Key directories and states grow
while rows arrive: each part asks before it grows (`stairs.memory.allowance`), and a refusal undoes the push. Payload
kept as Arrow arrays is counted at the end of the push.

Late rows may take the bytes that all of these leave. Late rows never cause a push to fail: after the commit, the oldest
late rows are dropped until the rest fits. During the push they may exceed the bound.

The buffers for the input and the results of a push may exceed the bound during the push. After the push, also after a
refused push, the buffers are freed if `nbytes` would otherwise exceed the bound (`Pipeline.keep_within`).

Records, times, key directories, payload, bands, groups, stored states and late rows count. Bands (`stairs.bands`) are
dropped first, since scans do not require them. The input and the results of a push do not count, nor does the sample
of the router, whose size is constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from eddy.aggregates.groups import Sized
from eddy.streams.numbers import at_least
from stairs.errors import CapacityError, InputError
from stairs.modules import Modules
from stairs.payload import Payload


def checked_bound(max_bytes: object, least: int) -> int | None:
    """Return a bound as an int, None for no bound. Raises InputError for an invalid value, or one below `least`.

    least   bytes of the state without rows
    """
    bound = None if max_bytes is None else at_least(1, max_bytes)
    if bound is None and max_bytes is not None:
        raise InputError(f"max_bytes is a number of bytes, 1 or more, not {max_bytes!r}")
    if bound is not None and bound < least:
        raise InputError(f"max_bytes={bound:,}: without any row the state of this query takes {least:,} bytes already")
    return bound


class Bound:
    """A bound of `max_bytes` bytes, None = no bound.

    beside  other states that share the bound: the groups of the query, the first rows of groups
    fixed   bytes that always count, and that no push changes

    `max_bytes` has been checked.
    """

    def __init__(
        self, max_bytes: int | None, modules: Modules, payload: Payload, beside: Sequence[Sized] = (), fixed: int = 0
    ) -> None:
        self.max_bytes, self._fixed = max_bytes, fixed
        self.modules, self.payload, self._beside = modules, payload, beside
        modules.allowance.limit = float("inf") if max_bytes is None else float(max_bytes - fixed)

    def base(self) -> int:
        """Return the bytes of all parts except stored states and late rows."""
        beside = sum(part.nbytes for part in self._beside)
        return self._fixed + self.modules.state_bytes + self.payload.nbytes + beside

    @property
    def used(self) -> int:
        """Bytes of all parts that count, except late rows. O(parts)."""
        return self._fixed + self.modules.allowance.used

    def room(self, rows: Sequence[int]) -> float:
        """Return the bytes that states may take during a push of rows[i] rows of stream i. O(streams).

        Raises CapacityError if the push does not fit even without states.
        """
        if self.max_bytes is None:
            return float("inf")
        growth = self.modules.growth(rows)
        more = growth.n_bytes + self.payload.growth(growth.rooms)
        if self.base() + more > self.max_bytes:
            self.modules.bands.drop()
        n_bytes = self.base() + more
        if n_bytes > self.max_bytes:
            raise CapacityError(
                f"windows, keys and payload alone would take {n_bytes:,} bytes, max_bytes is {self.max_bytes:,}: narrow"
                " the windows, push fewer rows at a time, select fewer columns, or raise max_bytes"
            )
        return float(self.max_bytes - n_bytes)
