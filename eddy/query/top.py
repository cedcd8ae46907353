"""The first rows of each group: `Query(top=Top(…))`, and its columns among the rows that it reads, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from eddy.query.aggregate_functions import is_value
from eddy.streams.key_columns import HIDDEN
from eddy.streams.numbers import at_least
from stairs.errors import QueryError

_TERM = re.compile(r"(?P<column>.*?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.I | re.S)
MOST_ROWS = 1_000_000
"""The greatest n: a push writes the first n rows of a group whose answer changes."""
MOST_COLUMNS = 60
"""The greatest number of columns of `by`, and of the order: a word has a bit for each."""


@dataclass(frozen=True)
class Top:
    """The first `n` rows of each group in an order, as `ROW_NUMBER() OVER (PARTITION BY by ORDER BY order) <= n`.

    n      number of rows of a group, from 1 on
    by     columns "stream.column" whose values make a group, as a list or one text; empty = all rows are one group.
           Expressions of SQL may stand for columns. In a query with aggregates: the output columns of groups
    order  columns, each perhaps with "desc" and "nulls first": "bid.price desc". The default is ascending, and nulls
           last in both directions; NaN is greater than all numbers, texts are ordered by code point. Rows that are
           equal in these columns come in the order in which they arrived (docs/guide/semantics.md)
    rank   name of an additional output column, the number of the row in its group from 1 on; None = no column

    >>> Top(1, by="bid.auction", order=["bid.price desc", "bid.t"]).by
    ('bid.auction',)
    """

    n: int
    by: str | Iterable[str] = ()
    order: str | Iterable[str] = ()
    rank: str | None = None

    def __post_init__(self) -> None:
        n = at_least(1, self.n)
        if n is None or n > MOST_ROWS:
            raise QueryError(f"top: n is a number of rows from 1 to {MOST_ROWS:,}, not {self.n!r}")
        # A frozen class can set a field in this way only.
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "by", _texts(self.by, "by"))
        object.__setattr__(self, "order", _texts(self.order, "order"))
        if self.rank is not None and (not isinstance(self.rank, str) or not self.rank):
            raise QueryError(f"top: rank is the name of an output column or None, not {self.rank!r}")

    def __str__(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        order = f" order {', '.join(self.order)}" if self.order else ""
        return f"top {self.n}{by}{order}{f' as {self.rank}' if self.rank else ''}"


def _texts(given: object, what: str) -> tuple[str, ...]:
    """Return a tuple of texts. Raises QueryError."""
    listed = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else None
    if listed is None or not all(isinstance(text, str) and text.strip() for text in listed):
        raise QueryError(f"top: {what} is a column or a list of columns as text, not {given!r}")
    return tuple(text.strip() for text in listed)


class OrderColumn(NamedTuple):
    """A column of an order: its name among the rows, and its direction."""

    name: str
    descending: bool = False
    nulls_first: bool = False


class Ranking(NamedTuple):
    """A `Top` whose columns are those of the rows that it reads.

    by     names of the columns that make groups
    order  the order of a group; for rows of groups with the group columns at its end, so that no two rows are equal
    """

    top: Top
    by: tuple[str, ...]
    order: tuple[OrderColumn, ...]

    @property
    def n(self) -> int:
        """The number of rows of a group."""
        return self.top.n

    @property
    def keyed(self) -> bool:
        """Whether the group, or the group and the number of the row, identifies a row of the answer."""
        return self.top.n == 1 or self.top.rank is not None

    def check_types(self, rows: pa.Schema) -> None:
        """Raise QueryError unless the columns have values that can be compared. rows: the schema of the rows."""
        for what, names in (("by", self.by), ("order", [term.name for term in self.order])):
            for name in names:
                kind = rows.field(name).type
                if not is_value(kind):
                    raise QueryError(
                        f"top, {what}: {name.removeprefix(HIDDEN)} is {kind}, whose values cannot be compared;"
                        " use a column that can be a key"
                    )

    def with_rank(self, outputs: pa.Schema) -> pa.Schema:
        """Return the schema of the answer, given that of the selected columns. Raises QueryError for a used name."""
        rank = self.top.rank
        if rank is None:
            return outputs
        if rank in outputs.names:
            raise QueryError(f"top: the column of row numbers has the name of another output column, {rank!r}")
        return outputs.append(pa.field(rank, pa.int64(), False))


def order_term(text: str) -> tuple[str, bool, bool]:
    """Return the column of a text of an order, whether it is descending, and whether its nulls come first.

    >>> order_term("bid.price DESC NULLS FIRST")
    ('bid.price', True, True)
    """
    term = _TERM.fullmatch(text.strip())
    assert term is not None
    first = (term["nulls"] or "last").lower() == "first"
    return term["column"], (term["way"] or "asc").lower() == "desc", first


def ranking(top: object, ties: Iterable[str], column: Callable[[str, str], str]) -> Ranking:
    """Return a `Top` with the columns of the rows that it reads.

    ties    texts of the columns that decide between rows of equal order
    column  returns the name of a column among the rows, given its text and the place of the text for errors
    """
    if not isinstance(top, Top):
        raise QueryError(f"top must be eddy.Top(n, by, order), not {top!r}")
    by = tuple(column(text, "top, by") for text in top.by)
    order = []
    for text in top.order:
        name, descending, nulls_first = order_term(text)
        order.append(OrderColumn(column(name, "top, order"), descending, nulls_first))
    named = [term.name for term in order]
    order += [OrderColumn(name) for text in ties if (name := column(text, "top")) not in named]
    if max(len(by), len(order)) > MOST_COLUMNS:
        raise QueryError(f"top: by and order have at most {MOST_COLUMNS} columns, not {max(len(by), len(order))}")
    return Ranking(top, by, tuple(order))
