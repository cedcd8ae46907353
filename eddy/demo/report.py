"""The output of the batch jobs of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from eddy.demo.job import DemoJob, EngineRun, SparkRun


def print_job(console: Console, job: DemoJob, spark: SparkRun, engine: EngineRun, agree: bool) -> None:
    """Print the results of a job, its plan with live figures, its speed, and whether both runs agree."""
    console.print()
    console.rule(f"[bold]{job.title}", align="left")
    console.print(f"{job.story}\n\n[bold]{spark.results.num_rows:,} results[/] from {engine.tuples:,} tuples\n")
    for finding in job.findings(spark.results):
        console.print(finding)
        console.print()
    # Not in a box, because a plan over many streams is wider than most terminals.
    console.print("[bold]The plan, with live figures")
    console.print(Text(engine.explain.rstrip()), soft_wrap=True)
    console.print(f"\n[bold]Metrics[/]\n{metric_line(engine.metrics)}")
    console.print(f"\n[bold]In Spark[/]\n{escape(spark.way)}\n", soft_wrap=True)
    console.print(speeds(spark, engine))
    if agree:
        console.print("Spark and the engine in this process give the same rows.")
    else:
        console.print(
            f"[bold red]Spark gave {spark.results.num_rows:,} rows, the engine in this process gave"
            f" {engine.results.num_rows:,}, and they differ: this is a defect, please report it.[/]"
        )
    console.print(f"Results: {spark.folder}")


def speeds(spark: SparkRun, engine: EngineRun) -> Table:
    """Return a table of the speed of the engine alone and of the whole Spark job."""
    table = Table(title="Speed", title_justify="left")
    for heading in ("run", "tuples", "seconds", "tuples/s"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for what, seconds in (
        (f"the engine alone, warm, {engine.pushes} pushes", engine.seconds),
        ("the whole Spark job, its first run: read, join, write", spark.seconds),
    ):
        table.add_row(what, f"{engine.tuples:,}", f"{seconds:.3f}", f"{engine.tuples / seconds:,.0f}")
    return table


def metric_line(metrics: Mapping[str, Any]) -> str:
    """Return the metrics of the runtime in one line; those of its states are in the plan."""
    return "  ".join(f"{name} {figure:,}" for name, figure in metrics.items() if isinstance(figure, int))
