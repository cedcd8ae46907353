"""When the first rows of groups are put out, and whether rows that come are taken back later."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.query.group_windows import Session
from eddy.query.query import Query
from eddy.results.modes import takes_back
from eddy.results.results import SIGNS
from stairs.descriptors import DELETED, UPDATED_FROM
from stairs.errors import InputError
from stairs.graph import WindowKind

Mode = Literal["changelog", "end", "windows"]
"""The modes of `eddy.tops.tops`."""


def mode_of(query: Query, output: str, bounded: bool) -> Mode:
    """Return when a query with `top` puts rows out. Raises InputError for output that the query cannot have."""
    if takes_back(output):
        return "changelog"
    window = None if query.aggregation is None else query.aggregation.group_window
    if window is not None:
        ranking, rows = query.ranking, query.group_rows
        assert ranking is not None
        bounds = [window.end] if isinstance(window, Session) else [window.start, window.end]
        by = [name if rows is None else rows.outputs[name] for name in ranking.by]
        if not any(name in bounds for name in by if isinstance(name, str)):
            named = " or ".join(repr(bound) for bound in bounds if bound is not None)
            raise InputError(
                "top: the first rows of a group of several windows are never final; name the window in by="
                f" ({named or 'whose bounds need names'})"
            )
        return "windows"
    if bounded:
        return "end"
    raise InputError(
        "top: the first rows of a group are not final before the input ends; use output='changelog', or, for input that"
        " ends, bounded=True and finish()"
    )


def lasting(query: Query) -> bool:
    """Return whether no row that a changelog reads is ever taken back."""
    if query.aggregation is not None or query.branches or query.tables_changing:
        return False
    return query.lasting or all(window.kind == WindowKind.UNBOUNDED for window in query.graph.windows)


def parted(table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return rows without the column `op`, and 1 for each row that comes, -1 for each that is taken back."""
    signs = np.ones(len(table), np.int64)
    ended = pc.is_in(table.column(0), SIGNS.take(pa.array([DELETED, UPDATED_FROM])))
    signs[np.asarray(ended.cast(pa.uint8()).combine_chunks()).view(np.bool_)] = -1
    return table.remove_column(0), signs
