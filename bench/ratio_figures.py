"""`limit`, `transitions`, `adaptivity`, `filters` and `streaming` as figures of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import adaptivity, filters, limit, streaming, transitions
from bench.families import SHAPES
from bench.harness.figure import Figure, Point, Row, Say
from bench.ratios import ADAPTIVITY, FILTERS, LIMIT, STREAMING, TRANSITIONS, Section, tables

QUICK_SHAPES = (
    "star-5-zipf-stationary",
    "chain-4-skewed-rates-uniform-abrupt-drift",
    "cycle-4-uniform-slow-oscillation",
)
"""Shapes of a quick run: one without anything to win by order, one where storing pays, one that moves to and fro."""


def ratios_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows of a benchmark as figures by name."""
    found = {str(row["figure"]): row["value"] for row in rows}
    if any(name.endswith(".reached") for name in found):
        shapes = [name for name in found if name.endswith(".reached") and name != "adaptivity.reached"]
        found |= {"adaptivity.shapes": len(shapes), "adaptivity.reached": sum(float(found[n] or 0) for n in shapes)}
    return found


def _figure(
    section: Section,
    title: str,
    about: str,
    measured: Callable[[Point], Mapping[str, Any]],
    points: Callable[[bool], Sequence[Point]],
) -> Figure:
    def measure(point: Point, say: Say) -> list[Row]:
        figures = {name: value for name, value in measured(point).items() if name != "machine"}
        return [{"figure": name, "value": value} for name, value in figures.items() if not isinstance(value, str)]

    def remarks(rows: Sequence[Row]) -> list[str]:
        figures = ratios_of(rows)
        missed = [
            f"{section.titles.get(name, name)}: {figures[name]:.3g}, wanted {bar}"
            for name, bar in section.wanted.items()
            if name in figures and not reaches(float(figures[name]), bar)
        ]
        count = sum(name in figures for name in section.wanted)
        said = [f"{count - len(missed)} of {count} bars are reached."] if count else []
        if any(row.get("sizes") == "quick" for row in rows):
            said.append("Measured in small sizes, to see that all runs; compare full runs.")
        return [*said, *(f"Missed: {one}." for one in missed)]

    return Figure(
        section.name, title, about, points, measure, remarks=remarks, text=lambda rows: tables(ratios_of(rows), section)
    )


def reaches(value: float, bar: str) -> bool:
    """Tell whether a figure is on the right side of a bar such as "≥ 0.5".

    >>> reaches(0.6, "≥ 0.5"), reaches(0.6, "≤ 0.5")
    (True, False)
    """
    sign, limit = bar.split()
    return value >= float(limit) if sign == "≥" else value <= float(limit)


def _sizes(full: bool) -> list[Point]:
    return [{"sizes": "full" if full else "quick"}]


def _shapes(full: bool) -> list[Point]:
    return [{"shape": name, "sizes": "full" if full else "quick"} for name in (SHAPES if full else QUICK_SHAPES)]


def _run(run: Callable[..., dict[str, Any]]) -> Callable[[Point], dict[str, Any]]:
    """Return a function that runs a benchmark without its own report."""

    def measured(point: Point) -> dict[str, Any]:
        with open(os.devnull, "w") as nowhere:
            only = {"shapes": [point["shape"]]} if "shape" in point else {}
            figures = run(quick=point["sizes"] == "quick", report=nowhere, **only)
        if "shape" in point:  # of all shapes: counted from their rows
            figures = {name: value for name, value in figures.items() if not name.startswith("adaptivity.")}
        return figures

    return measured


FIGURES: tuple[Figure, ...] = (
    _figure(
        LIMIT,
        "The engine beside hand-written loops, and the ways through Spark",
        "Speeds in terms of that of a loop written by hand for the query, in turns in one process, with full windows.",
        _run(limit.run),
        _sizes,
    ),
    _figure(
        TRANSITIONS,
        "Strategies side by side: in normal operation, and when plans change",
        "All strategies over the same kernels, layout and arrivals; pauses are wall times, all else CPU time.",
        _run(transitions.run),
        _sizes,
    ),
    _figure(
        ADAPTIVITY,
        "When data drift: the runtime that is told no plan beside all fixed plans",
        "Above 1 the default is faster. The best plan of each phase is known afterwards only, and changes for nothing.",
        _run(adaptivity.run),
        _shapes,
    ),
    _figure(
        FILTERS,
        "Filters that choose the order of their conditions",
        "Three conditions of different cost beside every fixed order of them; above 1 the adaptive filter is faster.",
        _run(filters.run),
        _sizes,
    ),
    _figure(
        STREAMING,
        "Streaming jobs on Spark beside Spark's own joins",
        "W1 under RANGE windows through Structured Streaming, local[2], results counted and compared.",
        _run(streaming.run),
        _sizes,
    ),
)
