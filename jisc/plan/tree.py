"""Join trees: left-deep and bushy, written "((R S) T) U".

A tree is a stream (a leaf) or a join of two trees. In text, a pair of parentheses joins two or more trees from left to
right, so "R S T U" and "((R S) T) U" are the same plan. A name that is not a plain word stands in double quotes; a
double quote within it is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import and_

from jisc.plan.connected import connected_order
from stairs.errors import PlanError
from stairs.graph import MAX_STREAMS, JoinGraph
from stairs.nearest import no_stream

_TOKEN = re.compile(r'([()])|"((?:[^"]|"")*)"|([^\s()"]+)|(")')
"""A bracket, a name in quotes, a plain name, or a quote that is not closed."""
_PLAIN = re.compile(r'[^\s()"]+')


def quoted(name: str) -> str:
    """Return a stream name as plans spell it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, init=False)
class Tree:
    """A join tree: a leaf has a `stream`, a join has `left` and `right`.

    `mask` has a bit for each of its streams.
    """

    stream: int
    left: Tree | None
    right: Tree | None
    mask: int = field(compare=False)
    _hash: int = field(compare=False, repr=False)

    def __init__(self, stream: int = -1, left: Tree | None = None, right: Tree | None = None) -> None:
        # A plan with 20 joins has 41 trees: in one statement, in a third of the time that a frozen dataclass takes.
        if left is None or right is None:
            mask, hashed = 1 << max(stream, 0), hash(stream)
        else:
            mask, hashed = left.mask | right.mask, hash((left._hash, right._hash))
        vars(self).update(stream=stream, left=left, right=right, mask=mask, _hash=hashed)

    def __hash__(self) -> int:
        # Trees are keys of many dictionaries: the hash is computed once, not down to the leaves each time.
        return self._hash

    @property
    def streams(self) -> frozenset[int]:
        """The streams of the tree. O(streams)."""
        return frozenset(self.leaves())

    @property
    def children(self) -> tuple[Tree, ...]:
        """The two trees that are joined; empty for a leaf."""
        return () if self.left is None or self.right is None else (self.left, self.right)

    def leaves(self) -> Iterator[int]:
        """Yield the streams from left to right."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if node.left is None or node.right is None:
                yield node.stream
            else:
                waiting += (node.right, node.left)

    def inner(self) -> list[Tree]:
        """Return the joins of the tree, children before parents. O(nodes)."""
        joins, waiting = list[Tree](), [self]
        while waiting:
            node = waiting.pop()
            if node.left is not None and node.right is not None:
                joins.append(node)
                waiting += (node.left, node.right)
        return joins[::-1]

    def path(self, stream: int) -> Iterator[tuple[Tree, Tree]]:
        """Yield (side with the stream, sibling) for each join from the leaf of `stream` up to the root."""
        if not self.children:
            return
        side = next(child for child in self.children if child.mask >> stream & 1)
        yield from side.path(stream)
        yield side, next(child for child in self.children if child is not side)

    def text(self, names: Sequence[str]) -> str:
        """Return the plan as text that `parse` reads back to an equal tree.

        >>> left_deep([0, 1, 2]).text(["R", "S", "T U"])
        '(R S) "T U"'
        """
        if not self.children:
            return quoted(names[self.stream])
        return " ".join(f"({child.text(names)})" if child.children else child.text(names) for child in self.children)


def join(left: Tree, right: Tree) -> Tree:
    """Return the join of two trees."""
    return Tree(left=left, right=right)


@lru_cache(MAX_STREAMS)
def leaf(stream: int) -> Tree:
    """Return the leaf of a stream, which all plans share."""
    return Tree(stream)


def left_deep(order: Sequence[int]) -> Tree:
    """Return the left-deep tree that joins the streams in this order."""
    return reduce(join, map(leaf, order))


def names_in(text: str) -> list[str]:
    """Return the stream names in a text. Raises PlanError for an unclosed quote.

    >>> names_in('R "T U"')
    ['R', 'T U']
    """
    names = []
    for token in _TOKEN.finditer(text):
        _, inside, plain, unclosed = token.groups()
        if unclosed:
            raise PlanError(f"{text!r}: cannot be read from {text[token.start() :]!r} on (an unclosed quote?)")
        if plain is not None or inside is not None:
            names.append(plain if inside is None else inside.replace('""', '"'))
    return names


@lru_cache(maxsize=256)
def parse(text: str, names: tuple[str, ...]) -> Tree:
    """Return the tree that a text describes. Raises PlanError for bad syntax and unknown, repeated or missing streams.

    >>> parse("(R S) (T U)", ("R", "S", "T", "U")).text(["R", "S", "T", "U"])
    '(R S) (T U)'
    """
    leaves = _leaves(names)
    stack: list[list[Tree]] = []
    trees: list[Tree] = []
    """The trees so far between the brackets that are open; `stack` has those around them."""
    seen = 0
    for token in _TOKEN.finditer(text):
        bracket, inside, plain, unclosed = token.groups()
        if plain is not None or inside is not None:
            name = plain if inside is None else inside.replace('""', '"')
            leaf = leaves.get(name)
            if leaf is None:
                raise PlanError(f"plan {text!r}: {no_stream(name, names)}")
            if seen & leaf.mask:
                raise PlanError(f"plan {text!r} names stream {name} twice")
            seen |= leaf.mask
            trees.append(leaf)
        elif bracket == "(":
            stack.append(trees)
            trees = []
        elif unclosed:
            raise PlanError(f"plan {text!r} cannot be read from {text[token.start() :]!r} on (an unclosed quote?)")
        elif not stack:
            raise PlanError(f"plan {text!r}: the ')' at {token.start()} closes no '('")
        else:
            tree, trees = _together(trees, text), stack.pop()
            trees.append(tree)
    if stack:
        raise PlanError(f"plan {text!r}: {len(stack)} '(' are not closed")
    tree = _together(trees, text)
    missing = [name for name in names if not seen & leaves[name].mask]
    if missing:
        raise PlanError(f"plan {text!r} lacks {', '.join(missing)}; a plan names every stream of the query once")
    return tree


@lru_cache(maxsize=16)
def _leaves(names: tuple[str, ...]) -> dict[str, Tree]:
    """Return the leaf of each stream by its name."""
    return {name: leaf(i) for i, name in enumerate(names)}


def _together(trees: list[Tree], text: str) -> Tree:
    if not trees:
        raise PlanError(f"plan {text!r}: empty parentheses; an example of a plan is '((R S) T) U'")
    return reduce(join, trees)


def check_connected(tree: Tree, graph: JoinGraph) -> None:
    """Raise PlanError when a join of the tree has no predicate between its sides (a cross product)."""
    if reduce(and_, graph.class_bits):
        # All streams have a class in common, which connects any two of them.
        return
    classes: dict[int, int] = {}
    for node in tree.inner():
        left, right = node.children
        near, far = (classes[side.mask] if side.children else graph.class_bits[side.stream] for side in (left, right))
        classes[node.mask] = near | far
        if not near & far:
            sides = f"the plan joins {left.text(graph.names)!r} with {right.text(graph.names)!r}"
            ends = ({1 << comparison.left.stream, 1 << comparison.right.stream} for comparison in graph.comparisons)
            if any(any(end & left.mask for end in pair) and any(end & right.mask for end in pair) for pair in ends):
                raise PlanError(
                    f"{sides}, which only comparisons connect; where equalities connect all streams, nothing is"
                    " scanned, so choose a plan in which every join has an equality"
                )
            raise PlanError(
                f"{sides}, but no predicate connects them; choose a plan in which every join has a predicate"
            )


def read_plan(text: object, graph: JoinGraph) -> Tree:
    """Return the plan that a text describes. Raises PlanError if it is not a text, or no plan of this graph."""
    if not isinstance(text, str):
        raise PlanError(f"a plan is text such as '((R S) T) U', not {text!r}")
    tree = parse(text, graph.names)
    check_connected(tree, graph)
    return tree


def default_plan(graph: JoinGraph) -> Tree:
    """Return the left-deep tree in query order; each step takes the first stream that a predicate connects."""
    return left_deep(connected_order(range(graph.n_streams), graph.class_bits))
