"""Scalar functions of the dialect: how many arguments one takes, and what makes its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from eddy.dialect.values import Value

if TYPE_CHECKING:
    from eddy.dialect.scalars import Scalars

Parts = Sequence[exp.Expression]
Make = Callable[["Scalars", exp.Expression, Parts], Value]


class Call(NamedTuple):
    """A function: the least and the greatest number of arguments, None = any; and what makes its value."""

    least: int
    most: int | None
    make: Make


def whole_number(scalars: Scalars, part: exp.Expression, what: str) -> int:
    """Return an argument that must be a constant whole number. Raises SqlError for another one."""
    sign, own = (-1, part.this) if isinstance(part, exp.Neg) else (1, part)
    if not isinstance(own, exp.Literal) or own.is_string or not str(own.this).isdigit():
        raise scalars.error(part, f"{what} must be a constant whole number, since Arrow takes it as an option")
    return sign * int(str(own.this))


def constant_text(scalars: Scalars, part: exp.Expression, what: str) -> str:
    """Return an argument that must be a constant string. Raises SqlError for another one."""
    if not isinstance(part, exp.Literal) or not part.is_string:
        raise scalars.error(part, f"{what} must be a constant string, since Arrow takes it as an option")
    return str(part.this)
