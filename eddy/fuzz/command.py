"""The command `eddy fuzz`: draw cases until the time is over, stop at the first failure and shrink the case."""

from __future__ import annotations

import random
import time
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from eddy.compiling import warmup
from eddy.fuzz.case import CHAOS, NAMES, OutputMode
from eddy.routing.policies import POLICIES
from jisc.strategies import STRATEGIES

if TYPE_CHECKING:
    from eddy.fuzz.hunt import Failure, Hunt

KINDS_OF_SQL = ("sql",)

app = typer.Typer(add_completion=False)


class Output(StrEnum):
    """Output modes of the runtime."""

    APPEND = "append"
    CHANGELOG = "changelog"


class QueryKind(StrEnum):
    """Kinds of queries."""

    ALL = "all"
    INNER = "inner"
    BRANCHES = "branches"
    CHANGING = "changing"
    TABLES = "tables"
    SQL = "sql"


@app.command(name="fuzz")
def fuzz(
    seconds: Annotated[float, typer.Option(min=0, help="Seconds for which cases are drawn.")] = 10.0,
    cases: Annotated[int | None, typer.Option(min=1, help="The most cases to draw.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the cases: the same seed gives the same cases.")] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="A strategy to run; may be given several times. All, if not given.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help=f"A policy, or {CHAOS!r}, the fuzzer's own; may be given several times. All, if not given."),
    ] = None,
    output_mode: Annotated[Output | None, typer.Option(help="Run this output mode only.")] = None,
    queries: Annotated[
        QueryKind,
        typer.Option(
            help="One kind only: inner joins, branches, engines with queries that change, tables, or SQL beside DuckDB."
        ),
    ] = QueryKind.ALL,
    streams: Annotated[int, typer.Option(min=2, max=len(NAMES), help="The most streams of a query.")] = 6,
    save: Annotated[
        Path | None, typer.Option(help="File or existing folder for the script of a case that fails; else this folder.")
    ] = None,
    shrink: Annotated[bool, typer.Option(help="Shrink a failing case before it is shown.")] = True,
) -> None:
    """Run random queries and plan transitions against a reference join."""
    console = Console()
    chosen = known(strategy, tuple(STRATEGIES), "strategy")
    policies = known(policy, (CHAOS, *POLICIES), "policy")
    if any(find_spec(package) is None for package in ("hypothesis", "duckdb")):
        console.print("eddy fuzz needs Hypothesis and DuckDB: pip install 'eddy-join[fuzz]'", markup=False)
        raise typer.Exit(1)
    from eddy.fuzz.hunt import KINDS, Hunt

    outputs: tuple[OutputMode, ...] = ("append", "changelog") if output_mode is None else (output_mode.value,)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    hunt = Hunt(chosen, outputs, streams, seed, shrink, policies, KINDS[queries.value])
    console.print(f"seed {seed}, strategies {', '.join(hunt.strategies)}", highlight=False)
    with console.status("loading the kernels (the first time on a machine they are compiled)"):
        warmup()
    try:
        with_progress(console, hunt, seconds, cases)
    except KeyboardInterrupt:
        console.print("stopped")
    print_summary(console, hunt)
    if hunt.failure is not None:
        print_failure(console, hunt.failure, save, seed)
        raise typer.Exit(1)


def known(chosen: list[str] | None, names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the chosen names without duplicates, all names if none was chosen. Raises BadParameter for other names."""
    for name in chosen or ():
        if name not in names:
            message = f"there is no {what} {name!r}; there are {', '.join(names)}"
            raise typer.BadParameter(message, param_hint=f"--{what}")
    return tuple(dict.fromkeys(chosen or names))


def with_progress(console: Console, hunt: Hunt, seconds: float, cases: int | None) -> None:
    """Run until the time is over, the number of cases is reached, or a case fails."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("fuzz", total=seconds, done="")
        start = time.monotonic()

        def tell() -> None:
            total = hunt.total
            progress.update(
                task,
                completed=time.monotonic() - start,
                description="fuzz" if hunt.failure is None else "shrinking the failing case",
                done=f"{total.cases} cases, {total.transitions} transitions, {total.results} results",
            )

        hunt.run(seconds, cases, tell)


def print_summary(console: Console, hunt: Hunt) -> None:
    """Print the counts of the run by the strategy that a case begins with."""
    # Narrow enough for a terminal of 80 columns.
    table = Table(title=f"{hunt.seconds:.1f} s", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("strategy", no_wrap=True)
    heads = ("cases", "pushes", "arrivals", "transitions", "snapshots", "results")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, tally in hunt.tallies.items():
        table.add_row(name, *(str(getattr(tally, head)) for head in heads))
    if len(hunt.tallies) > 1:
        table.add_section()
        table.add_row("all", *(str(getattr(hunt.total, head)) for head in heads))
    console.print(table)
    if hunt.total.elements:
        console.print(f"{hunt.total.elements} starts, changes and stops of queries", highlight=False)
    if hunt.total.refused:
        what = "statements refused" if hunt.kinds == KINDS_OF_SQL else "steps refused for lack of room"
        console.print(f"{hunt.total.refused} {what}", highlight=False)


def print_failure(console: Console, failure: Failure, save: Path | None, seed: int) -> None:
    """Print the error and the script of the case, and write the script to a file."""
    folder = Path() if save is None else save
    target = folder / f"eddy_fuzz_{seed}.py" if folder.is_dir() else folder
    text = failure.script()
    console.rule("the case that fails")
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.rule()
    console.print(failure.message, markup=False, highlight=False, soft_wrap=True, style="bold red")
    try:
        target.write_text(text)
    except OSError as error:
        console.print(f"the script is printed above, but cannot be written: {error}", markup=False, soft_wrap=True)
    else:
        console.print(f"written to {target}", markup=False, highlight=False, soft_wrap=True)
