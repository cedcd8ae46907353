"""Join trees: left-deep and bushy, written "((R S) T) U".

A tree is a stream (a leaf) or a join of two trees. In text, a pair of parentheses is a join of the two or more trees in
it, from left to right, so "R S T U" and "((R S) T) U" are the same plan. A name that is not a plain word is put in
double quotes, a double quote in it is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from stairs.errors import PlanError
from stairs.graph import JoinGraph

_TOKEN = re.compile(r'\s*(?:([()])|"((?:[^"]|"")*)"|([^\s()"]+))')
_PLAIN = re.compile(r'[^\s()"]+')


def quoted(name: str) -> str:
    """Return a stream name as it is written in a plan."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Tree:
    """A join tree: a leaf has a `stream`, a join has `left` and `right`.

    `streams` are all streams below it, `mask` has a bit for each of them.
    """

    stream: int = -1
    left: Tree | None = None
    right: Tree | None = None
    streams: frozenset[int] = field(init=False, compare=False)
    mask: int = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        # Trees are keys of many tables: worked out once, not down to the leaves each time.
        return self._hash

    def __reduce__(self) -> tuple[type[Tree], tuple[int, Tree | None, Tree | None]]:
        # A policy that Spark sends to its workers may hold trees, and the hash is another one in another process.
        return Tree, (self.stream, self.left, self.right)

    def __post_init__(self) -> None:
        if self.left is None or self.right is None:
            below, mask = frozenset([self.stream]), 1 << max(self.stream, 0)
        else:
            below, mask = self.left.streams | self.right.streams, self.left.mask | self.right.mask
        object.__setattr__(self, "streams", below)
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "_hash", hash((self.stream, self.left, self.right)))

    @property
    def children(self) -> tuple[Tree, ...]:
        """The two trees joined, none for a leaf."""
        return () if self.left is None or self.right is None else (self.left, self.right)

    def leaves(self) -> Iterator[int]:
        """Yield the streams from left to right."""
        if not self.children:
            yield self.stream
        for child in self.children:
            yield from child.leaves()

    def inner(self) -> list[Tree]:
        """Return the joins below and at this node, children first. O(nodes)."""
        found, waiting = list[Tree](), [self]
        while waiting:
            node = waiting.pop()
            if node.left is not None and node.right is not None:
                found.append(node)
                waiting += (node.left, node.right)
        return found[::-1]

    def path(self, stream: int) -> Iterator[tuple[Tree, Tree]]:
        """Yield (own side, sibling) for each join from the leaf of `stream` up to the root."""
        if not self.children:
            return
        own = next(child for child in self.children if stream in child.streams)
        yield from own.path(stream)
        yield own, next(child for child in self.children if child is not own)

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


def left_deep(order: Sequence[int]) -> Tree:
    """Return the left-deep tree that joins the streams in this order."""
    tree = Tree(order[0])
    for stream in order[1:]:
        tree = join(tree, Tree(stream))
    return tree


def names_in(text: str) -> list[str]:
    """Return the stream names in a text, quoted where they have to be. Raises PlanError for an unclosed quote.

    >>> names_in('R "T U"')
    ['R', 'T U']
    """
    found, position, end = [], 0, len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None:
            raise PlanError(f"{text!r}: cannot read from {text[position:]!r} on (an unclosed quote?)")
        position = token.end()
        _, inside, plain = token.groups()
        if plain is not None or inside is not None:
            found.append(plain if inside is None else inside.replace('""', '"'))
    return found


@lru_cache(maxsize=256)
def parse(text: str, names: tuple[str, ...]) -> Tree:
    """Return the tree a text describes. Raises PlanError for bad syntax and unknown, repeated or missing streams.

    >>> parse("(R S) (T U)", ("R", "S", "T", "U")).text(["R", "S", "T", "U"])
    '(R S) (T U)'
    """
    position = 0
    stack: list[list[Tree]] = [[]]
    seen: set[str] = set()
    end = len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None:
            raise PlanError(f"plan {text!r}: cannot read from {text[position:]!r} on (an unclosed quote?)")
        position = token.end()
        bracket, inside, plain = token.groups()
        if bracket == "(":
            stack.append([])
        elif bracket == ")":
            if len(stack) == 1:
                raise PlanError(f"plan {text!r}: a ')' at {token.start()} closes nothing")
            stack[-2].append(_together(stack.pop(), text))
        else:
            name = plain if inside is None else inside.replace('""', '"')
            if name not in names:
                raise PlanError(f"plan {text!r}: there is no stream {name!r}; the streams are {', '.join(names)}")
            if name in seen:
                raise PlanError(f"plan {text!r}: stream {name} stands in it twice")
            seen.add(name)
            stack[-1].append(Tree(names.index(name)))
    if len(stack) > 1:
        raise PlanError(f"plan {text!r}: {len(stack) - 1} '(' not closed")
    tree = _together(stack[0], text)
    missing = [name for name in names if name not in seen]
    if missing:
        raise PlanError(f"plan {text!r} misses {', '.join(missing)}; a plan names every stream of the query once")
    return tree


def _together(trees: list[Tree], text: str) -> Tree:
    if not trees:
        raise PlanError(f"plan {text!r}: nothing between parentheses; a plan is written like '((R S) T) U'")
    tree = trees[0]
    for other in trees[1:]:
        tree = join(tree, other)
    return tree


def check_connected(tree: Tree, graph: JoinGraph) -> None:
    """Raise PlanError when a join of the tree has no predicate between its sides: a cross product."""
    classes: dict[int, int] = {}
    for node in tree.inner():
        left, right = node.children
        near, far = (classes[side.mask] if side.children else graph.class_bits[side.stream] for side in (left, right))
        classes[node.mask] = near | far
        if not near & far:
            raise PlanError(
                f"the plan joins {left.text(graph.names)!r} with {right.text(graph.names)!r}, but no predicate connects"
                " them; choose an order in which each join has one"
            )


def default_plan(graph: JoinGraph) -> Tree:
    """Return a left-deep tree in query order, taking at each step the first stream that a predicate connects."""
    order, rest = [0], list(range(1, graph.n_streams))
    while rest:
        done = frozenset(order)
        order.append(next(j for j in rest if graph.shared(done, frozenset([j]))))
        rest.remove(order[-1])
    return left_deep(order)
