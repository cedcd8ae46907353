"""Kernels of the trees of groups: enter and take back the rows of a push, list the first rows, undo the push."""

from __future__ import annotations

from eddy.tops.treap import add, compare, find_node, link, node_at, remove, size_of, unlink
from eddy.tops.trees import ADDED, GROUP, LEFT, MARK, N_ADDED, N_FREE, N_NEXT, N_REMOVED, RIGHT, ROW, Int64s, Trees
from stairs.kernels.accelerate import jit, u64
from stairs.kernels.byte_strings import BytesArena

DONE = 0
FULL = 1
WRONG = 2
"""How rows were entered: all of them; until there was no slot; until one that is there already, or is not there."""


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
        qualifies = edge < 0 or compare(trees, texts, words, row, edge) <= 0
        reaches[u64(row)] = 1 if qualifies else 0
        if qualifies and not touched[u64(g)]:
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
        nodes[u64(node), GROUP] = group
        nodes[u64(node), MARK] = 0
        add(trees, node)
        if not link(trees, texts, roots, group, node):
            return WRONG
        if last >= 0:
            remove(trees, texts, roots, group, last)
    return DONE


@jit
def list_first(
    trees: Trees, roots: Int64s, slots: Int64s, touched: Int64s, n: int, listed: Int64s, ends: Int64s
) -> int:
    """Write the first n nodes of the trees of touched groups, in order, and where those of each group end.

    Return their number; if it is greater than the length of `listed`, only as many are written.
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
            if count < listed.shape[0]:
                listed[u64(count)] = at
            count += 1
            left -= 1
            at = nodes[u64(at), RIGHT]
        ends[u64(g)] = count
    return count


@jit
def differ(
    trees: Trees, before: Int64s, before_ends: Int64s, after: Int64s, after_ends: Int64s, paired: int, changes: Int64s
) -> int:
    """Write what differs between two answers as (node before, node after, place); -1 = no node.

    paired   1 = the nodes at one place of a group stand in one row; 0 = each in its own

    `changes` has room for all nodes of both answers.
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
                    changes[u64(count), 0], changes[u64(count), 1], changes[u64(count), 2] = old, new, place
                    count += 1
            start, begin = before_ends[u64(g)], after_ends[u64(g)]
        return count
    for k in range(after.shape[0]):
        nodes[u64(after[u64(k)]), MARK] = 1
    for k in range(before.shape[0]):
        if nodes[u64(before[u64(k)]), MARK] == 0:
            changes[u64(count), 0], changes[u64(count), 1], changes[u64(count), 2] = before[u64(k)], -1, 0
            count += 1
        nodes[u64(before[u64(k)]), MARK] = 0
    for k in range(after.shape[0]):
        if nodes[u64(after[u64(k)]), MARK] == 1:
            changes[u64(count), 0], changes[u64(count), 1], changes[u64(count), 2] = -1, after[u64(k)], 0
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
        unlink(trees, texts, roots, nodes[u64(node), GROUP], node)
        trees.freed[u64(meta[N_FREE])] = node
        meta[N_FREE] += 1
    meta[N_ADDED] = 0
    for k in range(meta[N_REMOVED]):
        node = trees.removed[u64(k)]
        link(trees, texts, roots, nodes[u64(node), GROUP], node)
    meta[N_REMOVED] = 0
