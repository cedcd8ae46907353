"""The supported forms that replace a function with OVER (…), for error messages."""

from __future__ import annotations

from sqlglot import exp

from eddy.expressions.grammar import printed

_ANY = (
    "write GROUP BY with TUMBLE, HOP or SESSION, a join of the stream with itself, or for the first rows of groups"
    " ROW_NUMBER() OVER (…) AS rn in a subquery, and WHERE rn <= n around it"
)
REFUSED = "OVER (…) is not supported: a row of a stream has no last follower"
_AGGREGATES = "AVG", "SUM", "COUNT", "MIN", "MAX"


def nearest_form(call: exp.Window) -> str:
    """Return the nearest form that is supported, as text.

    An aggregate over the newest rows has one: their numbers, and the aggregate of the first ones.
    """
    function, order, last = call.this, call.args.get("order"), _rows_of(call.args.get("spec"))
    name = str(function.this).upper() if isinstance(function, exp.Anonymous) else ""
    if name not in _AGGREGATES or order is None or last is None or len(function.expressions) != 1:
        return _ANY
    keys = call.args.get("partition_by") or []
    turned = ", ".join(f"{printed(term.this)}{'' if term.args.get('desc') else ' DESC'}" for term in order.expressions)
    partition = f"PARTITION BY {', '.join(map(printed, keys))} " if keys else ""
    by = ", ".join(map(_outside, keys))
    return (
        f"for the newest {last} rows{' of each group' if keys else ''} as they are now, write SELECT"
        f" {by}{', ' if keys else ''}{_outside(function)} FROM (SELECT *, ROW_NUMBER() OVER"
        f" ({partition}ORDER BY {turned}) AS rn FROM …) WHERE rn <= {last}{f' GROUP BY {by}' if keys else ''}"
    )


def _outside(tree: exp.Expression) -> str:
    """Return a tree as text outside of the subquery that has its columns."""
    copied = tree.copy()
    for column in copied.find_all(exp.Column):
        column.set("table", None)
    return printed(copied)


def _rows_of(frame: exp.Expression | None) -> int | None:
    """Return the number of rows of ROWS [BETWEEN] n PRECEDING [AND CURRENT ROW], None for any other frame."""
    if frame is None or str(frame.args.get("kind")).upper() != "ROWS":
        return None
    start, end = frame.args.get("start"), frame.args.get("end")
    number = str(start.this) if isinstance(start, exp.Literal) else ""
    backwards = str(frame.args.get("start_side")).upper() == "PRECEDING"
    return int(number) + 1 if number.isdigit() and backwards and end in (None, "CURRENT ROW") else None
