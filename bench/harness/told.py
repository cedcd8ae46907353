"""A figure as Markdown: what it shows, its plots, its tables, what they say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness.figure import Figure, Plot, Row
from bench.harness.others import MUCH
from bench.harness.plots import draw
from bench.harness.stamp import Stamp
from bench.harness.store import Record, Store, rows_of
from bench.harness.tables import cell, grid_text


def plot_file(figure: Figure, plot: Plot) -> str:
    """Return the name of the file of a plot."""
    return f"{figure.name}-{plot.name}.svg" if plot.name else f"{figure.name}.svg"


def best_known(figure: Figure, store: Store) -> list[Record]:
    """Return the points of the full run if all of them are there, else those of the quick one that are."""
    points = figure.points(True)
    records = store.of_points(figure.name, points)
    return records if len(records) == len(points) else store.of_points(figure.name, figure.points(False))


def all_rows(figure: Figure, records: Sequence[Record]) -> list[Row]:
    """Return what was measured, and what the source prints."""
    return [*rows_of(records), *({**row, "origin": "paper"} for row in figure.printed)]


def draw_all(figure: Figure, records: Sequence[Record], folder: Path) -> None:
    """Draw the plots of a figure into a folder."""
    rows = all_rows(figure, records)
    for plot in figure.plots:
        draw(plot, rows, folder / plot_file(figure, plot))


def stamps(records: Sequence[Record]) -> list[Stamp]:
    """Return the stamps of records, each once."""
    return list(dict.fromkeys(record.stamp for record in records))


def _skipped(rows: Sequence[Row]) -> list[str]:
    reasons = dict.fromkeys(cell(row["skipped"]) for row in rows if row.get("skipped"))
    return [f"- Not measured: {reason}" for reason in reasons]


def disturbed(records: Sequence[Record]) -> list[Record]:
    """Return the records that were measured beside much other work."""
    return [record for record in records if record.others is not None and record.others > MUCH]


def _beside_others(records: Sequence[Record]) -> str:
    found = [record.others or 0.0 for record in disturbed(records)]
    if not found:
        return ""
    points = f"{len(found)} of {len(records)} points" if len(records) > 1 else "this point"
    return f"; {points} beside other work, of up to {max(found):.1f} cores"


def lines_of(figure: Figure, records: Sequence[Record], plots: str) -> list[str]:
    """Return the body of a figure; `plots` is the way from the document to the folder of the plots.

    Empty without any record. Whatever a table or a remark lacks since points are missing is left out.
    """
    if not records:
        return []
    measured = rows_of(records)
    rows = all_rows(figure, records)
    lines = []
    for plot in figure.plots:
        if any(row.get(plot.y) is not None and all(row.get(k) == v for k, v in plot.where.items()) for row in measured):
            lines += [f"![{plot.title}]({plots}/{plot_file(figure, plot)})", ""]
    for grid in figure.grids:
        text = grid_text(grid, rows)
        lines += [*text, ""] if text else []
    more = "\n".join(figure.text(measured)).strip("\n")
    lines += [more, ""] if more else []
    said = [*(f"- {remark}" for remark in figure.remarks(measured)), *_skipped(measured)]
    lines += [*said, ""] if said else []
    machines = dict.fromkeys(f"{stamp.machine}, {stamp.versions}" for stamp in stamps(records))
    days = sorted({record.at[:10] for record in records})
    missing = "" if len(records) >= len(figure.points(False)) else "; points are missing"
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    lines += [f"Measured on {'; '.join(machines)}; {when}{missing}{_beside_others(records)}."]
    return lines
