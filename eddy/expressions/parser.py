"""Predicates as text.

    R.a = S.a                                   an equality; (R.a, R.b) = (S.a, S.b) is two
    R.x between S.y - 5 and S.y + 5             comparisons of two streams: <, <=, >, >=, <>, != and BETWEEN
    R.at <= S.at + 30 min                       an amount is a number, or a span of time with its unit
    R.a = S.a AND R.x < S.y                     several in one text
    LOWER(R.a) = S.a                            any other condition of SQL (`eddy.expressions.written`)

Names other than plain words stand in double quotes. sqlglot splits the text, so the rules for quotes, comments and
white space are those of SQL.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

import sqlglot
from sqlglot.tokens import TokenType

from eddy.expressions.conditions import SqlPredicate
from stairs.errors import QueryError

Column = tuple[str, str]
"""(stream, column)"""

SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
    "w": Fraction(604_800),
}
"""The seconds of each unit of a span."""
_UNITS = {
    "nanosecond": "ns",
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
}
"""Other names of the units, without the s of a plural."""


def unit_seconds(name: str) -> Fraction | None:
    """Return the seconds of a unit of time by its name, such as "min" or "minutes"; None for every other word."""
    for spelling in (name.lower(), name.lower().removesuffix("s")):
        if (seconds := SECONDS.get(_UNITS.get(spelling, spelling))) is not None:
            return seconds
    return None


_OPERATORS = {
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
    TokenType.NEQ: "!=",
    TokenType.EQ: "=",
}
_NUMBER = re.compile(r"(?=[\d.]{1,41}([eE]|$))\d+(\.\d*)?([eE][+-]?\d{1,3})?")
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "=": "="}
"""Each operator, and the operator after an exchange of both sides."""


class Amount(NamedTuple):
    """A constant that is added to a column: a number, or a span of time in seconds (`is_span`)."""

    value: Fraction = Fraction(0)
    is_span: bool = False


NOTHING = Amount()


class Term(NamedTuple):
    """A column plus an amount."""

    column: Column
    amount: Amount = NOTHING


class WrittenComparison(NamedTuple):
    """A comparison as it was written: `left` operator `right`; `text` is the predicate that contains it."""

    left: Term
    operator: str
    right: Term
    text: str


class Parsed(NamedTuple):
    """The predicates of a query, in order: pairs of equal columns, comparisons, and conditions that are neither."""

    equalities: list[tuple[Column, Column]]
    comparisons: list[WrittenComparison]
    conditions: list[SqlPredicate]

    def extend(self, other: Parsed) -> None:
        """Add the predicates of another object."""
        self.equalities.extend(other.equalities)
        self.comparisons.extend(other.comparisons)
        self.conditions.extend(other.conditions)


class _PredicateReader:
    """Parser of predicates from the tokens of sqlglot. A keyword is a name here, so a stream may be called order."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what, self.at = text, what, 0
        try:
            self.tokens = sqlglot.tokenize(text)
        except sqlglot.errors.SqlglotError as error:
            raise QueryError(f"{what} {text!r} cannot be parsed: {str(error).splitlines()[0]}") from error

    def wrong(self, expected: str) -> QueryError:
        """Return the error for the current token, with what was expected in its place."""
        actual = repr(self.tokens[self.at].text) if self.at < len(self.tokens) else "its end"
        return QueryError(
            f"{self.what} {self.text!r}: {expected} expected at {actual}; write 'R.a = S.a', '(R.a, R.b) = (S.a, S.b)',"
            " 'R.x between S.y - 5 and S.y + 5', 'R.at <= S.at + 30 min', several with AND, and"
            ' "odd stream"."odd column" in quotes'
        )

    def ahead(self, kind: TokenType) -> bool:
        """Return whether the next token is of this kind."""
        return self.at < len(self.tokens) and self.tokens[self.at].token_type == kind

    def took(self, kind: TokenType) -> bool:
        """Skip the next token if it is of this kind; return whether it was."""
        if self.ahead(kind):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        """Parse the name of a stream or column."""
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.token_type == TokenType.IDENTIFIER or re.fullmatch(r"[^\W\d]\w*", token.text):
                self.at += 1
                return str(token.text)
        raise self.wrong("a name")

    def column(self) -> Column:
        """Parse stream.column."""
        stream = self.name()
        if not self.took(TokenType.DOT):
            raise self.wrong("'.' and a column")
        return stream, self.name()

    def unit(self) -> Fraction | None:
        """Parse a unit of time, if the next token is one; return its seconds."""
        if self.at < len(self.tokens) and self.tokens[self.at].token_type != TokenType.IDENTIFIER:
            seconds = unit_seconds(str(self.tokens[self.at].text))
            self.at += seconds is not None
            return seconds
        return None

    def amount(self) -> Amount:
        """Parse a number, a number and a unit, or an INTERVAL of SQL."""
        span = self.took(TokenType.INTERVAL)
        if span and self.ahead(TokenType.STRING):
            inner = _PredicateReader(self.tokens[self.at].text, f"{self.what} {self.text!r}: interval")
            self.at += 1
            value, seconds = inner.number(), inner.unit()
            if inner.at < len(inner.tokens):
                raise inner.wrong("one number and one unit")
        else:
            value, seconds = self.number(), None
        if seconds is None:
            seconds = self.unit()
        word = self.at < len(self.tokens) and self.tokens[self.at].token_type == TokenType.VAR
        if seconds is None and (span or word):
            raise self.wrong(f"a unit of time ({', '.join(SECONDS)}, or a name such as minutes)")
        return Amount(value) if seconds is None else Amount(value * seconds, True)

    def number(self) -> Fraction:
        """Parse a number, with an optional sign."""
        negative = self.took(TokenType.DASH)
        text = "0." if self.took(TokenType.DOT) else ""
        if not self.ahead(TokenType.NUMBER):
            raise self.wrong("a number")
        text += str(self.tokens[self.at].text)
        if not _NUMBER.fullmatch(text):
            raise QueryError(
                f"{self.what} {self.text[:200]!r}: {text[:50]!r} is not a number of up to 40 digits with an exponent of"
                " up to 3 digits, such as 12, 0.5 or 1e6"
            )
        self.at += 1
        return -Fraction(text) if negative else Fraction(text)

    def term(self) -> Term:
        """Parse a column, and amounts that are added to it or subtracted from it."""
        column, total, amounts = self.column(), NOTHING, 0
        while self.ahead(TokenType.PLUS) or self.ahead(TokenType.DASH):
            sign = 1 if self.took(TokenType.PLUS) else -1
            self.at += sign < 0
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].token_type == TokenType.DOT:
                raise QueryError(
                    f"{self.what} {self.text!r} has two columns on one side; bring one of them to the other side, as in"
                    " 'R.x <= S.y + 5', and write what has more than two columns as a Predicate in where="
                )
            amount = self.amount()
            if amounts and amount.is_span != total.is_span:
                raise QueryError(f"{self.what} {self.text!r} adds a number and a span of time; give both a unit")
            total, amounts = Amount(total.value + sign * amount.value, amount.is_span), amounts + 1
        return Term(column, total)

    def tuple_of_columns(self) -> list[Column]:
        """Parse columns in parentheses."""
        self.at += 1
        columns = [self.column()]
        while self.took(TokenType.COMMA):
            columns.append(self.column())
        if not self.took(TokenType.R_PAREN):
            raise self.wrong("',' or ')'")
        return columns

    def predicate(self, parsed: Parsed) -> None:
        """Parse one predicate."""
        if self.ahead(TokenType.L_PAREN):
            left = self.tuple_of_columns()
            if not self.took(TokenType.EQ):
                raise self.wrong("'=', which alone takes columns in parentheses,")
            right = self.tuple_of_columns() if self.ahead(TokenType.L_PAREN) else [self.column()]
            if len(left) != len(right):
                raise QueryError(
                    f"{self.what} {self.text!r}: {len(left)} columns on one side and {len(right)} on the other"
                )
            parsed.equalities.extend(zip(left, right, strict=True))
            return
        term = self.term()
        if self.took(TokenType.BETWEEN):
            low = self.term()
            if not self.took(TokenType.AND):
                raise self.wrong("AND and the upper bound of BETWEEN")
            parsed.comparisons.append(WrittenComparison(term, ">=", low, self.text))
            parsed.comparisons.append(WrittenComparison(term, "<=", self.term(), self.text))
            return
        operator = _OPERATORS.get(self.tokens[self.at].token_type) if self.at < len(self.tokens) else None
        if operator is None:
            raise self.wrong("'=', a comparison (<, <=, >, >=, <>) or BETWEEN")
        self.at += 1
        if self.ahead(TokenType.L_PAREN):
            raise QueryError(
                f"{self.what} {self.text!r}: columns in parentheses need as many on the other side, joined by '=';"
                " a column alone stands without parentheses"
            )
        other = self.term()
        if operator == "=" and not term.amount.value and not other.amount.value:
            parsed.equalities.append((term.column, other.column))
        else:
            parsed.comparisons.append(WrittenComparison(term, operator, other, self.text))

    def predicates(self, parsed: Parsed) -> None:
        """Parse predicates joined by AND, to the end of the text."""
        while True:
            self.predicate(parsed)
            if self.at == len(self.tokens):
                return
            if not self.took(TokenType.AND):
                raise self.wrong("AND or the end")


def parse_plain(text: str) -> Parsed:
    """Return the predicates in a text of the grammar above. Raises QueryError for any other text."""
    parsed = Parsed([], [], [])
    _PredicateReader(text, "predicate").predicates(parsed)
    return parsed


def column_place(text: str) -> Column | None:
    """Return the (stream, column) of a text such as `R.a` or `"odd stream"."odd column"`, None for other text."""
    try:
        reader = _PredicateReader(text, "column")
        place = reader.column()
    except QueryError:
        return None
    return place if reader.at == len(reader.tokens) else None
