"""The scalar functions of the dialect, one entry each, and the kernel of Arrow that computes it.

docs/guide/sql.md has the table. A null argument makes the result null, except of COALESCE, GREATEST and LEAST.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.calls import Call, Operands, Parts
from eddy.expressions.number_functions import NUMBER_FUNCTIONS
from eddy.expressions.text_functions import TEXT_FUNCTIONS
from eddy.expressions.time_functions import TIME_FUNCTIONS
from eddy.expressions.values import Value, null, widened


def call(operands: Operands, node: exp.Expression, name: str, given: Sequence[exp.Expression | None]) -> Value:
    """Return the value of a function. Raises SqlError for arguments that do not fit."""
    parts = [argument for argument in given if argument is not None]
    function = CALLS[name]
    for part in parts:
        if isinstance(part, exp.Star | exp.Distinct):
            raise operands.error(node, f"{name} takes no * and no DISTINCT")
    if len(parts) < function.least or (function.most is not None and len(parts) > function.most):
        wanted = (
            str(function.least)
            if function.least == function.most
            else f"{function.least} to {function.most or 'any number of'}"
        )
        raise operands.error(node, f"{name} takes {wanted} arguments, and has {len(parts)}")
    return function.make(operands, node, parts)


def _coalesce(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    values, kind = operands.same(node, *parts)
    return Value(pc.coalesce(*(value.arrow for value in values)), kind)


def _nullif(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    equal = operands.compared(node, parts[0], parts[1], exp.EQ)
    value = widened(operands.value(parts[0]))
    return Value(pc.if_else(pc.coalesce(equal, pc.scalar(False)), null(value.kind), value.arrow), value.kind)


def _if(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    copies = [part.copy() for part in parts]
    return operands.value(exp.If(this=copies[0], true=copies[1], false=copies[2] if len(copies) > 2 else exp.Null()))


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
