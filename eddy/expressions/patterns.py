"""Patterns: LIKE with SQL's escapes, and regular expressions, by Arrow."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc


def like(text: pc.Expression, pattern: str, escape: str | None, ignore_case: bool) -> pc.Expression | None:
    """Return whether a text matches a pattern of LIKE; None for a pattern that uses its escape wrongly.

    Without ESCAPE no character escapes another one, as in SQL's standard. Arrow's always escapes with a backslash.
    """
    arrow_pattern, k = "", 0
    while k < len(pattern):
        character = pattern[k]
        if character == escape:
            k += 1
            if k == len(pattern) or pattern[k] not in ("%", "_", escape):
                return None
            arrow_pattern += f"\\{pattern[k]}" if pattern[k] in "%_\\" else pattern[k]
        else:
            arrow_pattern += "\\\\" if character == "\\" else character
        k += 1
    return pc.match_like(text, arrow_pattern, ignore_case=ignore_case)


def regular(pattern: str) -> str | None:
    """Return why Arrow rejects a regular expression, None if it accepts it."""
    try:
        pc.match_substring_regex(pa.array(["a"]), pattern)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0]
    return None


def position(text: pc.Expression, part: str) -> pc.Expression:
    """Return the place of a part in a text, in characters from 1; 0 if it is not there.

    Arrow finds bytes, so what precedes the part is cut out and measured.
    """
    before = pc.replace_substring_regex(text, f"(?s){quoted(part)}.*", "", max_replacements=1)
    place = pc.add(pc.utf8_length(before), pc.scalar(pa.scalar(1, pa.int32()))).cast(pa.int64())
    return pc.if_else(pc.match_substring(text, part), place, pc.scalar(pa.scalar(0, pa.int64())))


def quoted(part: str) -> str:
    """Return a regular expression for a text itself."""
    return re.sub(r"([^\w\s])", r"\\\1", part, flags=re.ASCII) if part.isascii() else "".join(map(_character, part))


def _character(character: str) -> str:
    return re.sub(r"([^\w\s])", r"\\\1", character, flags=re.ASCII) if character.isascii() else character
