"""The report: one Markdown page, its plots, and the file of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness.figure import Figure, Row
from bench.harness.plots import draw, plot_file
from bench.harness.store import FIGURES, MeasuredPoint, Store, best_known, figures_text, read_figures
from bench.harness.tables import cell, table_text

PLOTS = "plots"
MUCH = 0.2
"""Number of cores with other work from which on a point counts as disturbed; an idle system uses fewer."""

FRONT = """# Figures

`eddy bench` measures these figures and writes this page, its plots and `figures.json`; `eddy bench NAME` measures one.
[How a figure is measured](../../docs/benchmarks.md) and [what of the papers reproduces](../../docs/internals/papers.md)
have their own pages. Ways to do the same work run in turns, and their results are compared before a time is reported.
Values are medians; bands in plots, and the columns least and most, are the extremes of the rounds.
"""


def all_rows(figure: Figure, records: Sequence[MeasuredPoint]) -> list[Row]:
    """Return the measured rows, described."""
    return figure.described([row for record in records for row in record.merged()])


def body(figure: Figure, records: Sequence[MeasuredPoint], folder: Path, machines: Sequence[str] = ()) -> list[str]:
    """Return the plots that exist in the folder of the report, the tables, and how the figure was measured."""
    rows = all_rows(figure, records)
    lines: list[str] = []
    shown = [plot for plot in figure.plots if (folder / PLOTS / plot_file(figure, plot)).exists()]
    lines += [line for plot in shown for line in (f"![{plot.title}]({PLOTS}/{plot_file(figure, plot)})", "")]
    for table in figure.tables:
        text = table_text(table, rows)
        lines += [*text, ""] if text else []
    reasons = dict.fromkeys(cell(row["skipped"]) for row in rows if row.get("skipped"))
    lines += [line for reason in reasons for line in (f"Not measured: {reason}.", "")]
    return [*lines, measured(figure, records, machines)]


def measured(figure: Figure, records: Sequence[MeasuredPoint], machines: Sequence[str]) -> str:
    """Return a text on the dates and machines of records, the points without records, and the load of the machine."""
    days = sorted({record.day for record in records})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    where = list(dict.fromkeys(record.machine for record in records))
    names = [f"machine {machines.index(machine) + 1}" if machine in machines else machine for machine in where]
    text = f"Measured {when} on {', '.join(names)}"
    full = any(record.point == dict(point) for point in figure.points(True) for record in records)
    points = [*figure.points(full), *(figure.points(False) if full and figure.both else ())]
    if not full:
        text += ", in quick sizes"
    missing = [point for point in points if all(record.point != dict(point) for record in records)]
    if missing:
        every = dict.fromkeys(name for point in points for name in point)
        differ = [name for name in every if len({point.get(name) for point in points}) > 1]
        lacking = (" ".join(f"{name}={point[name]}" for name in differ if name in point) for point in missing)
        text += f"; not measured: {', '.join(lacking)}"
    disturbed = [record.others for record in records if record.others is not None and record.others > MUCH]
    if disturbed:
        text += f"; other work used up to {max(disturbed):.1f} cores during {len(disturbed)} of {len(records)} points"
    return f"{text}."


def write(chapters: Mapping[str, Sequence[Figure]], store: Store, folder: Path) -> Path:
    """Write `report.md`, the plots and `figures.json`; return the path of the page.

    Points that the store does not have are carried over from the existing `figures.json`; a plot without rows does not
    change.
    """
    carried = read_figures(folder / FIGURES)
    figures = [figure for chapter in chapters.values() for figure in chapter]
    pairs = {figure.name: (figure, best_known(figure, store, carried)) for figure in figures}
    machines = list(dict.fromkeys(record.machine for _, records in pairs.values() for record in records))
    for figure, records in pairs.values():
        rows = [*all_rows(figure, records), *({**row, "origin": "paper"} for row in figure.printed)]
        for plot in figure.plots if records else ():
            draw(plot, rows, folder / PLOTS / plot_file(figure, plot))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURES).write_text(figures_text({name: pair for name, pair in pairs.items() if pair[1]}))
    # The page is made from the rounded figures, so that it is the same when the figures are carried over.
    kept = read_figures(folder / FIGURES)
    lines = [FRONT, *(f"{index}. {text}" for index, text in enumerate(machines, 1)), ""]
    for title, chapter in chapters.items():
        lines += [f"## {title}", ""]
        for figure in chapter:
            records = kept.get(figure.name, [])
            lines += [f"### {figure.name}: {figure.title}", "", figure.about, ""]
            lines += [f"Source: {figure.source}.", ""] if figure.source else []
            known = (
                body(figure, records, folder, machines) if records else [f"Not measured: `eddy bench {figure.name}`."]
            )
            lines += [*known, ""]
    path = folder / "report.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    return path
