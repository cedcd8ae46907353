"""The output modes: which changes of the answer a push returns.

append     each result when it comes
changelog  also results that end, with a column `op`
upsert     as a changelog, without the old row of a result that another one replaces: rows by key
"""

from __future__ import annotations

from collections.abc import Sequence

from eddy.expressions.computed import ComputedExpression
from eddy.query.query import Query
from eddy.streams.table import Table
from stairs.errors import InputError

OUTPUTS = ("append", "changelog", "upsert")
ENGINE_OUTPUTS = ("append", "changelog")
"""Those of the queries of an engine."""


def check_output(output: str, among: Sequence[str] = OUTPUTS) -> None:
    """Raise InputError for an output mode that does not exist."""
    if output not in among:
        raise InputError(f"output is one of {', '.join(map(repr, among))}, not {output!r}")


def takes_back(output: str) -> bool:
    """Return whether an output mode has rows for results that end."""
    return output != "append"


def check_upsert(query: Query) -> None:
    """Raise InputError unless the output columns of a query contain a key of its results."""
    if query.branches:
        raise InputError("output='upsert' is for inner joins of tables and for groups; use output='changelog'")
    if query.aggregation is not None:
        outputs = query.group_outputs
        shown = None if outputs is None else {one for one in outputs.outputs.values() if isinstance(one, str)}
        missing = [name for name, _ in query.aggregation.keys if shown is not None and name not in shown]
        if missing:
            raise InputError(f"output='upsert' needs each group column in select: add {missing[0]!r}")
        return
    stream = next((one for one in query.streams if not isinstance(one, Table)), None)
    if stream is not None:
        raise InputError(
            f"output='upsert': results have no key, because {stream.place} is no table; use output='changelog', or"
            " make it a Table"
        )
    chosen = {one for one in query.outputs.values() if not isinstance(one, ComputedExpression)}
    for one in query.streams:
        for key in one.keys if isinstance(one, Table) else ():
            if (one.name, key) not in chosen:
                raise InputError(f"output='upsert' needs the key of each table in select: add '{one.name}.{key}'")
