"""The output modes: which changes of the answer a push returns.

append     each result when it comes
changelog  also results that end, with a column `op`
upsert     as a changelog, without the old row of a result that another one replaces: rows by key
"""

from __future__ import annotations

from stairs.errors import InputError

OUTPUTS = ("append", "changelog", "upsert")
UNORDERED = (
    "ordered is for the results of a join, and this query has aggregates, whose rows come in the order of their"
    " windows: leave it out, and sort the groups of a window by a column"
)
"""Why groups cannot be ordered."""


def check_output(output: str) -> None:
    """Raise InputError for an output mode that does not exist."""
    if output not in OUTPUTS:
        raise InputError(f"output is one of {', '.join(map(repr, OUTPUTS))}, not {output!r}")


def takes_back(output: str) -> bool:
    """Return whether an output mode has rows for results that end."""
    return output != "append"
