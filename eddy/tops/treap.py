"""One treap: the comparison of rows, and a node that enters or leaves (`eddy.tops.trees` has the arrays).

The root of the tree of a group lies in the cells of its slot: the node and 1, so that 0 is a tree without nodes.
"""

from __future__ import annotations

from eddy.tops.trees import (
    ADDED,
    DESCENDING,
    LEFT,
    N_ADDED,
    N_FREE,
    N_REMOVED,
    PRIORITY,
    RIGHT,
    SIZE,
    TEXT,
    Int64s,
    Trees,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.byte_strings import BytesArena
from stairs.kernels.hashes import finish, stir


@step
def compare_texts(texts: BytesArena, a: int, b: int) -> int:
    """Return -1 or 1: which of two different byte strings comes first."""
    first, second = texts.start[u64(a)], texts.start[u64(b)]
    length, other = texts.size[u64(a)], texts.size[u64(b)]
    for k in range(min(length, other)):
        x, y = texts.heap[u64(first + k)], texts.heap[u64(second + k)]
        if x != y:
            return -1 if x < y else 1
    return -1 if length < other else 1


@step
def compare(trees: Trees, texts: BytesArena, words: Int64s, row: int, node: int) -> int:
    """Return -1, 0 or 1: whether a row of words precedes a node, is equal to it, or follows it."""
    columns, stored = trees.kinds.shape[0], trees.words
    late, late_there = words[u64(row), u64(columns)], stored[u64(node), u64(columns)]
    for k in range(columns):
        x, y = late >> k & 1, late_there >> k & 1
        if x != y:
            return -1 if x < y else 1
        a, b = words[u64(row), u64(k)], stored[u64(node), u64(k)]
        if a != b:
            kind = trees.kinds[u64(k)]
            order = -1 if a < b else 1
            if kind & TEXT:
                order = compare_texts(texts, a, b)
            return -order if kind & DESCENDING else order
    for k in range(columns + 1, words.shape[1]):
        a, b = words[u64(row), u64(k)], stored[u64(node), u64(k)]
        if a != b:
            return -1 if a < b else 1
    return 0


@inlined
def size_of(trees: Trees, node: int) -> int:
    """Return the number of nodes of a subtree."""
    return trees.nodes[u64(node), SIZE] if node >= 0 else 0


@inlined
def hang(trees: Trees, roots: Int64s, group: int, parent: int, side: int, node: int) -> None:
    """Let a subtree be that of a parent on one side, or the tree of the group if the parent is -1."""
    if parent < 0:
        roots[u64(group), 0] = node + 1
    else:
        trees.nodes[u64(parent), u64(side)] = node


@step
def link(trees: Trees, texts: BytesArena, roots: Int64s, group: int, node: int) -> bool:
    """Enter a node, whose words and priority are there, into the tree of its group; return whether it is new there."""
    nodes, path, new = trees.nodes, trees.path, True
    at, parent, side = roots[u64(group), 0] - 1, -1, LEFT
    priority = nodes[u64(node), PRIORITY]
    while at >= 0 and nodes[u64(at), PRIORITY] >= priority:
        nodes[u64(at), SIZE] += 1
        parent = at
        order = compare(trees, texts, trees.words, node, at)
        new = new and order != 0
        side = LEFT if order < 0 else RIGHT
        at = nodes[u64(at), u64(side)]
    hang(trees, roots, group, parent, side, node)
    # The subtree is split: what precedes the node becomes its left subtree, the rest its right one.
    before, before_side, after, after_side, depth = node, LEFT, node, RIGHT, 0
    while at >= 0:
        path[u64(depth)] = at
        depth += 1
        order = compare(trees, texts, trees.words, node, at)
        new = new and order != 0
        if order > 0:
            nodes[u64(before), u64(before_side)] = at
            before, before_side = at, RIGHT
            at = nodes[u64(at), RIGHT]
        else:
            nodes[u64(after), u64(after_side)] = at
            after, after_side = at, LEFT
            at = nodes[u64(at), LEFT]
    nodes[u64(before), u64(before_side)] = -1
    nodes[u64(after), u64(after_side)] = -1
    for k in range(depth - 1, -1, -1):
        above = path[u64(k)]
        nodes[u64(above), SIZE] = 1 + size_of(trees, nodes[u64(above), LEFT]) + size_of(trees, nodes[u64(above), RIGHT])
    nodes[u64(node), SIZE] = 1 + size_of(trees, nodes[u64(node), LEFT]) + size_of(trees, nodes[u64(node), RIGHT])
    return new


@step
def unlink(trees: Trees, texts: BytesArena, roots: Int64s, group: int, node: int) -> None:
    """Take a node out of the tree of its group."""
    nodes = trees.nodes
    at, parent, side = roots[u64(group), 0] - 1, -1, LEFT
    while at != node:
        nodes[u64(at), SIZE] -= 1
        parent = at
        side = LEFT if compare(trees, texts, trees.words, node, at) < 0 else RIGHT
        at = nodes[u64(at), u64(side)]
    left, right = nodes[u64(node), LEFT], nodes[u64(node), RIGHT]
    while left >= 0 and right >= 0:
        if nodes[u64(left), PRIORITY] >= nodes[u64(right), PRIORITY]:
            hang(trees, roots, group, parent, side, left)
            nodes[u64(left), SIZE] += nodes[u64(right), SIZE]
            parent, side = left, RIGHT
            left = nodes[u64(left), RIGHT]
        else:
            hang(trees, roots, group, parent, side, right)
            nodes[u64(right), SIZE] += nodes[u64(left), SIZE]
            parent, side = right, LEFT
            right = nodes[u64(right), LEFT]
    hang(trees, roots, group, parent, side, left if left >= 0 else right)
    nodes[u64(node), SIZE] = 0


@step
def add(trees: Trees, node: int) -> None:
    """Note a new node, and draw its priority."""
    nodes = trees.nodes
    nodes[u64(node), PRIORITY] = finish(stir(u64(trees.seeds[0]), node, trees.seeds[1]), trees.seeds[0], trees.seeds[1])
    nodes[u64(node), ADDED] = trees.meta[N_ADDED]
    trees.added[u64(trees.meta[N_ADDED])] = node
    trees.meta[N_ADDED] += 1


@step
def remove(trees: Trees, texts: BytesArena, roots: Int64s, group: int, node: int) -> None:
    """Take a node out of its tree, and note it; a node that the open push has added is free again."""
    nodes, meta = trees.nodes, trees.meta
    unlink(trees, texts, roots, group, node)
    place = nodes[u64(node), ADDED]
    if place < 0:
        trees.removed[u64(meta[N_REMOVED])] = node
        meta[N_REMOVED] += 1
        return
    meta[N_ADDED] -= 1
    last = trees.added[u64(meta[N_ADDED])]
    trees.added[u64(place)] = last
    nodes[u64(last), ADDED] = place
    trees.freed[u64(meta[N_FREE])] = node
    meta[N_FREE] += 1


@step
def find_node(trees: Trees, texts: BytesArena, root: int, words: Int64s, row: int) -> int:
    """Return the node with the words of a row, -1 = the tree has no such node."""
    at = root - 1
    while at >= 0:
        order = compare(trees, texts, words, row, at)
        if order == 0:
            return at
        at = trees.nodes[u64(at), LEFT if order < 0 else RIGHT]
    return -1


@step
def node_at(trees: Trees, root: int, place: int) -> int:
    """Return the node of a tree at a place from 0 on, -1 if the tree has fewer nodes."""
    nodes, at = trees.nodes, root - 1
    if place >= size_of(trees, at):
        return -1
    while True:
        before = size_of(trees, nodes[u64(at), LEFT])
        if place == before:
            return at
        if place < before:
            at = nodes[u64(at), LEFT]
        else:
            place -= before + 1
            at = nodes[u64(at), RIGHT]
