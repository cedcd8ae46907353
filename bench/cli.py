"""`eddy bench`: the benchmarks, registered as an entry point of the command line below.

Nothing that measures is imported before a benchmark is asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, help="Benchmarks, each a ratio measured in one run.")

Json = Annotated[str | None, typer.Option("--json", metavar="-|FILE", help="Write the figures as one JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller workloads: to see that all runs, not to compare.")]
Shapes = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME", help="This shape; may be repeated.")]


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Run every benchmark when none is named."""
    if context.invoked_subcommand is None:
        limit()
        transitions()
        adaptivity()
        filters()
        streaming()


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


def _write(figures: dict[str, Any], json_to: str | None) -> None:
    if json_to is None:
        return
    text = json.dumps(figures, indent=2)
    if json_to == "-":
        typer.echo(text)
    else:
        Path(json_to).write_text(text + "\n")
