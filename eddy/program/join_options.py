"""Options of the join of an INSERT: those of `eddy.spark.join`, as 'join.…' in the WITH of its target."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from eddy.program.text import Insertion, ProgramTable
from eddy.spark import options
from eddy.spark.groups.operators import check_changelog, without_operators
from stairs.errors import EddyError

PREFIX = "join."
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number of seconds") from None


def _bytes(text: str) -> int | str:
    return _whole(text) if _WHOLE.fullmatch(text) else text


JOIN_OPTIONS: dict[str, Callable[[str], Any]] = {
    "plan": str,
    "strategy": str,
    "policy": str,
    "output": str,
    "background": _whole,
    "max-bytes": _whole,
    "partitions": _whole,
    "key-groups": _whole,
    "rebalance": str,
    "memory": _bytes,
    "placement": str,
    "transport": str,
    "keep": _whole,
    "change": str,
    "idle-after": _seconds,
}
"""Option -> the function that reads its text."""


def join_options(target: ProgramTable, text_of: Callable[[str, str], str]) -> dict[str, Any]:
    """Return the keyword arguments of `eddy.spark.join` that a target declares.

    text_of   takes the name and the text of an option; returns the text with the values of environment variables

    Raises SqlError, at the place of the option, for an unknown option, and for a text that is no number.
    """
    arguments: dict[str, Any] = {}
    for name, given in target.declared.options.items():
        if not name.startswith(PREFIX):
            continue
        option = name.removeprefix(PREFIX)
        if option not in JOIN_OPTIONS:
            every = ", ".join(f"{PREFIX}{known}" for known in JOIN_OPTIONS)
            raise target.refused(name, f"there is no option {name!r} of a join; there are {every}")
        text, keyword = text_of(name, given.text), option.replace("-", "_")
        try:
            arguments[keyword] = JOIN_OPTIONS[option](text)
        except ValueError as problem:
            raise target.refused(name, f"{name!r} is {problem}, not {text!r}") from None
    return arguments


def check_join(insertion: Insertion, given: dict[str, Any]) -> None:
    """Raise SqlError for options with which the join of an INSERT cannot run: each alone, and all of them together.

    Starts nothing.
    """
    try:
        without_operators(insertion.query)
    except EddyError as problem:
        raise insertion.target.refused(None, str(problem)) from problem
    for names in (*([name] for name in given), list(given)):
        try:
            engines, _, streaming = options.options_of({name: given[name] for name in names})
            engines.runtime(insertion.query, bounded=True)
            check_changelog(insertion.query, engines.output, streaming.change is not None)
        except EddyError as problem:
            place = PREFIX + names[0].replace("_", "-") if len(names) == 1 else None
            raise insertion.target.refused(place, str(problem)) from problem
