"""The description as SVG: of each join its graph, and below it its plan."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eddy.show.description import Description, JoinPlan
from eddy.show.drawing import INK, element, picture, words
from eddy.show.graph_svg import graph_svg
from eddy.show.labels import cut
from eddy.show.plan_svg import plan_svg

_SIZE = re.compile(r' width="(\d+)" height="(\d+)"')
_GAP = 10


def as_svg(shown: Description) -> str:
    """Return one drawing of all joins, one below the other."""
    parts = [part for join in shown.joins for part in (_title(join), graph_svg(join), plan_svg(join)) if part]
    return stacked(parts, f"{cut(shown.title)}: join graphs and plans")


def _title(join: JoinPlan) -> str:
    if not join.title:
        return ""
    text = cut(join.title, 100)
    return picture(8 * len(text) + 24, 24, [words(text, 12, 17, size=13, anchor="start", fill=INK, weight=600)], text)


def stacked(drawings: Iterable[str], label: str) -> str:
    """Return one drawing that shows several drawings below each other."""
    parts, width, top = list[str](), 1, 0
    for drawing in drawings:
        size = _SIZE.search(drawing)
        assert size is not None
        own_width, own_height = map(int, size.groups())
        parts.append(element("g", drawing, transform=f"translate(0 {top})"))
        width, top = max(width, own_width), top + own_height + _GAP
    return picture(width, max(top - _GAP, 1), parts, label)
