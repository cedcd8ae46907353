"""`eddy bench`: the benchmarks, registered as an entry point of the command line below.

Nothing that measures is imported before a benchmark is asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.contents import CHAPTERS, NAMES, load

app = typer.Typer(
    add_completion=False,
    help="Benchmarks, each a ratio measured in one run; without a name all of them, as one report.",
)

OUT = Path("bench") / "report"
OWN = ("limit", "transitions", "adaptivity", "filters", "streaming", "peers")
"""Figures with commands of their own below. The first five measure in full unless told otherwise and tell as they go.
"""

Json = Annotated[str | None, typer.Option("--json", metavar="-|FILE", help="Write the figures as one JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller workloads: to see that all runs, not to compare.")]
Shapes = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME", help="This shape; may be repeated.")]
Full = Annotated[bool, typer.Option("--full", help="The sizes of the papers, which takes hours; else minutes.")]
Again = Annotated[bool, typer.Option("--again", help="Measure also what is known from a run with the same sources.")]
Out = Annotated[Path, typer.Option("--out", help="The folder of the report; a run is taken up where it was stopped.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="This figure; may be repeated.")]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A B", help="Measure nothing: tell what changed between two files of --json."),
]
Install = Annotated[
    list[str] | None,
    typer.Option("--install", metavar="flink|pathway", help="Measure nothing: install this peer, apart from all else."),
]
Strict = Annotated[bool, typer.Option("--strict", help="With --compare: fail if a figure is worse beyond the noise.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    full: Full = False,
    again: Again = False,
    out: Out = OUT,
    only: Only = None,
    json_to: Json = None,
    compare: Compare = None,
    strict: Strict = False,
) -> None:
    """Measure every figure, quickly unless --full, and write the report: Markdown, HTML, plots, data.

    A run that was stopped goes on with the points that are missing.
    """
    if context.invoked_subcommand is not None:
        return
    if compare is not None:
        _compare(*compare, strict)
        return
    failed = _measure(only or NAMES, full, again, out, json_to)
    console = Console(stderr=True)
    console.print(f"report: {_write_report(out)}", soft_wrap=True)
    if failed:
        console.print(f"{failed} points failed; the same command measures them again")
        raise typer.Exit(1)


@app.command()
def report(out: Out = OUT) -> None:
    """Make the report anew from what was measured."""
    typer.echo(_write_report(out))


@app.command()
def limit(json_to: Json = None, quick: Quick = False) -> None:
    """Compare the engine with hand-written loops for the same queries, and the ways through Spark."""
    from bench.limit import run

    # Figures alone on stdout when they are asked for there: what is said on the way goes to stderr.
    _write(run(quick=quick, report=sys.stderr if json_to == "-" else sys.stdout), json_to)


@app.command()
def transitions(json_to: Json = None, quick: Quick = False) -> None:
    """Compare the strategies by which one plan takes over from another."""
    from bench.transitions import run

    _write(run(quick=quick, report=sys.stderr if json_to == "-" else sys.stdout), json_to)


@app.command()
def adaptivity(json_to: Json = None, quick: Quick = False, shape: Shapes = None) -> None:
    """Compare the runtime that finds its plan with all fixed plans, while the data drift."""
    from bench.adaptivity import run
    from bench.families import SHAPES

    unknown = [name for name in shape or () if name not in SHAPES]
    if unknown:
        raise typer.BadParameter(f"no shape {unknown[0]!r}; the shapes are {', '.join(SHAPES)}")
    _write(run(quick=quick, shapes=shape or (), report=sys.stderr if json_to == "-" else sys.stdout), json_to)


@app.command()
def filters(json_to: Json = None, quick: Quick = False) -> None:
    """Compare filters that choose the order of their conditions with all fixed orders."""
    from bench.filters import run

    _write(run(quick=quick, report=sys.stderr if json_to == "-" else sys.stdout), json_to)


@app.command()
def streaming(json_to: Json = None, quick: Quick = False) -> None:
    """Compare streaming joins with Spark's own, and measure what a micro-batch costs at least."""
    from bench.streaming import run

    _write(run(quick=quick, report=sys.stderr if json_to == "-" else sys.stdout), json_to)


@app.command()
def peers(
    full: Full = False, again: Again = False, out: Out = OUT, json_to: Json = None, install: Install = None
) -> None:
    """Compare with what else a user may pick: Spark, Flink, Pathway, Polars, DuckDB, plain Python, a loop in C."""
    if install:
        from bench.peers.environment import install as make

        for name in install:
            make(name, typer.echo)
        return
    _one("peers", full, again, out, json_to)


def _figure_command(name: str, shows: str) -> None:
    """Make a command for a figure that has none of its own."""

    def command(full: Full = False, again: Again = False, out: Out = OUT, json_to: Json = None) -> None:
        _one(name, full, again, out, json_to)

    app.command(name, help=f"{shows[0].upper()}{shows[1:]}.")(command)


for _chapter in CHAPTERS:
    for _name, _shows in _chapter.figures.items():
        if _name not in OWN:
            _figure_command(_name, _shows)


def _one(name: str, full: bool, again: bool, out: Path, json_to: str | None) -> None:
    """Measure one figure and print it."""
    if _measure([name], full, again, out, json_to):
        raise typer.Exit(1)
    if json_to != "-":
        _tell(name, out)


def _measure(names: Sequence[str], full: bool, again: bool, out: Path, json_to: str | None) -> int:
    """Measure figures into the folder of a report; return how many points failed."""
    from bench.harness.flat import Flat, flat
    from bench.harness.report import POINTS
    from bench.harness.run import measure
    from bench.harness.store import Store

    store = Store(out / POINTS)
    figures = load(names)
    failures = measure(figures, store, full=full, again=again, console=Console(stderr=True))
    if json_to is not None:
        found: Flat = {}
        for figure in figures:
            found |= flat(figure.name, store.of_points(figure.name, figure.points(full)))
        _write(found, json_to)
    return len(failures)


def _tell(name: str, out: Path) -> None:
    """Print one figure and write its plots and data."""
    from rich.markdown import Markdown

    from bench.harness.report import PLOTS, POINTS, export
    from bench.harness.store import Store
    from bench.harness.told import best_known, lines_of

    (figure,) = load([name])
    records = best_known(figure, Store(out / POINTS))
    export(figure, records, out)
    Console().print(Markdown("\n".join([f"# {figure.title}", "", figure.about, "", *lines_of(figure, records, PLOTS)])))
    typer.echo(f"plots and data: {out}")


def _write_report(out: Path) -> Path:
    from bench.harness.report import write

    return write({chapter.title: load(tuple(chapter.figures)) for chapter in CHAPTERS}, out)


def _compare(before: Path, after: Path, strict: bool) -> None:
    from bench.compare import WORSE, compare, read, tell

    found = compare(read(before), read(after))
    tell(found, Console())
    if strict and any(one.verdict == WORSE for one in found):
        raise typer.Exit(1)


def _write(figures: dict[str, Any], json_to: str | None) -> None:
    if json_to is None:
        return
    text = json.dumps(figures, indent=2)
    if json_to == "-":
        typer.echo(text)
    else:
        Path(json_to).write_text(text + "\n")
