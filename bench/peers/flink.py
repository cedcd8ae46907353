"""Flink SQL: three interval joins in a cluster embedded in one JVM, from an environment of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.harness.figure import Say
from bench.peers.apart import Apart, Outcome, slope
from bench.peers.environment import SCRIPTS, Unavailable, answers, python_of
from bench.peers.works import SPAN, Work
from eddy import EddyError
from eddy.spark.environment.java import java_home

NAME = "flink"
TIMEOUT = 600.0


def _runs(python: Path, java: Path, threads: int, small: Path, large: Path, repeats: int) -> list[dict[str, object]]:
    # The first job is for the JVM to compile, and not counted.
    files = [large, *([small, large] * repeats)]
    arguments = [str(SPAN), str(threads), *map(str, files)]
    return answers(NAME, python, SCRIPTS / "flink_w1.py", arguments, TIMEOUT, {"JAVA_HOME": str(java)})[1:]


def measure(work: Work, repeats: int, threads: int, say: Say) -> Outcome:
    """Join the work with so many task slots. Raises Unavailable."""
    python = python_of(NAME)
    try:
        java = java_home()
    except EddyError as missing:
        raise Unavailable(f"{NAME}: no Java: {missing}") from missing
    say(f"flink, {work.arrivals:,} arrivals")
    return slope(NAME, work, repeats, partial(_runs, python, java, threads))


FLINK = Apart("Flink SQL", measure)
