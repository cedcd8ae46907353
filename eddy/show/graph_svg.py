"""The join graph as SVG: streams on an ellipse, a line for each key of two streams, a star for a key of more.

Dashed lines are comparisons. Below the graph, the keys and comparisons in words.
"""

from __future__ import annotations

from math import cos, hypot, pi, sin

from eddy.show.description import JoinPlan
from eddy.show.drawing import FAINT, INK, KEYS, LINE, PAPER, STEM, element, picture, tip, words
from eddy.show.labels import cut

CHARACTER, HEIGHT, LEGEND = 7, 28, 16
SHOWN = 24
"""Maximal number of keys and comparisons in the legend."""


Point = tuple[int, int]
APART = 22
"""Distance at which two labels do not overlap."""
ALONG = [0.5 + sign * step / 50 for step in range(17) for sign in (1, -1)]
"""Places of a label on its line, as shares of its length, the best first."""


def graph_svg(join: JoinPlan) -> str:
    """Return a drawing of the join graph. O(streams + keys)."""
    names = join.streams
    widest = max(60, CHARACTER * max(len(cut(name, 24)) for name in names) + 16)
    n = len(names)
    across = max(widest + 80, round(n * (widest + 36) / pi))
    down = 0 if n == 2 else max(100, round(n * (HEIGHT + 36) / pi))
    legend = [(KEYS[(key.number - 1) % len(KEYS)], f"[{key.number}] {key.text}") for key in join.keys]
    legend += [(FAINT, comparison.text) for comparison in join.comparisons]
    more = len(legend) - SHOWN
    legend = legend[:SHOWN] + [(FAINT, f"and {more} more")] * (more > 0)
    lines = [(colour, cut(text, 90)) for colour, text in legend]
    width = max(across + widest + 40, 6 * max((len(text) for _, text in lines), default=0) + 40)
    top = down + HEIGHT + 30
    middle_x, middle_y = width // 2, top // 2
    # Two streams lie side by side; more begin at the top.
    start = pi if n == 2 else -pi / 2
    places = {
        name: (
            middle_x + round(across / 2 * cos(start + 2 * pi * k / n)),
            middle_y + round(down / 2 * sin(start + 2 * pi * k / n)),
        )
        for k, name in enumerate(names)
    }
    parts = list[str]()
    labels = [*places.values()]
    for key in join.keys:
        parts += _key(key.number, key.text, [places[name] for name in key.streams], labels)
    for comparison in join.comparisons:
        (x1, y1), (x2, y2) = places[comparison.left], places[comparison.right]
        # Beside a line of a key between the same streams.
        line = element(
            "path",
            tip(comparison.text),
            d=f"M{x1} {y1} Q{(x1 + x2) // 2 + 14} {(y1 + y2) // 2 + 22} {x2} {y2}",
            fill="none",
            stroke=LINE,
            stroke_dasharray="4 3",
        )
        parts.append(line)
    for name, (x, y) in places.items():
        oval_width = max(44, CHARACTER * len(cut(name, 24)) + 16)
        oval = element(
            "rect",
            x=x - oval_width // 2,
            y=y - HEIGHT // 2,
            width=oval_width,
            height=HEIGHT,
            rx=14,
            fill=STEM,
            stroke=INK,
        )
        parts.append(element("g", tip(name), oval, words(cut(name, 24), x, y + 4, weight=600)))
    for k, (colour, text) in enumerate(lines):
        parts.append(words(text, 16, top + 12 + LEGEND * k, anchor="start", fill=colour))
    return picture(width, top + LEGEND * len(lines) + 10, parts, f"join graph of {cut(', '.join(names), 400)}")


def _key(number: int, text: str, ends: list[Point], labels: list[Point]) -> list[str]:
    """Return the lines of a key and its label, whose place is added to those of the labels so far."""
    colour = KEYS[(number - 1) % len(KEYS)]
    if len(ends) == 2:
        (x1, y1), (x2, y2) = ends
        # Lines of opposite streams meet in the middle.
        x, y = _free([(round(x1 + t * (x2 - x1)), round(y1 + t * (y2 - y1))) for t in ALONG], labels)
        lines = [element("line", tip(text), x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=2)]
    else:
        # Keys of the same streams would meet in one point.
        x, y = (sum(values) // len(ends) for values in zip(*ends, strict=True))
        x, y = _free([(x + APART * i, y + APART * j) for j in (0, 1, -1, 2, -2) for i in (0, 1, -1, 2, -2)], labels)
        lines = [element("line", tip(text), x1=x, y1=y, x2=a, y2=b, stroke=colour, stroke_width=2) for a, b in ends]
    labels.append((x, y))
    label = element("circle", cx=x, cy=y, r=10, fill=PAPER, stroke=colour)
    return [*lines, element("g", tip(text), label, words(str(number), x, y + 4, size=10, fill=colour))]


def _free(places: list[Point], labels: list[Point]) -> Point:
    """Return the first place at which a label overlaps no earlier label, or else the place with most room."""

    def room(place: Point) -> float:
        return min(hypot(place[0] - x, place[1] - y) for x, y in labels)

    return next((place for place in places if room(place) >= APART), max(places, key=room))
