"""The plan as text, with live figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eddy.query import Query
from jisc.plan import Tree
from jisc.routes import route
from stairs.arena import Routes
from stairs.fields import H_MATCHES, H_PROBES, R_TRUNK


def bytes_text(count: int) -> str:
    """Return a number of bytes for people.

    >>> bytes_text(20480)
    '20.0 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _tree_lines(query: Query, node: Tree, states: dict[str, Any], prefix: str, branch: str) -> Iterator[str]:
    graph = query.graph
    if not node.children:
        stream = query.streams[node.stream]
        state = states[stream.name]
        text = (
            f"SteM {stream.name} [{stream.window}]  rows {state['rows']:,}  arrivals {state['arrivals']:,}"
            f"  expired {state['expired']:,}  late {state['late']:,}  {bytes_text(state['bytes'])}"
        )
        yield prefix + branch + text
        return
    left, right = node.children
    shared = graph.shared(left.streams, right.streams)
    on = ", ".join(f"[{c + 1}]" for c in shared)
    yield prefix + branch + f"join on {on}  (virtual: computed on probe)"
    inside = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield from _tree_lines(query, left, states, inside, "├─ ")
    yield from _tree_lines(query, right, states, inside, "└─ ")


def explain(query: Query, tree: Tree, routes: Routes, figures: dict[str, Any]) -> str:
    """Return the plan tree, the states with rows and bytes, the key directories, and the route of each stream."""
    graph = query.graph
    lines = [f"plan {tree.text(graph.names)}"]
    lines += _tree_lines(query, tree, figures["states"], "  ", "")
    lines.append("keys")
    for c, (one, numbers) in enumerate(zip(query.classes, figures["classes"], strict=True)):
        lines.append(f"  [{c + 1}] {one}  {numbers['keys']:,} interned  {bytes_text(numbers['bytes'])}")
    lines.append("routes (tuples matched per chain walked)")
    for i, name in enumerate(graph.names):
        hops = []
        first = int(routes.span[i, R_TRUNK])
        for n, hop in enumerate(route(tree, i, graph)):
            probes, matches = int(routes.hops[first + n, H_PROBES]), int(routes.hops[first + n, H_MATCHES])
            rate = f"{matches / probes:.3g}" if probes else "-"
            hops.append(f"{graph.names[hop.stream]} {rate}")
        state = figures["states"][name]
        share = f"{state['walked'] / state['arrivals']:.1%}" if state["arrivals"] else "-"
        lines.append(f"  {name} → {' → '.join(hops)}  ({share} of arrivals walked on)")
    lines.append(
        f"results {figures['results']:,} of {figures['arrivals']:,} arrivals, state {bytes_text(figures['bytes'])}"
    )
    if query.where is not None:
        lines.append(f"where {query.where}")
    return "\n".join(lines)
