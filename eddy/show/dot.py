"""The description in the DOT language of Graphviz: the join graph and the plan of each join, each in a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from eddy.show.description import Description, JoinDescription, JoinPlan, Node
from eddy.show.labels import cut, node_lines


def as_dot(shown: Description) -> str:
    """Return a graph that `dot -Tsvg` draws."""
    lines = ["digraph eddy {", "  compound=true; rankdir=BT;", '  node [fontname="sans-serif" fontsize=11];']
    for n, join in enumerate(shown.joins):
        lines += _graph(join, f"g{n}")
        lines += _plan(join, f"p{n}")
    return "\n".join([*lines, "}"])


def quoted(text: str) -> str:
    r"""Return a text as a string of DOT, in which lines are separated by \n.

    >>> print(quoted('a "b"'))
    "a \"b\""
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _graph(join: JoinPlan, name: str) -> Iterator[str]:
    yield f"  subgraph cluster_{name} {{"
    yield f"    label={quoted(cut(join.title or 'join graph'))};"
    places = {stream: f"{name}_{i}" for i, stream in enumerate(join.streams)}
    for stream, place in places.items():
        yield f"    {place} [shape=ellipse label={quoted(cut(stream))}];"
    for key in join.keys:
        if len(key.streams) == 2:
            a, b = (places[stream] for stream in key.streams)
            yield f"    {a} -> {b} [dir=none label={quoted(f'[{key.number}]')} tooltip={quoted(key.text)}];"
            continue
        hub = f"{name}_k{key.number}"
        yield f"    {hub} [shape=point xlabel={quoted(f'[{key.number}]')} tooltip={quoted(key.text)}];"
        yield from (f"    {places[stream]} -> {hub} [dir=none];" for stream in key.streams)
    for comparison in join.comparisons:
        label = quoted(cut(comparison.text))
        yield f"    {places[comparison.left]} -> {places[comparison.right]} [dir=none style=dashed label={label}];"
    yield "  }"


def _plan(join: JoinPlan, name: str) -> Iterator[str]:
    yield f"  subgraph cluster_{name} {{"
    yield f"    label={quoted(f'plan {join.plan}')};"
    count = 0

    def node(plan_node: Node) -> Iterator[str]:
        nonlocal count
        place, count = f"{name}_{count}", count + 1
        label = quoted("\n".join(node_lines(plan_node)))
        if not isinstance(plan_node, JoinDescription):
            yield f"    {place} [shape=box label={label}];"
            return
        style = "filled" if plan_node.stair is not None else "solid" if plan_node.root else "dashed"
        yield f"    {place} [shape=box style={quoted(f'rounded,{style}')} fillcolor={quoted('#d9ead3')} label={label}];"
        for child in (plan_node.left, plan_node.right):
            below = f"{name}_{count}"
            yield from node(child)
            yield f"    {below} -> {place};"

    yield from node(join.tree)
    yield "  }"
