"""What becomes of a result when a row of it leaves its window: `Query(expiry=…)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from eddy.query.branch import Branch
from stairs.errors import QueryError

Expiry = Literal["retract", "final"]


def checked_expiry(expiry: object, branches: Sequence[Branch]) -> Expiry:
    """Return `expiry`. Raises QueryError for other values, and for branches if results are final."""
    if expiry not in get_args(Expiry):
        raise QueryError(
            f"expiry={expiry!r}: a result whose row leaves its window is taken back with 'retract', and stays with"
            " 'final'; pass one of these two"
        )
    if expiry == "final" and branches:
        raise QueryError(
            "expiry='final' is for inner joins: a row without a partner is final only when no partner can come; use"
            " output='append', which gives such rows at that moment, or expiry='retract'"
        )
    return expiry  # type: ignore[return-value]
