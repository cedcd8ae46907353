"""The box of a transition: the subtree that changes. Everything outside of it is the same in both plans.

A box is given by its streams. It is a node of both plans, so its output is the same, whichever plan computes it.
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 3.
"""

from __future__ import annotations

from jisc.plan.tree import Tree, names_in
from stairs.errors import PlanError
from stairs.graph import JoinGraph
from stairs.nearest import no_stream


def smallest_box(old: Tree, new: Tree) -> int:
    """Return the streams of the smallest subtree that contains all changes, as bits; 0 if both plans are the same.

    Plans that differ only in the sides of joins have the same states, so they are the same here. O(nodes).
    """
    if not old.children or not new.children:
        return 0
    before = {child.mask: child for child in old.children}
    after = {child.mask: child for child in new.children}
    if before.keys() != after.keys():
        return old.mask
    changed = [box for mask in before if (box := smallest_box(before[mask], after[mask]))]
    return old.mask if len(changed) > 1 else sum(changed)


def read_box(text: object, old: Tree, new: Tree, graph: JoinGraph) -> int:
    """Return the streams of a box that a text names, as bits: its streams, with or without parentheses.

    Raises PlanError for a text that names no subtree of both plans, or one outside of which the plans differ.
    """
    if not isinstance(text, str):
        raise PlanError(f"box is a subtree as text, such as 'R S T', not {text!r}")
    names = names_in(text)
    unknown = [name for name in names if name not in graph.names]
    if unknown:
        raise PlanError(f"box {text!r}: {no_stream(unknown[0], graph.names)}")
    box = sum(1 << graph.names.index(name) for name in set(names))
    for tree in (old, new):
        if box not in {node.mask for node in tree.inner()}:
            raise PlanError(f"box {text!r} is no subtree with a join in the plan {tree.text(graph.names)!r}")
    least = smallest_box(old, new)
    if least & ~box:
        changed = " ".join(name for j, name in enumerate(graph.names) if least >> j & 1)
        raise PlanError(
            f"box {text!r}: the plans {old.text(graph.names)!r} and {new.text(graph.names)!r} also differ outside of"
            f" it; the smallest box is {changed!r}"
        )
    return box
