"""The plan as text with live figures: the first part of `Runtime.explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eddy.query.query import Query
from jisc.plan.tree import Tree
from jisc.strategies import Strategy
from stairs.descriptors import R_END, R_TRUNK, VIRTUAL


def bytes_text(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> bytes_text(20480)
    '20.0 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _tree_lines(
    query: Query, node: Tree, states: dict[str, Any], stairs: dict[frozenset[str], Any], prefix: str, branch: str
) -> Iterator[str]:
    graph = query.graph
    if not node.children:
        stream = query.streams[node.stream]
        state = states[stream.name]
        derived = ", from the intervals" if stream.name in query.derived else ""
        text = (
            f"SteM {stream.name} [{stream.window}{derived}]  rows {state['rows']:,}  arrivals {state['arrivals']:,}"
            f"  expired {state['expired']:,}  late {state['late']:,}  {bytes_text(state['bytes'])}"
        )
        if state["marks"]:
            text += f"  no-good marks {state['marks']:,}"
        yield prefix + branch + text
        return
    left, right = node.children
    shared = graph.shared(left.streams, right.streams)
    on = ", ".join(f"[{c + 1}]" for c in shared)
    stair = stairs.get(frozenset(graph.names[j] for j in node.streams))
    if stair is not None:
        pending = f"{stair['pending']:,} keys to complete" if stair["pending"] else "complete"
        about = f"STAIR by [{stair['class']}], entries {stair['entries']:,}, {pending}  {bytes_text(stair['bytes'])}"
    else:
        about = "(virtual: computed on probe)" if branch else "(results)"
    yield prefix + branch + f"join on {on}  {about}"
    inside = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield from _tree_lines(query, left, states, stairs, inside, "├─ ")
    yield from _tree_lines(query, right, states, stairs, inside, "└─ ")


def explain(query: Query, strategy: Strategy, figures: dict[str, Any]) -> str:
    """Return the plan tree, the states with rows and bytes, the key directories, and the route of each stream."""
    graph, tree = query.graph, strategy.tree
    # While several plans run, the last state of these streams belongs to the newest.
    stairs = {frozenset(stair["streams"]): stair for stair in figures["stairs"]}
    lines = [f"plan {tree.text(graph.names)}", f"strategy {strategy.name}"]
    lines += [f"old plan, until its tuples have expired: {other.text(graph.names)}" for other in strategy.trees[:-1]]
    lines += _tree_lines(query, tree, figures["states"], stairs, "  ", "")
    lines.append("keys")
    scans = [f"{a} × {b}, scanned: every tuple has its own key" for a, b in query.scans]
    for c, (one, numbers) in enumerate(zip([*query.classes, *scans], figures["classes"], strict=True)):
        lines.append(f"  [{c + 1}] {one}  {numbers['keys']:,} interned  {bytes_text(numbers['bytes'])}")
    lines.append("routes (tuples matched per chain walked)")
    taken = figures["hops"][-_newest_hops(strategy) :]
    for name in graph.names:
        hops = []
        for hop in taken:
            if hop["from"] == name:
                rate = f"{hop['matches'] / hop['probes']:.3g}" if hop["probes"] else "-"
                hops.append(f"{hop['to']} {rate}" if " " not in hop["to"] else f"({hop['to']}) {rate}")
        state = figures["states"][name]
        walked = ""
        if strategy.mode == VIRTUAL:
            share = f"{state['walked'] / state['arrivals']:.1%}" if state["arrivals"] else "-"
            walked = f"  ({share} of arrivals had matches at all leaf hops)"
        lines.append(f"  {name} → {' → '.join(hops)}{walked}")
    lines.append(
        f"results {figures['results']:,} of {figures['arrivals']:,} arrivals, state {bytes_text(figures['bytes'])}"
    )
    lines += [f"compares {one}" for one in query.comparisons]
    if query.conditions:
        lines.append(f"where {' and '.join(one.title for one in query.conditions)}")
    return "\n".join(lines)


def _newest_hops(strategy: Strategy) -> int:
    """Return how many hops the routes of the newest plan have."""
    m = len(strategy.masks.classes)
    span = strategy.routes.span[(len(strategy.trees) - 1) * m : len(strategy.trees) * m]
    return int((span[:, R_END] - span[:, R_TRUNK]).sum())
