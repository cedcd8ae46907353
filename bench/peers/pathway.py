"""Pathway: three interval joins fed by a Python connector, from an environment of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.harness.figure import Say
from bench.peers.apart import Apart, Outcome, slope
from bench.peers.environment import SCRIPTS, answers, python_of
from bench.peers.works import SPAN, Work

NAME = "pathway"
TIMEOUT = 600.0


def _runs(python: Path, commit: int, threads: int, small: Path, large: Path, repeats: int) -> list[dict[str, object]]:
    found = []
    for file in (small, large) * repeats:
        arguments = [str(SPAN), str(commit), str(file)]
        variables = {"PATHWAY_THREADS": str(threads)}
        found.append(answers(NAME, python, SCRIPTS / "pathway_w1.py", arguments, TIMEOUT, variables)[-1])
    return found


def measure(work: Work, repeats: int, threads: int, say: Say) -> Outcome:
    """Join the work with so many threads, a commit after each of its steps. Raises Unavailable."""
    python = python_of(NAME)
    say(f"pathway, {work.arrivals:,} arrivals")
    return slope(NAME, work, repeats, partial(_runs, python, work.batch, threads))


PATHWAY = Apart("Pathway", measure)
