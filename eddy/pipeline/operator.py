"""The contract of the operators of a pipeline: the methods that the transaction calls, and their laws.

    gate -> joins -> partners -> groups -> tops -> output
            Join     Partners    Groups    Tops
            n-way    left, semi, aggre-    first
            adaptive anti, full  gates     rows

Changes flow from one operator to the next: rows by the positions of their components, with a sign if the output is a
changelog. A push calls the methods in this order; `take` stands for the method that computes the operator's part, whose
arguments are what the operator before it gives:

    begin      note the state
    take       process the changes of the preceding operators; return the operator's changes, and a record for `settle`
    settle     keep the processed changes: the push has happened
    roll_back  return to the noted state: the push has not happened

Laws, which `tests/eddy/test_operators.py` checks for each kind of operator:

1. `roll_back` restores the state that `begin` noted, whatever `take` has done, and whether or not it has ended.
2. `settle` and `roll_back` may be repeated, from any of their steps: they are idempotent.
3. An operator that is loaded from the parts of another operator is equal to it: it has the same parts, and behaves in
   the same way.
4. `nbytes` counts all of the state.
5. Between two pushes `check` holds.

The end of the input and event time come with the changes. An operator imports no operator that follows it.
"""

from __future__ import annotations

from typing import Any, Protocol

from stairs.storage.parts import Parts, Plain


class Operator(Protocol):
    """A stage of a running query with its own state."""

    @property
    def nbytes(self) -> int:
        """Bytes of the state, and of the buffers of the last push."""

    def begin(self, loading: bool = False) -> None:
        """Note the state that `roll_back` restores; `loading`: earlier rows are loaded into an empty state."""

    def settle(self, commit: Any, again: bool = False) -> None:
        """Let a push happen, if it has not happened. Idempotent.

        commit  the record that the operator returned for the push
        again   whether an exception may have interrupted an earlier call
        """

    def roll_back(self) -> None:
        """Restore the state that `begin` noted; without effect if no push is running. Idempotent."""

    def check(self) -> None:
        """Raise StateError unless all invariants of the state hold. O(state), for tests."""

    def to_parts(self) -> Plain:
        """Return all parts from which `load_parts` resumes, as plain values and arrays (`stairs.storage.parts`)."""

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of an operator of the same query, which is new.

        watermark   watermark of the pipeline; None before the first

        Raises StateError for parts that do not fit; the operator cannot be used afterwards.
        """

    def dismantle(self) -> None:
        """Release all memory now, before reference cycles are collected. The operator cannot be used afterwards."""
