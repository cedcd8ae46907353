"""Plots as SVG files. The same rows give the same file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from bench.harness.figure import Figure, Plot, Row, number
from bench.harness.tables import chosen, number_text

STYLE = {
    "svg.hashsalt": "eddy",  # without it, names within the file are random
    "svg.fonttype": "none",  # text stays text
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 9,
    "legend.frameon": False,
}
MARKERS = "osD^vP*Xhd"


def plot_file(figure: Figure, plot: Plot) -> str:
    """Return the name of the file of a plot."""
    return f"{figure.name}-{plot.name}.svg" if plot.name else f"{figure.name}.svg"


def draw(plot: Plot, rows: Sequence[Row], path: Path) -> bool:
    """Draw rows into a file; return whether any measured row belongs to the plot."""
    rows = [row for row in chosen(rows, plot.where) if row.get(plot.x) is not None and row.get(plot.y) is not None]
    if all(row.get("origin") == "paper" for row in rows):
        return False
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(6.4, 3.6), layout="constrained")
        axes = canvas.subplots()
        (_bars if plot.kind == "bars" else _lines)(axes, plot, rows)
        axes.set_title(plot.title, fontsize=10)
        for at, label in plot.marked.items():
            axes.axvline(at, color="0.5", linestyle=":", linewidth=1, label=label)
        if plot.by is not None or plot.marked:
            axes.legend(fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, metadata={"Date": None, "Creator": None})
    return True


def _curves(plot: Plot, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each curve; numbers that a paper prints form curves of their own."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        name = "" if plot.by is None else str(row.get(plot.by))
        if row.get("origin") == "paper":
            name = f"{name} (paper)".strip()
        curves.setdefault(name, []).append(row)
    return curves


def _lines(axes: mpl.axes.Axes, plot: Plot, rows: Sequence[Row]) -> None:
    for index, (name, curve) in enumerate(_curves(plot, rows).items()):
        curve = sorted(curve, key=lambda row: number(row, plot.x))
        x, y = [number(row, plot.x) for row in curve], [number(row, plot.y) for row in curve]
        look: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "markersize": 4, "linewidth": 1.2}
        look["label"] = name or None
        if plot.kind == "steps" or len(x) > 60:
            look |= {"marker": "", "drawstyle": "steps-post" if plot.kind == "steps" else "default"}
        if name.endswith("(paper)"):
            look |= {"linestyle": "--", "alpha": 0.7}
        (line,) = axes.plot(x, y, **look)
        ends = (f"{plot.y}_low", f"{plot.y}_high")
        if all(row.get(end) is not None for row in curve for end in ends):
            low, high = ([number(row, end) for row in curve] for end in ends)
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel=plot.x_label or plot.x, ylabel=plot.y_label or plot.y)
    axes.set(xscale="log" if "x" in plot.log else "linear", yscale="log" if "y" in plot.log else "linear")


def _bars(axes: mpl.axes.Axes, plot: Plot, rows: Sequence[Row]) -> None:
    """Draw horizontal bars, which leave room for long names, each labelled with its value."""
    places = list(dict.fromkeys(str(row[plot.x]) for row in rows))
    curves = _curves(plot, rows)
    height = 0.8 / len(curves)
    for index, (name, curve) in enumerate(curves.items()):
        at = [places.index(str(row[plot.x])) + height * (index - (len(curves) - 1) / 2) for row in curve]
        values = [number(row, plot.y) for row in curve]
        bars = axes.barh(at, values, height, label=name or None)
        axes.bar_label(bars, [number_text(value) for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(places)), places)
    axes.invert_yaxis()
    axes.set(xlabel=plot.y_label or plot.y, ylabel=plot.x_label, xscale="log" if "y" in plot.log else "linear")
    axes.margins(x=0.15)
    axes.grid(axis="y", visible=False)
