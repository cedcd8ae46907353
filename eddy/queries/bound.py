"""The bound on the bytes of an engine, which its joins, its groups and the rows that it keeps share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eddy.join.bound import Bound, checked_bound
from eddy.runtime import Runtime
from stairs.errors import CapacityError
from stairs.memory.allowance import Allowance
from stairs.modules import Modules
from stairs.payload import Payload


class EngineBound:
    """A bound of `max_bytes` bytes, None = no bound.

    One part of the engine takes a push in at a time. What it asks for has to fit beside all other parts, of which
    nothing grows meanwhile.

    nbytes   bytes of all parts except the one at work, and of the rows of the push
    """

    def __init__(self, max_bytes: object = None) -> None:
        self.max_bytes = checked_bound(max_bytes, 1)
        self.nbytes = 0

    def begin(self, n_bytes: int, rows: int = 0) -> None:
        """Count anew, before a push: the bytes of all parts, and of the rows that the engine will keep.

        Raises CapacityError if these rows do not fit.
        """
        if self.max_bytes is not None and n_bytes + rows > self.max_bytes and rows:
            raise CapacityError(
                f"the rows of this push would take the engine from {n_bytes:,} to {n_bytes + rows:,} bytes, and"
                f" max_bytes is {self.max_bytes:,}: stop queries, narrow their windows, push fewer rows at a time, or"
                " restore a snapshot of the engine with a larger max_bytes"
            )
        self.nbytes = n_bytes + rows

    @contextmanager
    def at_work(self, n_bytes: Callable[[], int]) -> Iterator[None]:
        """Let a part grow in the body, within what the others leave; `n_bytes` returns its bytes."""
        if self.max_bytes is None:
            yield
            return
        self.nbytes -= n_bytes()
        try:
            yield
        finally:
            self.nbytes += n_bytes()

    def check(self, n_bytes: int, what: str) -> None:
        """Raise CapacityError for an engine that would take so many bytes with something new."""
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise CapacityError(
                f"{what} would take the engine to {n_bytes:,} bytes, and max_bytes is {self.max_bytes:,}: stop other"
                " queries, narrow windows, or give the engine a larger max_bytes"
            )

    # Those who ask

    def cover(self, runtime: Runtime) -> Runtime:
        """Bound a new runtime, and return it."""
        if self.max_bytes is not None:
            pipeline = runtime._pipeline
            pipeline.beside = [self]
            if pipeline.partners is None:
                pipeline.join.modules.allowance.parts.append(lambda: self.nbytes)
            pipeline.set_bound(self.max_bytes)
        return runtime

    def allowance(self) -> Allowance:
        """Return an allowance for another state, whose bytes are still to be added to its parts."""
        allowance = Allowance()
        if self.max_bytes is not None:
            allowance.limit = float(self.max_bytes)
            allowance.parts.append(lambda: self.nbytes)
        return allowance

    def cover_stems(self, modules: Modules) -> None:
        """Bound new SteMs that no runtime has."""
        modules.allowance.parts.append(lambda: self.nbytes)

    def ask_for_rows(self, modules: Modules, payload: Payload, rows: Sequence[int]) -> None:
        """Raise CapacityError unless rows[i] rows of stream i fit into such SteMs, whose buffers are small now."""
        if self.max_bytes is not None:
            Bound(self.max_bytes, modules, payload, [self], modules.nbytes - modules.state_bytes).room(rows)
