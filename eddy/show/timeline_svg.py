"""The history of a runtime as SVG: the plan that ran at each position, a mark for each change, and its effect.

Each plan has a colour; a change of stored states does not change the colour. The lines below describe the newest
changes, one change per line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from eddy.show.drawing import FAINT, INK, KEYS, LINE, element, picture, tip, words
from eddy.show.labels import cut, short

WIDTH, LEFT, BAR, LINE_HEIGHT = 760, 16, 22, 15
SHOWN = 12
"""Maximal number of changes described in words: the newest changes."""


def timeline_svg(history: Sequence[Mapping[str, Any]], position: int, plan: str) -> str:
    """Return a drawing of the rows of `Runtime.history` of one join, up to a position; `plan` runs now."""
    end = max(position, 1, *(row["position"] for row in history)) if history else max(position, 1)
    inner = WIDTH - 2 * LEFT

    def at(value: int) -> int:
        return LEFT + round(inner * value / end)

    plans = [row["old"] for row in history] + [history[-1]["new"] if history else plan]
    bounds = [0, *(row["position"] for row in history), end]
    colours = {text: KEYS[k % len(KEYS)] for k, text in enumerate(dict.fromkeys(plans))}
    parts = [
        element("rect", tip(f"{text}, arrivals {low:,} to {high:,}"), x=at(low), y=24, width=max(at(high) - at(low), 1),
                height=BAR, fill=colours[text], fill_opacity=0.55)
        for text, (low, high) in zip(plans, pairwise(bounds), strict=True)
    ]  # fmt: skip
    for row in history:
        x = at(row["position"])
        parts.append(element("line", tip(_line(row)), x1=x, y1=18, x2=x, y2=30 + BAR, stroke=INK, stroke_width=2))
    parts.append(words("0", LEFT, 14, anchor="start", fill=FAINT))
    parts.append(words(f"{end:,} arrivals", WIDTH - LEFT, 14, anchor="end", fill=FAINT))
    newest = list(history)[-SHOWN:]
    lines = [(INK, cut(_line(row), 118)) for row in reversed(newest)] or [(FAINT, "no change of plan so far")]
    if len(history) > SHOWN:
        lines.append((FAINT, f"and {len(history) - SHOWN:,} earlier changes"))
    top = 24 + BAR + 26
    for k, (colour, text) in enumerate(lines):
        parts.append(words(text, LEFT, top + LINE_HEIGHT * k, anchor="start", fill=colour))
    parts.append(element("line", x1=LEFT, y1=24 + BAR, x2=WIDTH - LEFT, y2=24 + BAR, stroke=LINE))
    return picture(WIDTH, top + LINE_HEIGHT * len(lines), parts, f"{len(history):,} changes of plan")


def _line(row: Mapping[str, Any]) -> str:
    """Return a change in words: when, to which plan, why, and what an arrival cost before and after it."""
    effect = ""
    if row.get("ns_before") and row.get("ns_after"):
        effect = f", {short(round(row['ns_before']))} → {short(round(row['ns_after']))} ns per arrival"
    stored = f" storing {row['stored']}" if row.get("stored") else ""
    what = f"→ {row['new']}" if row["old"] != row["new"] else row["new"]
    return f"at {row['position']:,}: {what}{stored}: {row['reason'] or 'no reason given'}{effect}"
