"""The name that a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like a name, in words for an error; an empty text if none is.

    >>> nearest("clikcs", ["clicks", "buys"]), nearest("users", ["clicks"])
    (' (the nearest is clicks)', '')
    """
    by_letters = {text.lower(): text for text in known}
    near = get_close_matches(str(name).lower(), by_letters, 1)
    return f" (the nearest is {by_letters[near[0]]})" if near else ""


def no_stream(name: object, known: Iterable[str]) -> str:
    """Return the error of a stream that does not exist."""
    names = list(known)
    return f"there is no stream {name!r}{nearest(name, names)}; the streams are {', '.join(names)}"


def no_column(place: str, column: object, known: Iterable[str]) -> str:
    """Return the error of a column that the stream or table `place` lacks: "stream R", "table T"."""
    names = list(known)
    return f"{place} has no column {column!r}{nearest(column, names)}; its columns are {', '.join(names)}"
