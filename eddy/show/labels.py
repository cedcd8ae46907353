"""Labels of the parts of a plan, which DOT and SVG show alike."""

from __future__ import annotations

from eddy.show.description import JoinDescription, StairDescription, StemDescription, StemFigures
from eddy.show.text import bytes_text

LONGEST = 40
"""Maximal characters of a line; a longer line is cut."""


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most this many characters, in one line.

    >>> cut("impressions of all users", 12)
    'impressions…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short(count: float) -> str:
    """Return a number in at most five characters and a unit.

    >>> short(12345), short(999), short(2_500_000)
    ('12.3 k', '999', '2.5 M')
    """
    for unit in ("", " k", " M", " G"):
        if abs(count) < 1000 or unit == " G":
            return f"{count:.3g}{unit}" if count != int(count) or unit else f"{int(count)}"
        count /= 1000
    raise AssertionError


def node_lines(node: StemDescription | JoinDescription) -> list[str]:
    """Return the lines of a node: its name, its figures, the work on it; one line without figures."""
    if isinstance(node, StemDescription):
        lines = [cut(node.stream), cut(f"{node.window}{' (from the intervals)' if node.derived else ''}")]
        figures = node.figures
        if figures is not None:
            share = "" if figures.share is None else f", {figures.share:.0%} of arrivals"
            size = "" if figures.bytes is None else f", {bytes_text(figures.bytes)}"
            lines.append(f"{short(figures.rows)} rows{size}{share}")
            lines += [line for line in [_work(figures)] if line]
            if figures.marks:
                lines.append(f"{short(figures.marks)} no-good marks")
        return lines
    lines = [f"⋈ {', '.join(f'[{c}]' for c in node.on)}"]
    if node.stair is None:
        return [*lines, "results" if node.root else "presence words" if node.words else "not stored"]
    pending = f", {short(node.stair.pending)} keys to complete" if node.stair.pending else ""
    lines.append(f"stored by [{node.stair.by}]{pending}")
    lines.append(f"{short(node.stair.entries)} entries, {bytes_text(node.stair.bytes)}")
    return [*lines, *(line for line in [_work(node.stair)] if line)]


def _work(state: StemFigures | StairDescription) -> str:
    """Return the selectivity of the probes of a state, and their share of the time."""
    if not state.probes:
        return ""
    time = "" if state.time is None else f", {state.time:.0%} of probe time"
    return f"{state.matches / state.probes:.3g} per probe{time}"
