"""Write the table of peers into the README, from the figures of the report.

    python -m bench.readme

The block is between `<!-- figure peers -->` and `<!-- /figure peers -->`: the plot of the report, and one row for each
engine on W1 with RANGE windows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from bench.harness.figure import Row
from bench.harness.report import PLOTS
from bench.harness.store import FIGURES, read_figures
from bench.harness.tables import markdown
from eddy import EddyError

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- figure peers -->\n).*?(<!-- /figure peers -->)", re.DOTALL)
MOST = 12
"""Rows of the table."""
LEFT_OUT = ("eddy, counting", "eddy, engine", "loop, numba")
"""Peers that other rows represent: eddy without values in the output, and the loop of C in another language."""


class ReadmeError(EddyError):
    """The document has no block for the figures, or several."""


def block(report: Path, document: Path) -> str:
    """Return the plot and the table of peers. Raises ReadmeError if the report has no figures of them."""
    records = read_figures(report / FIGURES).get("peers", [])
    rows: list[Row] = [row for record in records for row in record.merged()]
    rows = [row for row in rows if row["windows"] == "RANGE" and "tuples_per_s" in row and row["peer"] not in LEFT_OUT]
    if not rows:
        raise ReadmeError(f"{report / FIGURES} has no figures of peers")
    rows.sort(key=lambda row: float(row["tuples_per_s"] or 0), reverse=True)
    plot = os.path.relpath(report / PLOTS / "peers.svg", document.parent)
    body = [[row["peer"], float(row["tuples_per_s"] or 0), row["eddy_faster"]] for row in rows[:MOST]]
    table = markdown(["engine", "tuples/s", "eddy is × as fast"], body)
    return "\n".join([f"![Tuples a second of each peer]({plot})", "", *table])


def with_block(text: str, report: Path, document: Path) -> str:
    """Return a document with the block replaced. Raises ReadmeError unless it has exactly one."""
    if len(BLOCK.findall(text)) != 1 or text.count("figure peers -->") != 2:
        raise ReadmeError(f"{document} needs one <!-- figure peers --> and one <!-- /figure peers --> after it")
    return BLOCK.sub(lambda match: f"{match[1]}\n{block(report, document)}\n\n{match[2]}", text)


def main(report: Path = ROOT / "bench" / "report", document: Path = ROOT / "README.md") -> None:
    """Write the block into the README."""
    document.write_text(with_block(document.read_text(), report, document))


if __name__ == "__main__":
    main()
