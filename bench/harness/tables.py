"""Rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.harness.figure import Grid, Row, Scalar


def number(value: float) -> str:
    """Return a figure with three digits that count.

    >>> number(0.61789), number(12.3456), number(20_123_456.0), number(143.2)
    ('0.618', '12.3', '20.1 M', '143')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(value: Scalar) -> str:
    """Return a value as it stands in a table: nothing for what is missing, a whole number below a million whole."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) < 1_000_000:
        return f"{value:,}".replace(",", " ")
    return number(value) if isinstance(value, int | float) else str(value).replace("|", "\\|")


def chosen(rows: Sequence[Row], where: Mapping[str, Scalar]) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]


def grid_text(grid: Grid, rows: Sequence[Row]) -> list[str]:
    """Return a grid as lines of Markdown, its title first; nothing if no row is of it.

    If some rows are a paper's own, who measured is a column as well.
    """
    rows = [row for row in chosen(rows, grid.where) if any(row.get(name) is not None for name in grid.value)]
    if not rows:
        return []
    heads = dict(grid.rows)
    if any(row.get("origin") == "paper" for row in rows):
        heads["origin"] = "measured"
    keys = list(dict.fromkeys(tuple(row.get(name) for name in heads) for row in rows))
    if grid.across is None:
        columns = dict(grid.value)
        body = [
            [cell(row.get(name)) for name in columns]
            for key in keys
            for row in rows
            if tuple(row.get(name) for name in heads) == key
        ]
        firsts = [key for key in keys for row in rows if tuple(row.get(name) for name in heads) == key]
    else:
        (value,) = grid.value
        values = list(dict.fromkeys(row.get(grid.across) for row in rows))
        columns = {cell(name): cell(name) for name in values}
        found = {(tuple(row.get(name) for name in heads), row.get(grid.across)): row.get(value) for row in rows}
        body = [[cell(found.get((key, name))) for name in values] for key in keys]
        firsts = keys
    title = grid.title if grid.across is None else f"{grid.title} ({', '.join(grid.value.values())})"
    lines = [f"{title}:", "", "| " + " | ".join([*heads.values(), *columns.values()]) + " |"]
    lines.append("|---" * (len(heads) + len(columns)) + "|")
    lines += ["| " + " | ".join([*map(cell, first), *cells]) + " |" for first, cells in zip(firsts, body, strict=True)]
    return lines
