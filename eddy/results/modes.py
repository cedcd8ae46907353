"""The output modes: "append" returns results when they come, "changelog" also those that end, with an op column."""

from __future__ import annotations

from stairs.errors import InputError

OUTPUTS = ("append", "changelog")


def check_output(output: str) -> None:
    """Raise InputError for an output mode that does not exist."""
    if output not in OUTPUTS:
        raise InputError(f"output is one of {', '.join(map(repr, OUTPUTS))}, not {output!r}")
