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
    for one in join.comparisons:
        label = quoted(cut(one.text))
        yield f"    {places[one.left]} -> {places[one.right]} [dir=none style=dashed label={label}];"
    yield "  }"


def _plan(join: JoinPlan, name: str) -> Iterator[str]:
    yield f"  subgraph cluster_{name} {{"
    yield f"    label={quoted(f'plan {join.plan}')};"
    count = 0

    def node(one: Node) -> Iterator[str]:
        nonlocal count
        own, count = f"{name}_{count}", count + 1
        label = quoted("\n".join(node_lines(one)))
        if not isinstance(one, JoinDescription):
            yield f"    {own} [shape=box label={label}];"
            return
        style = "filled" if one.stair is not None else "solid" if one.root else "dashed"
        yield f"    {own} [shape=box style={quoted(f'rounded,{style}')} fillcolor={quoted('#d9ead3')} label={label}];"
        for child in (one.left, one.right):
            below = f"{name}_{count}"
            yield from node(child)
            yield f"    {below} -> {own};"

    yield from node(join.tree)
    yield "  }"
