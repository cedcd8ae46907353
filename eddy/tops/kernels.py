"""Kernels of the trees of groups (`eddy.tops.trees`): enter and take back rows, list the first rows, undo a push.

The root of the tree of a group lies in the cells of its slot: the node and 1, so that 0 is a tree without nodes.
"""

from __future__ import annotations

from eddy.tops.trees import (
    ADDED,
    DESCENDING,
    LEFT,
    MARK,
    N_ADDED,
    N_FREE,
    N_NEXT,
    N_REMOVED,
    OWNER,
    PRIORITY,
    RIGHT,
    ROW,
    SIZE,
    TEXT,
    Int64s,
    Trees,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.byte_strings import BytesArena
from stairs.kernels.hashes import finish, stir

DONE = 0
FULL = 1
WRONG = 2
"""How rows were entered: all of them; until there was no slot; until one that is there already, or is not there."""


@step
def compare_texts(texts: BytesArena, a: int, b: int) -> int:
    """Return -1 or 1: which of two different byte strings comes first."""
    first, second = texts.start[u64(a)], texts.start[u64(b)]
    own, other = texts.size[u64(a)], texts.size[u64(b)]
    for k in range(min(own, other)):
        x, y = texts.heap[u64(first + k)], texts.heap[u64(second + k)]
        if x != y:
            return -1 if x < y else 1
    return -1 if own < other else 1


@step
def compare(trees: Trees, texts: BytesArena, words: Int64s, row: int, node: int) -> int:
    """Return -1, 0 or 1: whether a row of words precedes a node, is equal to it, or follows it."""
    columns, own = trees.kinds.shape[0], trees.words
    late, late_there = words[u64(row), u64(columns)], own[u64(node), u64(columns)]
    for k in range(columns):
        x, y = late >> k & 1, late_there >> k & 1
        if x != y:
            return -1 if x < y else 1
        a, b = words[u64(row), u64(k)], own[u64(node), u64(k)]
        if a != b:
            kind = trees.kinds[u64(k)]
            found = -1 if a < b else 1
            if kind & TEXT:
                found = compare_texts(texts, a, b)
            return -found if kind & DESCENDING else found
    for k in range(columns + 1, words.shape[1]):
        a, b = words[u64(row), u64(k)], own[u64(node), u64(k)]
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
        found = compare(trees, texts, trees.words, node, at)
        new = new and found != 0
        side = LEFT if found < 0 else RIGHT
        at = nodes[u64(at), u64(side)]
    hang(trees, roots, group, parent, side, node)
    # The subtree is split: what precedes the node becomes its left subtree, the rest its right one.
    before, before_side, after, after_side, depth = node, LEFT, node, RIGHT, 0
    while at >= 0:
        path[u64(depth)] = at
        depth += 1
        found = compare(trees, texts, trees.words, node, at)
        new = new and found != 0
        if found > 0:
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
        one = path[u64(k)]
        nodes[u64(one), SIZE] = 1 + size_of(trees, nodes[u64(one), LEFT]) + size_of(trees, nodes[u64(one), RIGHT])
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
    """Return the node with the words of a row, -1 if there is none."""
    at = root - 1
    while at >= 0:
        found = compare(trees, texts, words, row, at)
        if found == 0:
            return at
        at = trees.nodes[u64(at), LEFT if found < 0 else RIGHT]
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


@jit
def judge(
    trees: Trees,
    texts: BytesArena,
    roots: Int64s,
    slots: Int64s,
    n: int,
    words: Int64s,
    numbers: Int64s,
    edges: Int64s,
    touched: Int64s,
    reaches: Int64s,
) -> int:
    """Find the rows that may change an answer; return the number of nodes in the answers of their groups.

    slots    int64[groups]  of each group of the push
    words, numbers   the words of each row of the push, and the number of its group among `slots`
    edges    int64[groups]  receives the last node of the answer, -1 if the answer has fewer than n rows
    touched  int64[groups]  receives 1 if the answer of the group may change
    reaches  int64[rows]    receives 1 if the row comes before the edge, or is the edge
    """
    for g in range(slots.shape[0]):
        edges[u64(g)] = node_at(trees, roots[u64(slots[u64(g)]), 0], n - 1)
        touched[u64(g)] = 0
    total = 0
    for row in range(words.shape[0]):
        g = numbers[u64(row)]
        edge = edges[u64(g)]
        found = edge < 0 or compare(trees, texts, words, row, edge) <= 0
        reaches[u64(row)] = 1 if found else 0
        if found and not touched[u64(g)]:
            touched[u64(g)] = 1
            total += min(n, size_of(trees, roots[u64(slots[u64(g)]), 0] - 1))
    return total


@jit
def enter(
    trees: Trees,
    texts: BytesArena,
    roots: Int64s,
    slots: Int64s,
    most: int,
    words: Int64s,
    numbers: Int64s,
    signs: Int64s,
    done: Int64s,
    first: int,
) -> int:
    """Enter the rows of a push with sign 1, take back those with sign -1 and skip those with 0, from done[0] on.

    Return DONE; FULL, and the next call resumes when there are more slots; or WRONG: a row that is taken back is in no
    tree, or one that comes is in one already.

    most   rows that a tree keeps, 0 = all
    first  number of the first row of the push among the stored rows
    """
    nodes, meta = trees.nodes, trees.meta
    for row in range(done[0], words.shape[0]):
        done[0] = row
        if signs[u64(row)] == 0:
            continue
        group = slots[u64(numbers[u64(row)])]
        root = roots[u64(group), 0]
        if signs[u64(row)] < 0:
            node = find_node(trees, texts, root, words, row)
            if node < 0:
                return WRONG
            remove(trees, texts, roots, group, node)
            continue
        last = -1
        if most > 0 and size_of(trees, root - 1) >= most:
            last = root - 1
            while nodes[u64(last), RIGHT] >= 0:
                last = nodes[u64(last), RIGHT]
            if compare(trees, texts, words, row, last) > 0:
                continue
        if meta[N_FREE] > 0:
            meta[N_FREE] -= 1
            node = trees.freed[u64(meta[N_FREE])]
        elif meta[N_NEXT] < nodes.shape[0]:
            node = meta[N_NEXT]
            meta[N_NEXT] += 1
        else:
            return FULL
        for k in range(words.shape[1]):
            trees.words[u64(node), u64(k)] = words[u64(row), u64(k)]
        nodes[u64(node), ROW] = first + row
        nodes[u64(node), OWNER] = group
        nodes[u64(node), MARK] = 0
        add(trees, node)
        if not link(trees, texts, roots, group, node):
            return WRONG
        if last >= 0:
            remove(trees, texts, roots, group, last)
    return DONE


@jit
def list_first(trees: Trees, roots: Int64s, slots: Int64s, touched: Int64s, n: int, found: Int64s, ends: Int64s) -> int:
    """Write the first n nodes of the trees of touched groups, in order, and where those of each group end.

    Return their number; if it is greater than the length of `found`, only as many are written.
    """
    nodes, path, count = trees.nodes, trees.path, 0
    for g in range(slots.shape[0]):
        at, depth, left = roots[u64(slots[u64(g)]), 0] - 1, 0, n
        if not touched[u64(g)]:
            at = -1
        while left > 0 and (at >= 0 or depth > 0):
            while at >= 0:
                path[u64(depth)] = at
                depth += 1
                at = nodes[u64(at), LEFT]
            depth -= 1
            at = path[u64(depth)]
            if count < found.shape[0]:
                found[u64(count)] = at
            count += 1
            left -= 1
            at = nodes[u64(at), RIGHT]
        ends[u64(g)] = count
    return count


@jit
def differ(
    trees: Trees, before: Int64s, before_ends: Int64s, after: Int64s, after_ends: Int64s, paired: int, found: Int64s
) -> int:
    """Write what differs between two answers as (node before, node after, place); -1 = there is none.

    paired   1 = the nodes at one place of a group stand in one row; 0 = each in its own

    `found` has room for all nodes of both answers.
    """
    nodes, count = trees.nodes, 0
    if paired:
        start = begin = 0
        for g in range(before_ends.shape[0]):
            had, has = before_ends[u64(g)] - start, after_ends[u64(g)] - begin
            for place in range(max(had, has)):
                old = before[u64(start + place)] if place < had else -1
                new = after[u64(begin + place)] if place < has else -1
                if old != new:
                    found[u64(count), 0], found[u64(count), 1], found[u64(count), 2] = old, new, place
                    count += 1
            start, begin = before_ends[u64(g)], after_ends[u64(g)]
        return count
    for k in range(after.shape[0]):
        nodes[u64(after[u64(k)]), MARK] = 1
    for k in range(before.shape[0]):
        if nodes[u64(before[u64(k)]), MARK] == 0:
            found[u64(count), 0], found[u64(count), 1], found[u64(count), 2] = before[u64(k)], -1, 0
            count += 1
        nodes[u64(before[u64(k)]), MARK] = 0
    for k in range(after.shape[0]):
        if nodes[u64(after[u64(k)]), MARK] == 1:
            found[u64(count), 0], found[u64(count), 1], found[u64(count), 2] = -1, after[u64(k)], 0
            count += 1
        nodes[u64(after[u64(k)]), MARK] = 0
    return count


@jit
def settle_nodes(trees: Trees) -> None:
    """End a push that has happened: nodes that it removed are free. The call may be repeated."""
    meta = trees.meta
    for k in range(meta[N_ADDED]):
        trees.nodes[u64(trees.added[u64(k)]), ADDED] = -1
    for k in range(meta[N_REMOVED]):
        trees.freed[u64(meta[N_FREE])] = trees.removed[u64(k)]
        meta[N_FREE] += 1
    meta[N_ADDED] = meta[N_REMOVED] = 0


@jit
def undo_nodes(trees: Trees, texts: BytesArena, roots: Int64s) -> None:
    """Take a push back: nodes that it added leave, and nodes that it removed return. The call may be repeated."""
    nodes, meta = trees.nodes, trees.meta
    for k in range(meta[N_ADDED] - 1, -1, -1):
        node = trees.added[u64(k)]
        unlink(trees, texts, roots, nodes[u64(node), OWNER], node)
        trees.freed[u64(meta[N_FREE])] = node
        meta[N_FREE] += 1
    meta[N_ADDED] = 0
    for k in range(meta[N_REMOVED]):
        node = trees.removed[u64(k)]
        link(trees, texts, roots, nodes[u64(node), OWNER], node)
    meta[N_REMOVED] = 0
