"""The command `eddy demo`: starts Spark, runs the jobs, prints the report."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from eddy.demo import itineraries, tweets
from eddy.demo.job import EngineRun, Job, SparkRun, read_streams, run_in_process, run_in_spark, same_rows
from eddy.demo.report import print_job
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(add_completion=False)

JOBS = {"itineraries": itineraries.job, "tweets": tweets.job}


class Choice(StrEnum):
    """What to run."""

    ALL = "all"
    ITINERARIES = "itineraries"
    TWEETS = "tweets"


@app.command(name="demo")
def demo(
    job: Annotated[Choice, typer.Argument(help="Which of the two jobs to run.")] = Choice.ALL,
    out: Annotated[Path, typer.Option(help="Folder for the results, one Parquet folder per job.")] = Path("out/demo"),
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Join flights to itineraries and ten series of tweet counts through Spark."""
    console = Console()
    jobs = [JOBS[name]() for name in JOBS if job in (Choice.ALL, name)]
    try:
        agree = run(console, jobs, out, master)
    except EddyError as error:
        console.print(f"[bold red]{type(error).__name__}:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    if not agree:
        raise typer.Exit(1)


def run(console: Console, jobs: list[Job], out: Path, master: str) -> bool:
    """Run jobs one after the other and print a report of each; tell whether both runs of every job agree."""
    from eddy import warmup
    from eddy.spark import session

    start = time.perf_counter()
    with console.status("starting Spark"):
        spark = session(master, app_name="eddy demo")
    console.print(f"Spark started in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    with console.status("loading the kernels (the first time on a machine they are compiled)"):
        warmup()
    console.print(f"kernels ready in {time.perf_counter() - start:.1f} s")
    try:
        # One that disagrees does not keep the next from running.
        agreed = [run_job(console, job, spark, out) for job in jobs]
    finally:
        spark.stop()
    return all(agreed)


def run_job(console: Console, job: Job, spark: SparkSession, out: Path) -> bool:
    """Run a job through Spark and in this process and print a report; tell whether both give the same rows."""
    spark_run, engine_run = run_both(console, job, spark, out)
    agree = same_rows(spark_run.results, engine_run.results)
    print_job(console, job, spark_run, engine_run, agree)
    return agree


def run_both(console: Console, job: Job, spark: SparkSession, out: Path) -> tuple[SparkRun, EngineRun]:
    """Run a job through Spark and in this process, showing progress."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{job.name} through Spark", total=1, unit="job")
        spark_run = run_in_spark(job, spark, out)
        progress.advance(task)
        task = progress.add_task(f"{job.name}, rows for this process", total=1, unit="read")
        streams = read_streams(job, spark)
        progress.advance(task)
        tuples = sum(table.num_rows for table in streams.values())
        task = progress.add_task(f"{job.name}, the engine alone", total=tuples, unit="tuples")
        engine_run = run_in_process(job, streams, lambda done: progress.advance(task, done))
    return spark_run, engine_run
