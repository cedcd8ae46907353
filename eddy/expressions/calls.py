"""Scalar functions of the dialect: how many arguments one takes, and what makes its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.values import Value

Parts = Sequence[exp.Expression]


class Operands(Protocol):
    """The maker of values of the operands of a function or an operator: `eddy.expressions.scalars.Scalars`."""

    def error(self, node: exp.Expression, message: str) -> Exception:
        """Return an error with the place of a node."""

    def value(self, node: exp.Expression) -> Value:
        """Return the value of a node."""

    def numbers(self, node: exp.Expression, *parts: exp.Expression) -> list[Value]:
        """Return the values of parts that must be numbers."""

    def number(self, node: exp.Expression, text: str) -> Value:
        """Return the value of a number in a text."""

    def text(self, node: exp.Expression, part: exp.Expression) -> Value:
        """Return the value of a part that must be a string."""

    def same(self, node: exp.Expression, *parts: exp.Expression) -> tuple[list[Value], pa.DataType]:
        """Return the values of parts in one type, and this type."""

    def compared(self, node: exp.Expression, left: exp.Expression, right: exp.Expression, kind: type) -> pc.Expression:
        """Return the comparison of two parts."""

    def concatenated(self, node: exp.Expression, parts: list[exp.Expression]) -> Value:
        """Return the concatenation of parts."""


Make = Callable[[Operands, exp.Expression, Parts], Value]


class Call(NamedTuple):
    """A function: the least and the greatest number of arguments, None = any; and what makes its value."""

    least: int
    most: int | None
    make: Make


def whole_number(operands: Operands, part: exp.Expression, what: str) -> int:
    """Return an argument that must be a constant whole number. Raises SqlError for another one."""
    sign, literal = (-1, part.this) if isinstance(part, exp.Neg) else (1, part)
    if not isinstance(literal, exp.Literal) or literal.is_string or not str(literal.this).isdigit():
        raise operands.error(part, f"{what} must be a constant whole number, since Arrow takes it as an option")
    return sign * int(str(literal.this))


def constant_text(operands: Operands, part: exp.Expression, what: str) -> str:
    """Return an argument that must be a constant string. Raises SqlError for another one."""
    if not isinstance(part, exp.Literal) or not part.is_string:
        raise operands.error(part, f"{what} must be a constant string, since Arrow takes it as an option")
    return str(part.this)
