"""The contract of the operators of a pipeline: what the transaction asks of each of them.

    gate -> joins -> partners -> groups -> output
            Join     Partners    Groups
            n-way    left, semi, aggregates
            adaptive anti, full

Changes flow from one operator to the next: rows by the positions of their components, with a sign if the output is a
changelog. A push calls the methods in this order; `take` stands for the method that computes the operator's part, whose
arguments are what the operator before it gives:

    begin      note the state
    take       take the changes of the operators before in; return the own changes, and a record for `settle`
    settle     keep what was taken: the push has happened
    roll_back  return to the noted state: the push has not happened

Laws, which `tests/eddy/test_operators.py` holds for each kind of operator:

1. `roll_back` restores the state that `begin` noted, whatever `take` has done, and whether or not it has ended.
2. `settle` and `roll_back` may be repeated, from any of their steps: once is as often as twice.
3. An operator with the parts of another one is the same operator: it has the same parts, and the same future.
4. `nbytes` counts all of the state.
5. Between two pushes `check` holds.

What an operator knows about the end of the input and about event time comes with the changes. An operator imports none
that follows it.
"""

from __future__ import annotations

from typing import Any, Protocol

from stairs.storage.parts import Parts, Plain


class Operator(Protocol):
    """A stage of a running query with a state of its own."""

    @property
    def nbytes(self) -> int:
        """Bytes of the state, and of the room of the last push."""

    def begin(self, loading: bool = False) -> None:
        """Note the state, to which `roll_back` returns; loading: earlier rows come into an empty state."""

    def settle(self, commit: Any, again: bool = False) -> None:
        """Let a push happen, if it has not. It may be repeated.

        commit  what the operator returned for it when it took the push
        again   an exception may have interrupted it
        """

    def roll_back(self) -> None:
        """Return to the state that `begin` noted; do nothing if nothing is under way. It may be repeated."""

    def check(self) -> None:
        """Raise StateError unless all invariants of the state hold. O(state), for tests."""

    def to_parts(self) -> Plain:
        """Return all from which `load_parts` resumes, as plain values and arrays (`stairs.storage.parts`)."""

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of an operator of the same query, which is new.

        watermark   that of the pipeline; None before the first

        Raises StateError for parts that do not fit; then the operator cannot be used.
        """

    def dismantle(self) -> None:
        """Release all memory now instead of when reference cycles are collected. The operator cannot be used then."""
