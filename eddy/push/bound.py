"""A bound on the bytes of a runtime: what is counted, and when it is looked at.

Windows, keys and payload have to be there; what they leave of the bound is for stored states. What a push will make of
the rings is known before it begins, so a push too large for the bound is refused before it touches anything. Key
directories and states grow while keys are seen: each asks before it grows (`stairs.memory.allowance`), and a refusal
takes the push back. Payload kept as Arrow arrays is counted when the push is over, and goes when it is taken back.

Late rows that are kept may take what all of these leave (`left`). They never get in the way of a push: once it has
committed, the oldest of them go until the rest fits. While it runs they lie beside what it needs.

Counted are records, times, key directories, payload, stored states and late rows; not counted is what comes and goes
with a push, its input and its results, nor the router's sample, which has one size.
"""

from __future__ import annotations

from collections.abc import Sequence

from eddy.query.numbers import at_least
from stairs.errors import CapacityError, InputError
from stairs.modules import Modules
from stairs.payload import Payload


class Bound:
    """What `max_bytes` asks for; None = nothing. Raises InputError for what is no number of bytes."""

    def __init__(self, max_bytes: int | None, modules: Modules, payload: Payload) -> None:
        self.max_bytes = None if max_bytes is None else at_least(1, max_bytes)
        if self.max_bytes is None and max_bytes is not None:
            raise InputError(f"max_bytes is a number of bytes, 1 or more, not {max_bytes!r}")
        self.modules, self.payload = modules, payload
        modules.allowance.limit = float("inf") if self.max_bytes is None else float(self.max_bytes)

    def base(self) -> int:
        """Return the bytes that are there whatever is stored: windows, keys, payload."""
        return self.modules.state_bytes + self.payload.nbytes

    @property
    def left(self) -> float:
        """Bytes that neither windows, keys and payload nor states take: late rows may have them. O(parts)."""
        return float("inf") if self.max_bytes is None else self.max_bytes - self.modules.allowance.used

    def room(self, rows: Sequence[int]) -> float:
        """Return the bytes that states may take in a push of rows[i] rows of stream i. O(streams).

        Raises CapacityError when the push cannot fit, with nothing stored at all.
        """
        if self.max_bytes is None:
            return float("inf")
        growth = self.modules.growth(rows)
        n_bytes = self.base() + growth.n_bytes + self.payload.growth(growth.factors)
        if n_bytes > self.max_bytes:
            raise CapacityError(
                f"windows, keys and payload alone would take {n_bytes:,} bytes, max_bytes is {self.max_bytes:,}: narrow"
                " the windows, push fewer rows at a time, select fewer columns, or allow more"
            )
        return float(self.max_bytes - n_bytes)
