"""Puts figures of the report into the README.

    python -m bench.readme

A figure stands between the comments `<!-- figure NAME -->` and `<!-- /figure NAME -->`: its plots, tables and remarks
as in the report, from the points kept beside it. A figure that was not measured keeps what stands there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from bench.contents import load
from bench.harness.report import PLOTS, POINTS
from bench.harness.store import Store
from bench.harness.told import best_known, lines_of
from eddy import EddyError

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"<!-- figure (\S+) -->\n(.*?)<!-- /figure (\S+) -->", re.DOTALL)


class ReadmeError(EddyError):
    """The figures cannot be put into the document."""


def names_in(text: str) -> list[str]:
    """Return the figures that a document has places for. Raises ReadmeError if a place is open, or there twice."""
    found = MARK.findall(text)
    names = [begin for begin, _, end in found if begin == end]
    marks = len(re.findall(r"<!-- /?figure ", text))
    if marks != 2 * len(names) or len(set(names)) < len(names):
        raise ReadmeError("each <!-- figure NAME --> needs its <!-- /figure NAME --> after it, once a document")
    return names


def with_figures(text: str, report: Path, document: Path) -> str:
    """Return a document with the figures of a report in their places. Raises ReadmeError, UnknownFigure."""
    store = Store(report / POINTS)
    plots = os.path.relpath(report / PLOTS, document.parent)
    bodies = {}
    for figure in load(names_in(text)):
        lines = lines_of(figure, best_known(figure, store), plots)
        if lines:
            bodies[figure.name] = "\n".join(lines)

    def body(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- figure {name} -->\n\n{bodies[name]}\n\n<!-- /figure {name} -->" if name in bodies else found[0]

    return MARK.sub(body, text)


def main(
    report: Annotated[Path, typer.Option(help="The folder of the report.")] = ROOT / "bench" / "report",
    document: Annotated[Path, typer.Option(help="The document to rewrite.")] = ROOT / "README.md",
) -> None:
    """Put the figures of the report into the README."""
    text = document.read_text()
    if not names_in(text):
        raise ReadmeError(f"{document}: no place for a figure")
    document.write_text(with_figures(text, report, document))
    typer.echo(f"{document.name}: {', '.join(names_in(text))}")


if __name__ == "__main__":
    typer.run(main)
