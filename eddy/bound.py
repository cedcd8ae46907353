"""A bound on the bytes of a runtime: what is counted, and when it is looked at.

Windows, keys and payload have to be there; what they leave of the bound is for stored states. What a push will make of
the rings is known before it begins, so a push too large for the bound is refused before it touches anything. Key
directories grow while keys are seen; if that breaks the bound, the push is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from stairs.errors import CapacityError, InputError
from stairs.modules import Modules
from stairs.payload import Payload


class Bound:
    """What `max_bytes` asks for; None = nothing. Raises InputError for what is no number of bytes."""

    def __init__(self, max_bytes: int | None, modules: Modules) -> None:
        if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1):
            raise InputError(f"max_bytes is a number of bytes, 1 or more, not {max_bytes!r}")
        self.max_bytes, self.modules = max_bytes, modules

    def before(self, payload: Payload, rows: Sequence[int]) -> None:
        """Raise CapacityError when a push of rows[i] rows of stream i cannot fit. O(streams)."""
        if self.max_bytes is not None:
            growth = self.modules.growth(rows)
            wider = [payload.bytes_of(i) * (factor - 1) for i, factor in enumerate(growth.factors)]
            self._check(self.base(payload) + growth.n_bytes + sum(wider))

    def after(self, payload: Payload) -> None:
        """Raise CapacityError when a push under way has outgrown the bound."""
        if self.max_bytes is not None:
            self._check(self.base(payload))

    def base(self, payload: Payload) -> int:
        """Return the bytes that are there whatever is stored: windows, keys, payload."""
        return self.modules.state_bytes + payload.nbytes

    def room(self, payload: Payload) -> float:
        """Return the bytes that stored states may take."""
        return float("inf") if self.max_bytes is None else float(max(self.max_bytes - self.base(payload), 0))

    def _check(self, n_bytes: int) -> None:
        assert self.max_bytes is not None
        if n_bytes > self.max_bytes:
            raise CapacityError(
                f"windows, keys and payload alone would take {n_bytes:,} bytes, max_bytes is {self.max_bytes:,}: narrow"
                " the windows, push fewer rows at a time, select fewer columns, or allow more"
            )
