"""The part of a query that the state modules need: windows, attributes and attribute classes.

A *class* is a set of attributes that the predicates make equal. A stream has at most one attribute in a class; an
attribute may consist of several columns. Streams and classes are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from stairs.errors import QueryError

MAX_STREAMS = 128
FOREVER = 1 << 61
"""Times and spans lie within ±2^61, so that the sum of two never overflows an int64."""


class WindowKind(IntEnum):
    """Rule by which the tuples of a stream leave its window."""

    ROWS = 0
    RANGE = 1
    UNBOUNDED = 2


@dataclass(frozen=True)
class Window:
    """A window; `size` is a number of rows (ROWS), a span in ticks of event time (RANGE), or unused (UNBOUNDED)."""

    kind: WindowKind
    size: int = 0


@dataclass(frozen=True)
class JoinGraph:
    """The join as numbers.

    names        per stream its name
    windows      per stream its window
    attributes   per stream its classes, ascending
    widths       per class the int64 words of a key
    texts        per class those words of a key that stand for a byte string
    timed        whether tuples have event times and some window is a RANGE
    lateness     in ticks of event time

    Raises QueryError for fewer than 2 or more than MAX_STREAMS streams.
    """

    names: tuple[str, ...]
    windows: tuple[Window, ...]
    attributes: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]
    texts: tuple[tuple[int, ...], ...] = ()
    timed: bool = False
    lateness: int = 0
    members: tuple[tuple[int, ...], ...] = field(init=False)
    """members[c]: the streams with an attribute in class c, ascending."""
    class_bits: tuple[int, ...] = field(init=False, compare=False)
    """class_bits[i]: the classes of stream i, one bit each."""
    columns: tuple[dict[int, int], ...] = field(init=False, compare=False)
    """columns[c][i]: the column of stream i in a head row of class c."""
    offsets: tuple[dict[int, int], ...] = field(init=False, compare=False)
    """offsets[i][c]: where (link, key id) of class c lies in a record of stream i."""

    def __post_init__(self) -> None:
        count = len(self.names)
        if not 2 <= count <= MAX_STREAMS:
            raise QueryError(f"a join has 2 to {MAX_STREAMS} streams, this one has {count}")
        members = tuple(tuple(i for i in range(count) if c in self.attributes[i]) for c in range(len(self.widths)))
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "class_bits", tuple(sum(1 << c for c in classes) for classes in self.attributes))
        object.__setattr__(self, "columns", tuple({i: k for k, i in enumerate(streams)} for streams in members))
        object.__setattr__(self, "offsets", tuple({c: 2 * k for k, c in enumerate(own)} for own in self.attributes))

    @property
    def n_streams(self) -> int:
        """Number of streams."""
        return len(self.names)

    @property
    def n_classes(self) -> int:
        """Number of attribute classes."""
        return len(self.widths)

    def forest(self) -> frozenset[tuple[int, int]]:
        """Return attributes, as (stream, class), that form a spanning forest of streams and classes.

        These are all attributes unless the join has a cycle: two streams with two classes in common, or a longer one.
        """
        part = list(range(self.n_streams + self.n_classes))

        def root(node: int) -> int:
            while part[node] != node:
                node = part[node]
            return node

        found = set()
        for c, streams in enumerate(self.members):
            for i in streams:
                one, other = root(i), root(self.n_streams + c)
                if one != other:
                    part[one] = other
                    found.add((i, c))
        return frozenset(found)

    def shared(self, left: frozenset[int], right: frozenset[int]) -> tuple[int, ...]:
        """Return the classes by which a tuple over `left` can probe one over `right`, ascending. O(classes)."""
        return tuple(
            c
            for c, streams in enumerate(self.members)
            if not left.isdisjoint(streams) and not right.isdisjoint(streams)
        )
