"""The bytes that the state of one engine may take: whoever is about to grow for good asks first.

A push that fails is taken back, but the memory it made stays. So it would not do to look at the bound afterwards: what
a refused push had grown would be in the way of every push to come. What is asked for before it is made is refused with
nothing changed, and a smaller push may still fit.

    used   bytes of all parts, each of which says how many it has; limit = no more than so many, inf = no bound

Invariant: used <= limit between pushes, if it was so when the limit was set.
"""

from __future__ import annotations

from collections.abc import Callable

from stairs.errors import CapacityError


class Allowance:
    """A limit on the sum of some parts."""

    def __init__(self) -> None:
        self.limit = float("inf")
        self.parts: list[Callable[[], int]] = []

    @property
    def used(self) -> int:
        """Bytes of all parts. O(parts)."""
        return sum(part() for part in self.parts)

    def ask(self, n_bytes: int, what: str) -> None:
        """Raise CapacityError unless there is room for so many bytes more; `what` needs them."""
        if self.limit == float("inf"):
            return
        used = self.used
        if used + n_bytes > self.limit:
            raise CapacityError(
                f"{what} would take the state from {used:,} to {used + n_bytes:,} bytes, max_bytes is"
                f" {self.limit:,.0f}: narrow the windows, push fewer rows at a time, or allow more"
            )
