"""Options of the join of an INSERT: those of `eddy.spark.join`, as 'join.…' in the WITH of its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eddy.program.text import Insertion, ProgramTable
from eddy.query.query import Query
from eddy.spark import options
from stairs.errors import EddyError, PlanError

PREFIX = "join."
JOIN_OPTIONS: dict[str, Callable[[str], Any]] = {
    "plan": str,
    "strategy": str,
    "policy": str,
    "output": str,
    "background": int,
    "max-bytes": int,
    "partitions": int,
    "key-groups": int,
    "rebalance": str,
    "memory": str,
    "placement": str,
    "transport": str,
    "keep": int,
    "change": str,
    "idle-after": float,
}
"""Option -> the function that reads its text; `idle-after` is in seconds."""


def join_options(target: ProgramTable, text_of: Callable[[str, str], str]) -> dict[str, Any]:
    """Return the keyword arguments of `eddy.spark.join` that a target declares.

    text_of   takes the name and the text of an option; returns the text with the values of environment variables

    Raises SqlError, at the place of the option, for an unknown option, and for a value that it cannot have.
    """
    found: dict[str, Any] = {}
    for name, given in target.declared.options.items():
        if not name.startswith(PREFIX):
            continue
        option = name.removeprefix(PREFIX)
        if option not in JOIN_OPTIONS:
            every = ", ".join(f"{PREFIX}{one}" for one in JOIN_OPTIONS)
            raise target.refused(name, f"there is no option {name!r} of a join; there are {every}")
        text, keyword = text_of(name, given.text), option.replace("-", "_")
        try:
            found[keyword] = JOIN_OPTIONS[option](text)
        except ValueError:
            raise target.refused(name, f"{name!r} is a number, not {text!r}") from None
        try:
            options.options_of({keyword: found[keyword]})
        except EddyError as problem:
            raise target.refused(name, str(problem)) from problem
    return found


def check_join(insertion: Insertion, given: dict[str, Any]) -> None:
    """Raise SqlError for options with which the engines of the join of an INSERT cannot run. Starts nothing."""
    engines, _, _ = options.options_of(given)
    query: Query = insertion.query
    try:
        engines.runtime(query, bounded=True)
    except EddyError as problem:
        place = "plan" if isinstance(problem, PlanError) else next(iter(given), "")
        raise insertion.target.refused(f"{PREFIX}{place.replace('_', '-')}", str(problem)) from problem
