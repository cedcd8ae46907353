"""The scalar functions of the dialect, one entry each, and the kernel of Arrow that computes it.

docs/guide/sql.md has the table. A null argument makes the result null, except of COALESCE, GREATEST and LEAST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from sqlglot import exp

from eddy.dialect.calls import Call, Parts
from eddy.dialect.number_functions import NUMBER_FUNCTIONS
from eddy.dialect.text_functions import TEXT_FUNCTIONS
from eddy.dialect.time_functions import TIME_FUNCTIONS
from eddy.dialect.values import Value, null, widened

if TYPE_CHECKING:
    from eddy.dialect.scalars import Scalars


def call(scalars: Scalars, node: exp.Expression, name: str, given: Sequence[exp.Expression | None]) -> Value:
    """Return the value of a function. Raises SqlError for arguments that do not fit."""
    parts = [one for one in given if one is not None]
    own = CALLS[name]
    for part in parts:
        if isinstance(part, exp.Star | exp.Distinct):
            raise scalars.error(node, f"{name} takes no * and no DISTINCT")
    if len(parts) < own.least or (own.most is not None and len(parts) > own.most):
        wanted = str(own.least) if own.least == own.most else f"{own.least} to {own.most or 'any number of'}"
        raise scalars.error(node, f"{name} takes {wanted} arguments, and has {len(parts)}")
    return own.make(scalars, node, parts)


def _coalesce(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    values, kind = scalars.same(node, *parts)
    return Value(pc.coalesce(*(value.arrow for value in values)), kind)


def _nullif(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    equal = scalars.compared(node, parts[0], parts[1], exp.EQ)
    value = widened(scalars.value(parts[0]))
    return Value(pc.if_else(pc.coalesce(equal, pc.scalar(False)), null(value.kind), value.arrow), value.kind)


def _if(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    own = [one.copy() for one in parts]
    return scalars.value(exp.If(this=own[0], true=own[1], false=own[2] if len(own) > 2 else exp.Null()))


_IF = Call(2, 3, _if)

CALLS: dict[str, Call] = {
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    "COALESCE": Call(1, None, _coalesce),
    "IFNULL": Call(2, 2, _coalesce),
    "NVL": Call(2, 2, _coalesce),
    "NULLIF": Call(2, 2, _nullif),
    "IF": _IF,
    "IIF": _IF,
}
"""The functions by name."""
