"""The bound on the bytes of one engine's state: code that is about to allocate lasting memory asks first.

An undo reverts a failed push, but the memory that the push allocated stays. So a test of the bound after the fact would
not work: the growth of a refused push would block all later pushes. A request before the allocation is refused with
nothing changed, and a smaller push may still fit.

    parts  functions that return the bytes of each part of the state;  limit  the bound in bytes, inf = none

Invariant: used <= limit between pushes, if it held when the limit was set.
"""

from __future__ import annotations

from collections.abc import Callable

from stairs.errors import CapacityError


class Allowance:
    """A limit on the total bytes of some parts."""

    def __init__(self) -> None:
        self.limit = float("inf")
        self.parts: list[Callable[[], int]] = []

    @property
    def used(self) -> int:
        """Bytes of all parts. O(parts)."""
        return sum(part() for part in self.parts)

    def ask(self, n_bytes: int, what: str) -> None:
        """Raise CapacityError unless `n_bytes` more bytes are within the limit; `what` names their use."""
        if self.limit == float("inf"):
            return
        used = self.used
        if used + n_bytes > self.limit:
            raise CapacityError(
                f"{what} would take the state to {used + n_bytes:,} bytes, and max_bytes leaves {self.limit:,.0f} for"
                " it: narrow the windows, delete rows of tables, push fewer rows at a time, or raise max_bytes"
            )
