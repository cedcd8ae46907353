"""As-of joins in a statement: FOR SYSTEM_TIME AS OF of a joined table, and ASOF JOIN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from eddy.expressions.grammar import printed
from eddy.expressions.occurrences import Occurrences
from eddy.expressions.source import StatementText
from eddy.expressions.trees import bare, place_of
from eddy.query.as_of import AsOf
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable


@dataclass
class AsOfPart:
    """An as-of join of a part.

    number      the occurrence of the versioned table
    how         whether rows without a version stay
    conditions  the conjuncts of ON, and of USING, without the comparison of times
    at          the time for which a version is wanted, None = the arrival of a row
    node        where it stands
    compared    the column of the table that ASOF JOIN compares with this time; None = FOR SYSTEM_TIME AS OF
    """

    number: int
    how: Literal["inner", "left"]
    conditions: list[exp.Expression]
    at: exp.Expression | None
    node: exp.Expression
    compared: exp.Expression | None = None


def is_as_of(join: exp.Join) -> bool:
    """Return whether a join is an as-of join."""
    return str(join.args.get("method") or "").upper() == "ASOF" or join.this.args.get("version") is not None


def side_of(join: exp.Join, source: StatementText) -> Literal["inner", "left"]:
    """Return whether rows without a version stay. Raises SqlError for a side that an as-of join cannot have."""
    side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise source.error(join, f"an as-of join is an inner or a LEFT join, not {f'{side} {kind}'.strip()}")
    return "left" if side else "inner"


def divided(
    number: int, conditions: list[exp.Expression], join: exp.Join, source: StatementText
) -> tuple[exp.Expression, exp.Expression, list[exp.Expression]]:
    """Return both sides of the comparison of ASOF JOIN, that of the rows first, and its other conditions.

    number   the occurrence of the versioned table

    Raises SqlError unless one condition is a comparison of times.
    """
    comparisons: list[exp.Expression] = []
    rest: list[exp.Expression] = []
    for condition in conditions:
        inner = bare(condition)
        (comparisons if isinstance(inner, exp.GTE | exp.LTE | exp.GT | exp.LT) else rest).append(inner)
    if len(comparisons) != 1:
        raise source.error(
            join, "ASOF JOIN has one comparison of times in ON: row.time >= table.time, besides equalities of keys"
        )
    (compared,) = comparisons
    left = place_of(compared.this)
    turned = left is not None and left[0] == number
    table_side, other = (compared.this, compared.expression) if turned else (compared.expression, compared.this)
    if place_of(other) is None or (place_of(table_side) or (None,))[0] != number:
        raise source.error(compared, "the comparison of ASOF JOIN is between a column of the table and one of the rows")
    if not isinstance(compared, exp.LTE if turned else exp.GTE):
        raise source.error(
            compared,
            f"ASOF JOIN finds the version that is valid: write {printed(other)} >= the time of the table. For later"
            " versions, pass as_of=[AsOf(…, direction='forward', tolerance=…)] to eddy.Query",
        )
    return other, table_side, rest


def as_of(part: AsOfPart, joins: Occurrences) -> AsOf:
    """Return an as-of join as a query takes it. Raises SqlError for a table, time or condition that does not fit."""
    source, table = joins.source, joins.streams[part.number]
    place = None if part.at is None else place_of(part.at)
    if part.at is None and not isinstance(table, Table):
        raise source.error(part.node, f"PROCTIME() looks up the rows of a table; give {table.name} as eddy.Table(…)")
    if part.at is not None and not isinstance(table, VersionedTable):
        remedy = "give it as eddy.VersionedTable(…), or write FOR SYSTEM_TIME AS OF PROCTIME() for an eddy.Table"
        raise source.error(part.node, f"{table.name} is no table with versions; {remedy}")
    if part.at is not None and (place is None or joins.streams[place[0]].time != place[1]):
        raise source.error(part.at, f"{printed(part.at)} is not the time column of a stream, Stream(…, time=…)")
    assert isinstance(table, Table | VersionedTable)
    compared = None if part.compared is None else place_of(part.compared)
    if compared is not None and compared[1] != table.time:
        raise source.error(part.compared, f"the versions of {table.name} begin at their column {table.time!r}")
    texts = []
    for condition in part.conditions:
        text = joins.predicate_text(condition)
        if text is None or not isinstance(condition, exp.EQ):
            remedy = (
                "write this in WHERE" if part.how == "inner" else "give the table a filter, VersionedTable(filter=…)"
            )
            raise source.error(
                condition, f"ON of an as-of join has equalities with the key of {table.name} only; {remedy}"
            )
        texts.append(text)
    return AsOf(table, texts, None if place is None else joins.name_of(place), part.how)
