"""Options of the join of an INSERT: those of `eddy.spark.join`, as 'join.…' in the WITH of its target."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from eddy.program.text import PREFIX, Insertion, Setting
from eddy.spark import options
from eddy.spark.groups.operators import check_changelog, without_operators
from stairs.errors import EddyError, SqlError

OF_QUERIES = ("change", "output")
"""The options of a query in a statement set."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
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


Refused = Callable[[str], SqlError]
"""Makes the error about an option, at its place."""


def value_of(name: str, text: str, refused: Refused) -> str:
    """Return the text of an option with the values of environment variables in place of their names, ${NAME}."""

    def of_environment(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise refused(f"{name!r} needs the environment variable {match[1]}, which is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(of_environment, text)


def join_options(insertion: Insertion) -> dict[str, Any]:
    """Return the keyword arguments of `eddy.spark.join` that SET and the target of an INSERT give; the target counts.

    In a statement set, the options of SET belong to the hub (`set_options`), and the target has those of its query.

    Raises SqlError, at the place of the option, for an unknown option, and for a text that is no number.
    """
    target = insertion.target
    arguments: dict[str, Any] = {} if insertion.together else set_options(insertion.settings)
    for name, given in target.declared.options.items():
        if name.startswith(PREFIX):
            refused = partial(target.refused, name)
            if insertion.together and name.removeprefix(PREFIX) not in OF_QUERIES:
                raise refused(
                    f"{name!r} belongs to all INSERT of a statement set: write SET {name!r} = {given.text!r} before it"
                )
            arguments.update([_argument(name, given.text, refused)])
    return arguments


def set_options(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the keyword arguments that SET gives. Raises SqlError as `join_options`."""
    return dict(_argument(name, setting.text, setting.refused) for name, setting in settings.items())


def hub_options(insertion: Insertion) -> dict[str, Any]:
    """Return the keyword arguments of the hub of a statement set. Raises SqlError for options that a hub lacks."""
    given = set_options(insertion.settings)
    for name in given:
        if name not in options.HubKeywords.__optional_keys__ | options.HubKeywords.__required_keys__:
            option = PREFIX + name.replace("_", "-")
            raise insertion.settings[option].refused(
                f"{option!r} has no meaning for a statement set, whose queries share one job; SET it after END"
            )
    return given


def _argument(name: str, text: str, refused: Refused) -> tuple[str, Any]:
    """Return an option as a keyword argument."""
    option = name.removeprefix(PREFIX)
    if option not in JOIN_OPTIONS:
        every = ", ".join(f"{PREFIX}{known}" for known in JOIN_OPTIONS)
        raise refused(f"there is no option {name!r} of a join; there are {every}")
    value = value_of(name, text, refused)
    try:
        return option.replace("-", "_"), JOIN_OPTIONS[option](value)
    except ValueError as problem:
        raise refused(f"{name!r} is {problem}, not {value!r}") from None


def check_join(insertion: Insertion, given: dict[str, Any]) -> None:
    """Raise SqlError for options with which the join of an INSERT cannot run: each alone, and all of them together.

    Starts nothing.
    """
    try:
        without_operators(insertion.query)
    except EddyError as problem:
        raise insertion.target.refused(None, str(problem)) from problem
    for names in () if insertion.together else (*([name] for name in given), list(given)):
        try:
            engines, _, streaming = options.options_of({name: given[name] for name in names})
            engines.runtime(insertion.query, bounded=True)
            check_changelog(insertion.query, engines.output, streaming.change is not None)
        except EddyError as problem:
            place = PREFIX + names[0].replace("_", "-") if len(names) == 1 else None
            if place is not None and place in insertion.settings and place not in insertion.target.declared.options:
                raise insertion.settings[place].refused(str(problem)) from problem
            raise insertion.target.refused(place, str(problem)) from problem
