"""`eddy replay FILES --query Q`: what plans, strategies and policies make of recorded streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eddy.replay.recorded import feed_of, query_of, read_streams
from eddy.replay.ways import Replay, WayOutcome, asked_ways
from eddy.show.drawing import printable
from eddy.show.text import bytes_text
from stairs.errors import EddyError

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    files: Annotated[list[str], typer.Argument(help="Parquet or CSV files, each a stream: PATH or STREAM=PATH.")],
    query: Annotated[
        str, typer.Option("--query", "-q", help="Predicates such as 'R.a = S.a', or a Python file that sets `query`.")
    ],
    time: Annotated[list[str] | None, typer.Option(help="Event times: COLUMN, or STREAM=COLUMN.")] = None,
    window: Annotated[
        list[str] | None, typer.Option(help="A window: STREAM=1000 rows, STREAM=10 min, STREAM=unbounded.")
    ] = None,
    lateness: Annotated[str | None, typer.Option(help="Lateness, such as 5 s.")] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="A strategy to try; may be repeated.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="A policy to try; may be repeated.")] = None,
    plan: Annotated[list[str] | None, typer.Option(help="A plan to begin with; may be repeated.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a push.")] = 10_000,
    limit: Annotated[int | None, typer.Option(min=1, help="Rows of all streams together.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Rounds; the fastest one of each way counts.")] = 1,
    count_only: Annotated[bool, typer.Option("--count", help="Count results instead of building them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run recorded streams in several ways, and show the results, times, changes and state of each.

    Without --strategy, --policy and --plan: the default, and fixed plans to compare it with. Rows come by event time,
    or, without event times, evenly mixed.
    """
    try:
        tables = read_streams(files)
        asked = query_of(query, tables, time or (), window or (), lateness)
        feed = feed_of(asked, tables, limit)
        runs = Replay(asked, feed, batch, count_only)
        ways = asked_ways(strategy or (), policy or (), plan or ()) if strategy or policy or plan else None
        outcomes = runs.compare(list(runs.usual_ways()) if ways is None else ways, repeat)
    except EddyError as problem:
        typer.echo(f"eddy replay: {problem}".replace("eddy replay: replay: ", "eddy replay: "), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({"rows": feed.rows, "ways": [asdict(outcome) for outcome in outcomes]}, indent=2))
    else:
        show(outcomes, feed.rows)
    if len({outcome.results for outcome in outcomes}) > 1:
        typer.echo(
            "eddy replay: the ways have different numbers of results; that is a defect, please report it", err=True
        )
        raise typer.Exit(1)


def show(outcomes: Sequence[WayOutcome], rows: int) -> None:
    """Print the ways with their plans at the end, and a table with a line for each, by number."""
    console = Console()
    if not console.is_terminal:
        console.width = 120  # the line of a file is as long as the table, not as a terminal that is not there
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"{rows:,} rows", title_justify="left")
    for column in ("way", "strategy", "policy"):
        table.add_column(column)
    for column in ("results", "late", "seconds", "CPU s", "rows/s", "longest push", "changes", "state"):
        table.add_column(column, justify="right")
    for number, outcome in enumerate(outcomes, 1):
        console.print(Text(f"{number}  {printable(outcome.way.about)}: {printable(outcome.plan)}"))
        table.add_row(
            f"{number}",
            outcome.way.strategy,
            outcome.policy,
            f"{outcome.results:,}",
            f"{outcome.late:,}",
            f"{outcome.seconds:.3f}",
            f"{outcome.cpu_seconds:.3f}",
            f"{rows / outcome.seconds:,.0f}" if outcome.seconds else "-",
            f"{1e3 * outcome.longest:,.1f} ms",
            f"{outcome.changes:,}",
            bytes_text(outcome.state_bytes),
        )
    console.print(table)
    first, *others = outcomes
    for other in others:
        if first.cpu_seconds:
            times = other.cpu_seconds / first.cpu_seconds
            console.print(Text(f"{other.way.about} took {times:.2f} times the CPU time of: {first.way.about}"))
