"""The text of a statement: the tree that the parser finds in it, and errors with the line and the column of a node."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from eddy.expressions.grammar import EddyDialect, shown
from stairs.errors import SqlError

_SPAN = re.compile(r"\s*\S+(\s+[A-Za-z]+)?\s*")
_MARKS = re.compile(r"\x1b\[\d*m")


class StatementText:
    """The text of a statement, for the places of errors.

    before   the text before the text of the user
    """

    def __init__(self, text: str, what: str = "SQL", before: str = "") -> None:
        if not isinstance(text, str):
            raise SqlError(f"{what} must be a string, not {type(text).__name__}")
        self.text, self.what, self._before = before + text, what, len(before)
        self.windows: dict[int, Any] = {}
        """The window table functions that were taken out of the text, by the place of their table."""

    def error(self, node: exp.Expression | int | None, message: str) -> SqlError:
        """Return the error about a node of the tree, or about a character of the text."""
        offset = node if isinstance(node, int) else 0 if node is None else self.offset(node)
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        if line == 1:
            column = max(column - self._before, 1)
        return SqlError(f"{self.what}, line {line}, column {column}: {message}", line, column)

    def offset(self, node: exp.Expression) -> int:
        """Return where a node begins: at its keyword, or at the first of its parts whose place is known."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        first = int(min(starts)) if starts else 0 if node.parent is None else self.offset(node.parent)
        word = _WORDS.get(type(node).__name__)
        if word is None or "start" in node.meta:
            return first
        before = list(re.finditer(rf"\b{word}\b", self.text[: first + 1], re.IGNORECASE))
        return before[-1].start() if before else first

    def place(self, made: exp.Expression, node: exp.Expression) -> None:
        """Give the parts of a tree that was made, and whose place is unknown, the place of a node of the text."""
        start = self.offset(node)
        for part in made.walk():
            part.meta.setdefault("start", start)

    def keyword(self, node: exp.Expression, part: exp.Expression | None, word: str, before: bool = False) -> int:
        """Return where a part of a node begins: at the keyword, or at its first known place.

        before   whether the keyword stands before the node's first known place, as the keyword of a join does; other
                 keywords stand behind the first known place, unless no such keyword follows there
        """
        known = part is not None and (
            type(part).__name__ in _WORDS or any("start" in inner.meta for inner in part.walk())
        )
        place, first = self.offset(part if known and part is not None else node), word.split()[0]
        starts = [
            token.start for token in EddyDialect().tokenize(self.text) if token.text.upper().split()[:1] == [first]
        ]
        earlier, later = [start for start in starts if start <= place], [start for start in starts if start > place]
        if known or before or not later:
            return earlier[-1] if earlier else place
        return later[0]


_WORDS = {
    "Order": "ORDER",
    "Limit": "LIMIT",
    "Offset": "OFFSET",
    "Having": "HAVING",
    "Group": "GROUP",
    "Distinct": "DISTINCT",
    "Exists": "EXISTS",
    "Case": "CASE",
    "Cast": "CAST",
    "Interval": "INTERVAL",
    "Qualify": "QUALIFY",
    "Lateral": "LATERAL",
    "Extract": "EXTRACT",
    "Where": "WHERE",
    "With": "WITH",
}
"""The keyword with which a clause begins; sqlglot does not record the place of the keyword."""


def parse(source: StatementText) -> exp.Expression:
    """Return the tree of a statement. Raises SqlError for text that is no SQL."""
    try:
        statements = [
            statement for statement in sqlglot.parse(source.text, dialect=EddyDialect) if statement is not None
        ]
    except sqlglot.errors.ParseError as error:
        known = error.errors[0] if error.errors else {}
        what = _MARKS.sub("", str(known.get("description") or error)).splitlines()[0].rstrip(".")
        found_text = known.get("highlight") or ""
        place = int(known.get("line") or 1), int(known.get("col") or 1)
        raise _parse_error(source, what, str(found_text), *place) from error
    except sqlglot.errors.SqlglotError as error:
        raise source.error(None, f"the text cannot be split into words: {str(error).splitlines()[0]}") from error
    for token, other in pairwise(EddyDialect().tokenize(source.text)):
        # The parser omits the text after the unit.
        spanned = token.token_type == TokenType.INTERVAL and other.token_type == TokenType.STRING
        if spanned and not _SPAN.fullmatch(other.text):
            raise source.error(token.start, f"INTERVAL {other.text!r}: an interval has one number and one unit")
    for tree in statements:
        _require_parentheses(source, tree)
    if len(statements) != 1:
        raise source.error(
            None, f"one statement is expected, {len(statements)} were given; call sql() for each of them"
        )
    return statements[0]


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_OPEN = (exp.Not, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape)
"""Conditions that may take in a comparison that follows."""
_CONDITIONS = (*_COMPARISONS, *_OPEN, exp.Is, exp.In)


def _require_parentheses(source: StatementText, tree: exp.Expression) -> None:
    """Raise SqlError for a comparison of conditions without parentheses, which systems read in several ways."""
    for node in tree.find_all(*_COMPARISONS):
        for side, ambiguous in ((node.this, _OPEN), (node.expression, _CONDITIONS)):
            if isinstance(side, ambiguous):
                what = f"{shown(side)} and {shown(node)} follow each other, which systems read in several ways"
                raise source.error(side, f"{what}; put what comes first into parentheses")


def _parse_error(source: StatementText, what: str, unexpected: str, line: int, column: int) -> SqlError:
    """Return the error at a word that the parser did not expect; sqlglot counts columns to the end of the word."""
    lines = source.text.split("\n")
    offset = sum(len(previous) + 1 for previous in lines[: line - 1]) + max(column - len(unexpected), 0)
    word = unexpected.upper()
    remedy = next((text for key, text in UNPARSED.items() if word.startswith(key)), "")
    what = what[:1].lower() + what[1:]
    # The classes of the parser say nothing to users.
    what = re.sub(r"required keyword: '(\w+)' missing for .*", r"the \1 of an operator or function is missing", what)
    return source.error(offset, f"{what} at {unexpected!r}{remedy}" if unexpected else what)


UNPARSED = {
    "ORDER BY": "; sort the table of a push. (Patterns of rows are not supported: write joins with intervals.)",
    "SECOND": "; windows stand in GROUP BY: GROUP BY TUMBLE(at, INTERVAL '10' SECOND)",
    "MINUTE": "; windows stand in GROUP BY: GROUP BY TUMBLE(at, INTERVAL '10' MINUTE)",
    "HOUR": "; windows stand in GROUP BY: GROUP BY TUMBLE(at, INTERVAL '1' HOUR)",
    "MATCH_RECOGNIZE": "; patterns of rows are not supported: write a join with intervals between event times",
}
"""Remedies for words at which the parser stops."""
