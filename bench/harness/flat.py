"""Figures of the report by name, for programs that compare runs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.store import Record

Flat = dict[str, float | dict[str, float]]


def flat(figure: str, records: Sequence[Record]) -> Flat:
    """Return what was measured as {name: number}, or {name: {value, low, high}} where there is a spread.

    A row that names its own figure (columns `figure` and `value`) is called so. Other rows give each column that has a
    spread, called after the figure, its point and the texts of the row.
    """
    found: Flat = {}
    for record in records:
        for row in record.rows:
            if isinstance(row.get("figure"), str):
                columns = {"value": str(row["figure"])}
            else:
                texts = {name: value for name, value in row.items() if isinstance(value, str) and name != "skipped"}
                where = ",".join(f"{name}={value}" for name, value in {**record.point, **texts}.items())
                columns = {name: f"{figure}/{where}/{name}" for name in row if f"{name}_low" in row}
            for column, name in columns.items():
                value, low, high = (row.get(end) for end in (column, f"{column}_low", f"{column}_high"))
                if isinstance(low, int | float) and isinstance(high, int | float) and isinstance(value, int | float):
                    found[name] = {"value": value, "low": low, "high": high}
                elif isinstance(value, int | float):
                    found[name] = value
    return found
