"""The fate of results whose rows leave their windows: `Query(expiry=…)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from eddy.query.as_of import AsOf
from eddy.query.branch import Branch
from eddy.streams.table import Table
from stairs.errors import QueryError

Expiry = Literal["retract", "final"]


def checked_expiry(expiry: object, branches: Sequence[Branch], as_of: Sequence[AsOf]) -> Expiry:
    """Return `expiry`. Raises QueryError for other values, and for what "final" cannot be combined with."""
    if expiry not in get_args(Expiry):
        raise QueryError(
            f"expiry={expiry!r}: a result whose row leaves its window is taken back with 'retract', and stays with"
            " 'final'; pass one of these two"
        )
    if expiry == "final":
        if as_of:
            raise QueryError(
                "expiry='final' takes no as-of joins: use output='append', which never takes their rows back, or"
                " expiry='retract'"
            )
        for branch in branches:
            leaving = [stream.name for stream in branch.all_streams() if not isinstance(stream, Table)]
            if leaving or branch.how == "full":
                what = f"stream {leaving[0]}" if leaving else f"a full join with table {branch.streams[0].name}"
                raise QueryError(
                    f"expiry='final' takes left, semi and anti branches of tables, and not {what}: when a row leaves"
                    " its window, others lose a partner; use output='append', which gives rows without a partner when"
                    " none can come any more, or expiry='retract'"
                )
    return expiry  # type: ignore[return-value]
