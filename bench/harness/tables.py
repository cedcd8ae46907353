"""Rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.harness.figure import ReportTable, Row, Scalar


def number_text(value: float) -> str:
    """Return a number with three significant digits, or all digits before the point.

    >>> number_text(0.61789), number_text(12.3456), number_text(20_123_456.0), number_text(14321.6)
    ('0.618', '12.3', '20.1 M', '14 322')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def cell(value: Scalar) -> str:
    """Return the text of a table cell: empty for a missing value, all digits of an int below a million."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) < 1_000_000:
        return f"{value:,}".replace(",", " ")
    return number_text(value) if isinstance(value, int | float) else str(value).replace("|", "\\|")


def chosen(rows: Sequence[Row], where: Mapping[str, Scalar]) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]


def markdown(heads: Sequence[str], body: Sequence[Sequence[Scalar]]) -> list[str]:
    """Return the lines of a table."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in body]


def table_text(table: ReportTable, rows: Sequence[Row]) -> list[str]:
    """Return a table as lines of Markdown, its title first; no lines if no row belongs to the table.

    Columns without values are left out.
    """
    rows = [row for row in chosen(rows, table.where) if any(row.get(name) is not None for name in table.value)]
    if not rows:
        return []
    if table.across is None:
        names = [name for name in table.value if any(row.get(name) is not None for row in rows)]
        body = [[row.get(name) for name in (*table.rows, *names)] for row in rows]
        return [f"{table.title}:", "", *markdown([*table.rows.values(), *(table.value[name] for name in names)], body)]
    (value,) = table.value
    keys = list(dict.fromkeys(tuple(row.get(name) for name in table.rows) for row in rows))
    across = list(dict.fromkeys(row.get(table.across) for row in rows))
    cells = {(tuple(row.get(name) for name in table.rows), row.get(table.across)): row.get(value) for row in rows}
    body = [[*key, *(cells.get((key, name)) for name in across)] for key in keys]
    title = f"{table.title} ({table.value[value]}):"
    return [title, "", *markdown([*table.rows.values(), *map(cell, across)], body)]
