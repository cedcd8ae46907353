"""The command `eddy demo`: start Spark, run the jobs, print the reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from json import dumps
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from eddy.demo import itineraries, tweets
from eddy.demo.job import ROUNDS, DemoJob, EngineRun, SparkRun, read_streams, run_in_process, run_in_spark, same_rows
from eddy.demo.object_server import object_server
from eddy.demo.report import print_job
from eddy.demo.scenario import Scenario
from eddy.demo.stream import run_stream
from eddy.demo.stream_report import NEWEST, introduction, print_end, view
from eddy.demo.stream_report import figures as figures_of
from eddy.demo.transfers import draw
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.object_store import is_url
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(add_completion=False)

JOBS = {"itineraries": itineraries.job, "tweets": tweets.job}


AWS = {f"AWS_{name}" for name in ("ACCESS_KEY_ID", "PROFILE", "ENDPOINT", "ENDPOINT_URL", "WEB_IDENTITY_TOKEN_FILE")}
"""Variables that say how the user reaches an S3."""


class BatchJob(StrEnum):
    """The batch jobs."""

    ALL = "all"
    ITINERARIES = "itineraries"
    TWEETS = "tweets"


@app.command(name="demo")
def demo(
    job: Annotated[BatchJob, typer.Argument(help="The batch job to run.")] = BatchJob.ALL,
    batch: Annotated[bool, typer.Option("--batch", help="Run the batch jobs only.")] = False,
    streaming: Annotated[bool, typer.Option("--streaming", help="Run the streaming job only.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results: one Parquet folder per job.")] = Path("out/demo"),
    keep: Annotated[
        Path | None,
        typer.Option(help="Empty folder in which the streaming job keeps its files, checkpoint and results."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="URL of an object store for the checkpoint of the streaming job, such as s3://bucket/prefix. Without"
            " credentials in the environment the demo starts an S3 of its own."
        ),
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="File for the figures; - for standard output, with the report on standard error.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Join flights and tweet counts in Spark, then run a streaming join through drift, a killed worker and a restart.

    With the name of a batch job, only that job is run.
    """
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise typer.BadParameter(f"{keep} exists and is not an empty folder", param_hint="--keep")
    console = Console(stderr=json == "-")
    named = job is not BatchJob.ALL
    jobs = [JOBS[name]() for name in JOBS if job in (BatchJob.ALL, name)] if batch or named or not streaming else []
    scenario = Scenario() if streaming or not (batch or named) else None
    try:
        agree, figures = run(console, jobs, scenario, out, master, keep, checkpoint)
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
    console: Console,
    jobs: list[DemoJob],
    scenario: Scenario | None,
    out: Path,
    master: str,
    keep: Path | None = None,
    checkpoint: str | None = None,
) -> tuple[bool, dict[str, Any]]:
    """Run jobs one after the other and print reports; return whether all results are exact, and the figures."""
    from eddy import warmup
    from eddy.spark import session

    start = time.perf_counter()
    with console.status("starting Spark"):
        spark = session(master, app_name="eddy demo")
    console.print(f"Spark started in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    with console.status("loading the kernels (the first run on a machine compiles them)"):
        warmup()
    console.print(f"kernels ready in {time.perf_counter() - start:.1f} s")
    figures: dict[str, Any] = {}
    try:
        # After a job with wrong results, the next one still runs.
        for job in jobs:
            figures[job.name] = run_job(console, job, spark, out)
        if scenario is not None:
            figures["streaming"] = run_streaming(console, scenario, spark, keep, checkpoint)
    finally:
        spark.stop()
    return all(job_figures["exact"] for job_figures in figures.values()), figures


def run_streaming(
    console: Console, scenario: Scenario, spark: SparkSession, keep: Path | None = None, checkpoint: str | None = None
) -> dict[str, Any]:
    """Run the streaming job and show each micro-batch; return the figures.

    keep        folder for the files of the job, None = a temporary one
    checkpoint  URL of an object store for its checkpoint, None = below that folder
    """
    start = time.perf_counter()
    console.print()
    console.rule("[bold]A streaming join through drift, failure and restart", align="left")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(TemporaryDirectory(prefix="eddy-demo-")))
        place = None if checkpoint is None else stack.enter_context(_in_store(console, checkpoint))
        arrivals = draw(scenario.batches, scenario.rows)
        console.print(introduction(scenario, arrivals))
        live = stack.enter_context(Live(console=console, auto_refresh=False, vertical_overflow="visible"))
        record, outcome = run_stream(
            spark,
            folder.absolute(),
            scenario,
            arrivals,
            lambda record: live.update(view(record, NEWEST), refresh=True),
            place,
        )
        live.update(view(record), refresh=True)
    print_end(console, record, outcome)
    if keep is not None:
        console.print(f"Files, checkpoint and results: {keep}")
    return figures_of(scenario, record, outcome, time.perf_counter() - start)


@contextmanager
def _in_store(console: Console, url: str) -> Iterator[dict[str, Any]]:
    """Return the options of a join with a checkpoint in an object store: one of the user, or an S3 of this process."""
    if not is_url(url):
        raise SparkJoinError(f"--checkpoint {url}: give the URL of an object store; --keep takes a folder")
    if not url.startswith("s3") or not environ.keys().isdisjoint(AWS):
        yield {"checkpoint": url}
        return
    with object_server(url.split("/")[2]) as server:
        console.print(f"an S3 of this process has the checkpoint: {url} at {server.endpoint}")
        yield {"checkpoint": url, "checkpoint_options": server.options}
        console.print(f"\n{len(server.requests):,} requests to the S3")


def run_job(console: Console, job: DemoJob, spark: SparkSession, out: Path) -> dict[str, Any]:
    """Run a job in Spark and in this process and print a report; return the figures.

    "exact" is whether both give the same rows.
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


def run_both(console: Console, job: DemoJob, spark: SparkSession, out: Path) -> tuple[SparkRun, EngineRun]:
    """Run a job in Spark and in this process, and show the progress."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{job.name} in Spark", total=1, unit="job")
        spark_run = run_in_spark(job, spark, out)
        progress.advance(task)
        task = progress.add_task(f"{job.name}, reading rows into this process", total=1, unit="read")
        streams = read_streams(job, spark)
        progress.advance(task)
        tuples = sum(table.num_rows for table in streams.values())
        task = progress.add_task(f"{job.name}, the engine alone", total=ROUNDS * tuples, unit="tuples")
        engine_run = run_in_process(job, streams, lambda done: progress.advance(task, done))
    return spark_run, engine_run
