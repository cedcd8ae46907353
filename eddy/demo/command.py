"""The command `eddy demo`: starts Spark, runs the jobs, prints the report."""

from __future__ import annotations

import time
from contextlib import ExitStack
from enum import StrEnum
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from eddy.demo import itineraries, tweets
from eddy.demo.job import ROUNDS, EngineRun, Job, SparkRun, read_streams, run_in_process, run_in_spark, same_rows
from eddy.demo.report import print_job
from eddy.demo.stream import Course, run_stream
from eddy.demo.stream_report import NEWEST, introduction, print_end, view
from eddy.demo.stream_report import figures as figures_of
from eddy.demo.transfers import draw
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
    job: Annotated[Choice, typer.Argument(help="Which of the two batch jobs to run.")] = Choice.ALL,
    batch: Annotated[bool, typer.Option("--batch", help="Run the batch jobs only.")] = False,
    streaming: Annotated[bool, typer.Option("--streaming", help="Run the streaming job only.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results, one Parquet folder per job.")] = Path("out/demo"),
    keep: Annotated[
        Path | None,
        typer.Option(help="Empty folder in which the streaming job leaves files, checkpoint and results."),
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="File for the figures; - for the standard output, and the report moves away.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Join flights and tweet counts through Spark, then a stream whose data drift, whose worker dies and that restarts.

    A batch job that is named is run alone.
    """
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise typer.BadParameter(f"{keep} is there and not an empty folder", param_hint="--keep")
    console = Console(stderr=json == "-")
    named = job is not Choice.ALL
    jobs = [JOBS[name]() for name in JOBS if job in (Choice.ALL, name)] if batch or named or not streaming else []
    course = Course() if streaming or not (batch or named) else None
    try:
        agree, figures = run(console, jobs, course, out, master, keep)
    except EddyError as error:
        console.print(f"[bold red]{type(error).__name__}:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    if json is not None:
        text = dumps(figures, indent=1)
        if json == "-":
            typer.echo(text)
        else:
            Path(json).write_text(text + "\n")
    if not agree:
        raise typer.Exit(1)


def run(
    console: Console, jobs: list[Job], course: Course | None, out: Path, master: str, keep: Path | None = None
) -> tuple[bool, dict[str, Any]]:
    """Run jobs one after the other and print a report of each; tell whether all results are right, and the figures."""
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
    figures: dict[str, Any] = {}
    try:
        # One that disagrees does not keep the next from running.
        for job in jobs:
            figures[job.name] = run_job(console, job, spark, out)
        if course is not None:
            figures["streaming"] = run_streaming(console, course, spark, keep)
    finally:
        spark.stop()
    return all(one["exact"] for one in figures.values()), figures


def run_streaming(console: Console, course: Course, spark: SparkSession, keep: Path | None = None) -> dict[str, Any]:
    """Run the streaming job, showing each micro-batch; give its figures. Its files lie in `keep`, None: they go."""
    start = time.perf_counter()
    console.print()
    console.rule("[bold]A stream that drifts, fails and goes on", align="left")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(TemporaryDirectory(prefix="eddy-demo-")))
        arrivals = draw(course.batches, course.rows)
        console.print(introduction(course, arrivals))
        live = stack.enter_context(Live(console=console, auto_refresh=False, vertical_overflow="visible"))
        story, verdict = run_stream(
            spark, folder.absolute(), course, arrivals, lambda story: live.update(view(story, NEWEST), refresh=True)
        )
        live.update(view(story), refresh=True)
    print_end(console, story, verdict)
    if keep is not None:
        console.print(f"Files, checkpoint and results: {keep}")
    return figures_of(course, story, verdict, time.perf_counter() - start)


def run_job(console: Console, job: Job, spark: SparkSession, out: Path) -> dict[str, Any]:
    """Run a job through Spark and in this process and print a report; give the figures.

    "exact" tells whether both give the same rows.
    """
    spark_run, engine_run = run_both(console, job, spark, out)
    agree = same_rows(spark_run.results, engine_run.results)
    print_job(console, job, spark_run, engine_run, agree)
    return {
        "tuples": engine_run.tuples,
        "results": spark_run.results.num_rows,
        "exact": agree,
        "spark_seconds": spark_run.seconds,
        "engine_seconds": engine_run.seconds,
    }


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
        task = progress.add_task(f"{job.name}, the engine alone", total=ROUNDS * tuples, unit="tuples")
        engine_run = run_in_process(job, streams, lambda done: progress.advance(task, done))
    return spark_run, engine_run
