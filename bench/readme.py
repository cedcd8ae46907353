"""Rewrites the table of figures in the README from the output of `eddy bench limit --json FILE`.

    python -m bench.readme FILE

The table stands between two marker comments. Figures come from the file and nowhere else; what the file lacks is left
out, and the table says on what machine and with which versions it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.limit import BARS
from eddy import EddyError

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"

TITLES = {
    "W1.engine_vs_loop": "W1, four streams on one key: engine / hand-written loop, row ids out",
    "W1.arrow_vs_loop": "W1, Arrow batches in, Arrow tables out / hand-written loop",
    "W1.batch1000_vs_batch100000": "W1, engine: pushes of 1 000 / pushes of 100 000",
    "W1.arrow_batch1000_vs_batch100000": "W1, Arrow: pushes of 1 000 / pushes of 100 000",
    "W1.arrow_vs_polars_microbatch": "W1, Arrow / Polars in micro-batches of 50 000, one thread each",
    "W2.engine_vs_loop": "W2, a chain of four streams, three attributes: engine / hand-written loop",
    "W2.arrow_vs_loop": "W2, Arrow batches in, Arrow tables out / hand-written loop",
    "W2.batch1000_vs_batch100000": "W2, engine: pushes of 1 000 / pushes of 100 000",
    "W2.arrow_batch1000_vs_batch100000": "W2, Arrow: pushes of 1 000 / pushes of 100 000",
    "W21.engine_vs_loop": "W21, 21 streams, every arrival joins all the way: engine / hand-written loop",
    "W21.batch1000_vs_batch100000": "W21, engine: pushes of 1 000 / pushes of 100 000",
    "W1.loop_tuples_per_s": "W1, hand-written loop, tuples/s",
    "W1.engine_tuples_per_s": "W1, engine, tuples/s",
    "W1.arrow_tuples_per_s": "W1, Arrow in and out, tuples/s",
    "W1.polars_tuples_per_s": "W1, Polars in micro-batches, tuples/s",
    "W2.loop_tuples_per_s": "W2, hand-written loop, tuples/s",
    "W2.engine_tuples_per_s": "W2, engine, tuples/s",
    "W2.arrow_tuples_per_s": "W2, Arrow in and out, tuples/s",
    "W21.loop_tuples_per_s": "W21, hand-written loop, tuples/s",
    "W21.engine_tuples_per_s": "W21, engine, tuples/s",
    "spark.rows_vs_identity": "Spark, rows: join / a `mapInArrow` that does nothing, same rows",
    "spark.packed_vs_rows": "Spark: packed transport / rows",
    "state.bytes_per_live_tuple": "W1, bytes of state per live tuple, payload included",
}
"""What each figure is, in the order of the table."""


class ReadmeError(EddyError):
    """The figures cannot be put into the document."""


def number(value: float) -> str:
    """Return a figure with three digits that count.

    >>> number(0.61789), number(12.3456), number(20_123_456.0), number(143.2)
    ('0.618', '12.3', '20.1 M', '143')
    """
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table under a line that names the machine. Raises ReadmeError for a bad file."""
    machine = figures.get("machine")
    if not isinstance(machine, str) or not machine:
        raise ReadmeError('the figures have no "machine": write the file with `eddy bench limit --json FILE`')
    unknown = sorted(set(figures) - set(TITLES) - {"machine"})
    if unknown:
        raise ReadmeError(f"no title for {', '.join(unknown)}: give it one in bench/readme.py")
    lines = [f"Measured on {machine}.", "", "| what | measured | wanted |", "|---|---|---|"]
    for name, title in TITLES.items():
        if name in figures:
            wanted = f"≥ {BARS[name]:g}" if name in BARS else ""
            lines.append(f"| {title} | {number(figures[name])} | {wanted} |")
    return "\n".join(lines)


def with_table(text: str, figures: Mapping[str, Any]) -> str:
    """Return a document with the table between its markers. Raises ReadmeError unless it has them once, in order."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in tail:
        raise ReadmeError(f"the document does not have {BEGIN} and, after it, {END}, once each")
    return f"{head}{BEGIN}\n\n{table(figures)}\n\n{END}{tail}"


def main(
    figures: Annotated[Path, typer.Argument(help="What `eddy bench limit --json FILE` wrote.")],
    document: Annotated[Path, typer.Argument(help="The document to rewrite.")] = README,
) -> None:
    """Rewrite the table of figures in the README."""
    document.write_text(with_table(document.read_text(), json.loads(figures.read_text())))
    typer.echo(f"{document.name}: figures of {figures.name}")


if __name__ == "__main__":
    typer.run(main)
