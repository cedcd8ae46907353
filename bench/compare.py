"""`eddy bench --compare`: the figures that differ between two runs by more than the noise.

A figure with a spread has changed if the ranges of its rounds do not overlap and the medians differ by more than FLOOR
and by more than half of the wider range. A figure without a spread, which was measured once, has changed if its two
numbers differ by more than ALONE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from bench.harness.store import MeasuredFigure, StoreError, flat, read_figures
from eddy import EddyError

FLOOR = 0.03
"""Difference of the medians of two runs of the same program."""
ALONE = 0.15
"""Largest difference between single measurements of the same program, except for about one in twenty."""
LESS_IS_BETTER = (
    *("_s", "_ms", "_ns", "/ns", "ns_per_outcome", "seconds", "bytes", "_cost"),
    *("_vs_symmetric_hash", "_batch", "_per_live_tuple"),
)
"""Ends of names of figures that are better when they are small, unless they are a rate."""

SAME, BETTER, WORSE, CHANGED = "same", "better", "worse", "changed"


class CompareError(EddyError):
    """A file does not contain figures."""


@dataclass(frozen=True)
class Verdict:
    """The change of a figure: SAME, BETTER, WORSE, or CHANGED if neither value is better; `ratio` is after / before."""

    name: str
    before: MeasuredFigure
    after: MeasuredFigure
    ratio: float
    verdict: str


def read(path: Path) -> dict[str, MeasuredFigure]:
    """Return the figures of a file by name. Raises CompareError."""
    try:
        records = read_figures(path)
    except StoreError as error:
        raise CompareError(f"{error}: write it with `eddy bench … --json FILE`") from error
    figures = {name: measured for figure, points in records.items() for name, measured in flat(figure, points).items()}
    if not figures:
        raise CompareError(f"{path} holds no figure: write it with `eddy bench … --json FILE`")
    return figures


def better(name: str) -> int:
    """Return 1 for a figure that is better when it is larger, -1 for one that is better when it is smaller, else 0.

    >>> better("W1.engine_vs_loop"), better("fig7/seconds"), better("streaming.rows_per_s"), better("state_rows")
    (1, -1, 1, 0)
    """
    if name.endswith("_per_s"):
        return 1
    if name.endswith(LESS_IS_BETTER) or name.startswith(("pause", "latency", "steady_max", "migration")):
        return -1
    return 1 if "_vs_" in name or "vs_" in name or name.startswith("scaling") else 0


def verdict(name: str, before: MeasuredFigure, after: MeasuredFigure) -> Verdict:
    """Compare one figure."""
    if before.value == 0:
        return Verdict(name, before, after, float("nan"), SAME if after.value == 0 else CHANGED)
    ratio = after.value / before.value
    if before.low is None or before.high is None or after.low is None or after.high is None:
        moved = abs(ratio - 1) > ALONE
    else:
        apart = after.low > before.high or after.high < before.low
        # On a busy machine the rounds of one run spread widely, and may just miss the narrow range of another.
        width = max(before.high - before.low, after.high - after.low)
        moved = apart and abs(ratio - 1) > FLOOR and abs(after.value - before.value) > width / 2
    side = better(name) * (1 if ratio > 1 else -1)
    return Verdict(name, before, after, ratio, {0: CHANGED, 1: BETTER, -1: WORSE}[side] if moved else SAME)


def compare(before: Mapping[str, MeasuredFigure], after: Mapping[str, MeasuredFigure]) -> list[Verdict]:
    """Compare the figures that both runs have; changed figures come first."""
    verdicts = [verdict(name, before[name], after[name]) for name in before if name in after]
    return sorted(verdicts, key=lambda compared: [WORSE, CHANGED, BETTER, SAME].index(compared.verdict))


def _text(figure: MeasuredFigure) -> str:
    return f"{figure.value:.4g}" + ("" if figure.low is None else f" ({figure.low:.3g} to {figure.high:.3g})")


def show(verdicts: list[Verdict], console: Console) -> None:
    """Print a table of the figures that changed, and the number of figures compared."""
    table = Table(Column("figure", overflow="fold"), "before", "after", "after / before", "verdict")
    for compared in verdicts:
        if compared.verdict != SAME:
            table.add_row(
                compared.name, _text(compared.before), _text(compared.after), f"{compared.ratio:.3g}", compared.verdict
            )
    if table.row_count:
        console.print(table)
    counts = {kind: sum(compared.verdict == kind for compared in verdicts) for kind in (WORSE, CHANGED, BETTER, SAME)}
    console.print(
        f"{len(verdicts)} figures compared: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
    )
