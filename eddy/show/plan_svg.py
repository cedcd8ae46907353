"""The plan of a join as SVG: streams at the bottom, the results on top.

Each stream has a column, and each node stands over the middle of its two children. So boxes on one level never overlap:
if neither of two nodes is below the other, their centres are at least one column apart.
"""

from __future__ import annotations

from eddy.show.description import JoinDescription, JoinPlan, Node, StemDescription
from eddy.show.drawing import FAINT, INK, LINE, PAPER, STEM, STORED, element, picture, tip, words
from eddy.show.labels import cut, node_lines

MARGIN, GAP, LINE_HEIGHT, PADDING = 14, 26, 14, 8
CHARACTER = 6
"""Mean width of a character, in pixels."""
NARROWEST = 120


def plan_svg(join: JoinPlan) -> str:
    """Return a drawing of the plan. O(streams * depth)."""
    nodes = list[tuple[Node, list[str], int]]()
    columns: dict[int, float] = {}
    count = 0

    def place(node: Node, depth: int) -> float:
        nonlocal count
        nodes.append((node, node_lines(node), depth))
        if isinstance(node, StemDescription):
            columns[id(node)], count = float(count), count + 1
        else:
            columns[id(node)] = (place(node.left, depth + 1) + place(node.right, depth + 1)) / 2
        return columns[id(node)]

    place(join.tree, 0)
    width = max(NARROWEST, *(CHARACTER * max(map(len, lines)) + 2 * PADDING for _, lines, _ in nodes))
    heights: dict[int, int] = {}
    for _, lines, depth in nodes:
        heights[depth] = max(heights.get(depth, 0), LINE_HEIGHT * len(lines) + 2 * PADDING)
    tops, top = dict[int, int](), MARGIN
    for depth in sorted(heights):
        tops[depth], top = top, top + heights[depth] + GAP
    slot = width + GAP

    def box(node: Node, lines: list[str], depth: int) -> tuple[int, int, int]:
        """Return the centre, the top and the height of a node."""
        return round(MARGIN + width / 2 + columns[id(node)] * slot), tops[depth], LINE_HEIGHT * len(lines) + 2 * PADDING

    boxes = {id(node): box(node, lines, depth) for node, lines, depth in nodes}
    edges, shapes = list[str](), list[str]()
    for node, lines, _ in nodes:
        x, y, height = boxes[id(node)]
        for child in (node.left, node.right) if isinstance(node, JoinDescription) else ():
            to, below, _ = boxes[id(child)]
            edges.append(
                element("line", x1=x, y1=y + height, x2=to, y2=below, stroke=LINE, stroke_width=_weight(child))
            )
        shapes.append(_shape(node, lines, x, y, width, height))
    right = round(2 * MARGIN + width + (count - 1) * slot)
    return picture(right, top - GAP + MARGIN, [*edges, *shapes], f"plan {cut(join.plan, 400)}")


def _weight(child: Node) -> int:
    """Return the width of an edge, which grows with the share of the probe time that its state takes."""
    figures = child.figures if isinstance(child, StemDescription) else child.stair
    return 1 if figures is None or figures.time is None else 1 + round(7 * figures.time)


def _shape(node: Node, lines: list[str], x: int, y: int, width: int, height: int) -> str:
    stored = isinstance(node, JoinDescription) and node.stair is not None
    virtual = isinstance(node, JoinDescription) and not stored and not node.root
    outline: dict[str, object] = {"stroke": INK if not virtual else FAINT, "fill": PAPER}
    if virtual:
        outline["stroke_dasharray"] = "4 3"
    if isinstance(node, StemDescription):
        outline["fill"] = STEM
    elif stored:
        outline["fill"] = STORED
    rect = element(
        "rect",
        x=x - width // 2,
        y=y,
        width=width,
        height=height,
        rx=6 if isinstance(node, JoinDescription) else 0,
        **outline,
    )
    texts = [
        words(line, x, y + PADDING + 10 + LINE_HEIGHT * k, weight=600 if k == 0 else 400, fill=INK if k == 0 else FAINT)
        for k, line in enumerate(lines)
    ]
    streams = node.stream if isinstance(node, StemDescription) else " ".join(node.streams)
    return element("g", tip(cut(streams, 400)), rect, *texts)
