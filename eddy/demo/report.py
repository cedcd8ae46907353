"""What the demo prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from eddy.demo.job import EngineRun, Job, SparkRun


def print_job(console: Console, job: Job, spark: SparkRun, engine: EngineRun, agree: bool) -> None:
    """Print what a job found, its plan with live figures, its speed, and whether both runs agree."""
    console.print()
    console.rule(f"[bold]{job.title}", align="left")
    console.print(f"{job.story}\n\n[bold]{spark.results.num_rows:,} results[/] from {engine.tuples:,} tuples\n")
    for finding in job.findings(spark.results):
        console.print(finding)
        console.print()
    # Not folded into a box: a plan over many streams is wider than most terminals.
    console.print("[bold]The plan, with live figures")
    console.print(Text(engine.explain.rstrip()), soft_wrap=True)
    console.print(f"\n[bold]Metrics[/]\n{metric_line(engine.metrics)}")
    console.print(f"\n[bold]Through Spark[/]\n{escape(spark.way)}\n", soft_wrap=True)
    console.print(speeds(spark, engine))
    if agree:
        console.print("Spark and the engine in this process give the same rows.")
    else:
        console.print(
            f"[bold red]Spark gave {spark.results.num_rows:,} rows and the engine in this process others "
            f"({engine.results.num_rows:,}): this is a defect, please report it.[/]"
        )
    console.print(f"Results: {spark.folder}")


def speeds(spark: SparkRun, engine: EngineRun) -> Table:
    """Give the speed of the engine alone beside that of the whole job."""
    table = Table(title="Speed", title_justify="left")
    for heading in ("what", "tuples", "seconds", "tuples/s"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, seconds in (
        (f"the engine alone, {engine.pushes} pushes, warm", engine.seconds),
        ("the whole Spark job, its first run: read, join, write", spark.seconds),
    ):
        table.add_row(what, f"{engine.tuples:,}", f"{seconds:.3f}", f"{engine.tuples / seconds:,.0f}")
    return table


def metric_line(metrics: Mapping[str, Any]) -> str:
    """Write the metrics of the whole runtime; those of its states stand in the plan."""
    return "  ".join(f"{name} {figure:,}" for name, figure in metrics.items() if isinstance(figure, int))
