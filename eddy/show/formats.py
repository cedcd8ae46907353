"""The formats of `explain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from eddy.show.description import Description
from eddy.show.dot import as_dot
from eddy.show.svg import as_svg
from eddy.show.text import as_text
from eddy.show.values import as_json
from stairs.errors import InputError

Format = Literal["text", "json", "dot", "svg"]
FORMATS: dict[str, Callable[[Description], str]] = {"text": as_text, "json": as_json, "dot": as_dot, "svg": as_svg}
"""The renderer of each format."""


def checked_format(format: str) -> str:
    """Return the format. Raises InputError for a format that does not exist."""
    if format not in FORMATS:
        raise InputError(f"explain: format is one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    return format
