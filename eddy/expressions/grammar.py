"""The grammar: sqlglot's parser and printer, with the quotes of Spark and Flink; functions stay as they were written.

sqlglot gives its own name to many functions (NVL becomes COALESCE). Here a function keeps its name, so that the
functions of the dialect are those of `eddy.expressions.functions` and an error names what the user wrote.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar

from sqlglot import exp, generator, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import TokenType


class EddyDialect(Dialect):
    """The dialect."""

    # The tree has the position of nulls in an order only if the text states the position.
    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(tokens.Tokenizer):
        """Identifiers stand in double quotes or, as in Spark and Flink, in backticks."""

        IDENTIFIERS: ClassVar = ['"', "`"]
        # SESSION is a window, not a keyword.
        KEYWORDS: ClassVar = {
            **{word: kind for word, kind in tokens.Tokenizer.KEYWORDS.items() if word != "SESSION"},
            "//": TokenType.DIV,
            "DIV": TokenType.DIV,
        }

    class Parser(parser.Parser):
        """Functions with a syntax of their own, such as CAST, are parsed; all others stay `exp.Anonymous`."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION", "FLOOR", "CEIL")
        }

        # IS applies to a whole comparison, as in Spark, PostgreSQL and DuckDB; older parsers have no such option.
        IS_PREDICATE_PRECEDENCE: ClassVar = getattr(getattr(parser, "IsPredicatePrecedence", None), "LOW", None)

        def _parse_ordered(self, parse_method: Any = None) -> exp.Ordered | None:
            """Return a term of ORDER BY, which records whether the text states the position of nulls."""
            term: exp.Ordered | None = super()._parse_ordered(parse_method)
            words = [token.text.upper() for token in self._tokens[max(self._index - 2, 0) : self._index]]
            if term is not None and words in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
                term.meta["nulls"] = " ".join(words)
            return term

        def _parse_field_def(self) -> Any:
            """Return a column of CREATE TABLE, or WATERMARK FOR t AS x as a call of WATERMARK."""
            if not self._match_text_seq("WATERMARK", "FOR"):
                return super()._parse_field_def()
            parts = [self._parse_id_var()]
            if self._match(TokenType.ALIAS):
                parts.append(self._parse_bitwise())
            return exp.Anonymous(this="WATERMARK", expressions=[part for part in parts if part is not None])

    class Generator(generator.Generator):
        """Prints trees as text that the parser reads back."""

        def intdiv_sql(self, expression: exp.Expression) -> str:
            """Print an integer division."""
            return self.binary(expression, "DIV")

        def strposition_sql(self, expression: exp.Expression) -> str:
            """Print POSITION."""
            return f"POSITION({self.sql(expression, 'substr')} IN {self.sql(expression, 'this')})"

        def trim_sql(self, expression: exp.Expression) -> str:
            """Print TRIM with the side and the characters."""
            characters, text = self.sql(expression, "expression"), self.sql(expression, "this")
            side = expression.args.get("position") or ""
            if not characters and not side:
                return f"TRIM({text})"
            return f"TRIM({' '.join(filter(None, (side, characters)))} FROM {text})"


@cache
def reserved() -> frozenset[str]:
    """Return the words that are no plain names."""
    return frozenset(word for word in EddyDialect.Tokenizer.KEYWORDS if word.isalpha())


def identifier(name: str) -> exp.Identifier:
    """Return a name, in quotes unless it is a plain word."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.upper() not in reserved()
    return exp.Identifier(this=name, quoted=not plain)


def printed(node: exp.Expression) -> str:
    """Return a tree as text."""
    return str(node.sql(dialect=EddyDialect))


def shown(node: exp.Expression) -> str:
    """Return the name of a node in errors."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()
    return _NAMES.get(type(node).__name__, type(node).__name__.upper())


_NAMES = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "IntDiv": "DIV",
    "Mod": "%",
    "Neg": "-",
    "DPipe": "||",
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
    "Escape": "LIKE",
    "RegexpLike": "RLIKE",
    "ILike": "ILIKE",
    "SimilarTo": "SIMILAR TO",
    "Tuple": "a row in parentheses",
    "CurrentTimestamp": "CURRENT_TIMESTAMP",
    "CurrentDate": "CURRENT_DATE",
    "IgnoreNulls": "IGNORE NULLS",
    "RespectNulls": "RESPECT NULLS",
    "HavingMax": "HAVING MAX",
    "WithinGroup": "WITHIN GROUP",
    "GroupingSets": "GROUPING SETS",
    "AtTimeZone": "AT TIME ZONE",
    "Bracket": "a field in brackets",
    "Dot": "a field",
    "Kwarg": "a named argument",
    "Placeholder": "a parameter",
    "Parameter": "a parameter",
    "Star": "*",
}
