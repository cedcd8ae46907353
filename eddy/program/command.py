"""The command `eddy run`: a streaming job in one file, on a Spark of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from eddy.program.running import RunningProgram, check_program, describe, ended_by_signals
from eddy.program.text import Insertion
from eddy.spark.errors import first_line
from stairs.errors import EddyError, SqlError

app = typer.Typer(add_completion=False)


@app.command(name="run")
def run(
    program: Annotated[Path, typer.Argument(help="File with CREATE TABLE … WITH (…) and INSERT INTO … SELECT …")],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Directory, or URL such as s3://bucket/prefix, in which the job keeps its state; the next start goes"
            " on from it."
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="As --once, and no more rows will come: results that wait are written.")
    ] = False,
    every: Annotated[
        str | None, typer.Option(help='Time between micro-batches, such as "5 seconds"; none = at once.')
    ] = None,
    page: Annotated[
        int | None,
        typer.Option(help="Port of the live page of the statement set, or else of the first INSERT; 0 = a free one."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file and its options, and start nothing.")] = False,
) -> None:
    """Run the queries of a file as streaming joins on Spark, until they are stopped by Ctrl-C.

    A start goes on where the last one stopped, and each result is written once.
    """
    try:
        inserts = check_program(_text(program))
    except EddyError as problem:
        raise _ended(program, problem) from None
    for insertion in inserts:
        typer.echo(describe(insertion), err=True)
    if check:
        return
    if checkpoint is None:
        raise _ended(
            program,
            EddyError("give the place of the job's state: --checkpoint PATH, or a URL such as s3://bucket/prefix"),
        )
    if (once or finish) and (every is not None or page is not None):
        raise _ended(program, EddyError("--every and --page are for a job that goes on; leave them or --once out"))
    trigger = {"availableNow": True, "finish": finish} if once or finish else {"processingTime": every} if every else {}
    try:
        _run(program, inserts, checkpoint, master, trigger, page)
    except EddyError as problem:
        raise _ended(program, problem) from None


def _run(
    program: Path,
    inserts: Sequence[Insertion],
    checkpoint: str,
    master: str,
    trigger: Mapping[str, Any],
    page: int | None,
) -> None:
    """Run the joins of a program on a Spark of their own. Raises EddyError."""
    from eddy.spark import session

    try:
        spark = session(master, app_name=f"eddy run {program.name}")
    except EddyError:
        raise
    except Exception as problem:
        raise EddyError(f"Spark does not start with --master {master}: {first_line(problem)}") from problem
    try:
        with ended_by_signals() as ended:
            running = RunningProgram.started(spark, inserts, checkpoint, trigger)
            try:
                if page is not None:
                    typer.echo(f"live page: {next(iter(running.joins.values())).serve(page).url}", err=True)
                running.wait(ended)
            finally:
                running.stop()
            for line in running.summary():
                typer.echo(line, err=True)
    finally:
        with suppress(Exception):  # a signal may have ended it
            spark.stop()


def _text(program: Path) -> str:
    try:
        return program.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise SqlError(f"it cannot be read: {problem}", 1, 1) from problem


def _ended(program: Path, problem: EddyError) -> typer.Exit:
    """Print an error, with the name of the file; return the end of the command."""
    typer.echo(f"eddy run: {program}: {problem}", err=True)
    return typer.Exit(1)
