"""The part of a query that the state modules need: windows, attributes and attribute classes.

A *class* is a set of attributes that the predicates make equal. A stream has at most one attribute in a class; an
attribute may consist of several columns. Streams and classes are numbered from 0.

A *scan class* connects two streams that comparisons connect and no equality. It has an attribute of both, whose keys
identify tuples: no two tuples have the same one. A hop by such a class does not look a key up, it scans all tuples. A
stored state that is probed by it is indexed by the tuples of the one stream in the class, so it is completed tuple by
tuple.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

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


class ComparedValue(NamedTuple):
    """A value of the tuples of a stream that comparisons read: the stream, and its ring of these values."""

    stream: int
    ring: int


@dataclass(frozen=True)
class Comparison:
    """A predicate between values of two streams: right + low <= left <= right + high.

    floats    the values are float64 and not int64; the sums are rounded to float64
    differs   instead: left != right + low
    excluded  of floats: 1 = left may not equal right + low, 2 = nor right + high (3 = neither)
    low, high integers within ±2^62, or floats
    """

    left: ComparedValue
    right: ComparedValue
    low: float
    high: float
    floats: bool = False
    differs: bool = False
    excluded: int = 0


@dataclass(frozen=True)
class JoinGraph:
    """The join as numbers.

    names        per stream its name
    windows      per stream its window
    attributes   per stream its classes, ascending; only in SteMs that joins share, a class occurs more than once
    widths       per class the int64 words of a key
    texts        per class those words of a key that stand for a byte string
    timed        whether tuples have event times and some window is a RANGE
    comparisons  predicates that are no equalities
    scans        the scan classes, which come after all others but primary keys
    primary      per stream the class of its primary key, which no other stream has: the stream is a table, whose
                 changes end versions (`stairs.kernels.versions`); None = it is none. () = there is no table

    Raises QueryError for fewer than 2 or more than MAX_STREAMS streams.
    """

    names: tuple[str, ...]
    windows: tuple[Window, ...]
    attributes: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]
    texts: tuple[tuple[int, ...], ...] = ()
    timed: bool = False
    comparisons: tuple[Comparison, ...] = ()
    scans: tuple[int, ...] = ()
    primary: tuple[int | None, ...] = ()
    indexed: tuple[tuple[int, ...], ...] = field(init=False, compare=False)
    """Per stream the classes by which its tuples are found: its attributes, and then its primary key."""
    members: tuple[tuple[int, ...], ...] = field(init=False)
    """members[c]: the streams with an attribute in class c, ascending, once for each; a table has its primary key."""
    class_bits: tuple[int, ...] = field(init=False, compare=False)
    """class_bits[i]: the classes of stream i, one bit each."""
    columns: tuple[dict[int, int], ...] = field(init=False, compare=False)
    """columns[c][i]: the column of stream i in a head row of class c."""
    offsets: tuple[dict[int, int], ...] = field(init=False, compare=False)
    """offsets[i][c]: where (link, key id) of class c lies in a record of stream i."""
    float_rings: tuple[tuple[bool, ...], ...] = field(init=False, compare=False)
    """float_rings[i][k]: whether ring k of the values of stream i has floats. Ring 0 has the event times, if any."""
    rings: tuple[int, ...] = field(init=False, compare=False)
    """Number of rings of values of each stream."""
    compared: int = field(init=False, compare=False)
    """The streams with a value in a comparison, one bit each."""

    def __post_init__(self) -> None:
        count = len(self.names)
        if not 1 <= count <= MAX_STREAMS:
            raise QueryError(f"a join has 1 to {MAX_STREAMS} streams, this one has {count}")
        primary = self.primary or (None,) * count
        indexed = tuple(
            classes if key is None else (*classes, key) for classes, key in zip(self.attributes, primary, strict=True)
        )
        object.__setattr__(self, "indexed", indexed)
        members = tuple(
            tuple(i for i, classes in enumerate(indexed) for other in classes if other == c)
            for c in range(len(self.widths))
        )
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "class_bits", tuple(sum(1 << c for c in classes) for classes in self.attributes))
        object.__setattr__(self, "columns", tuple({i: k for k, i in enumerate(streams)} for streams in members))
        object.__setattr__(self, "offsets", tuple({c: 2 * k for k, c in enumerate(classes)} for classes in indexed))
        ends = [
            (end, comparison.floats) for comparison in self.comparisons for end in (comparison.left, comparison.right)
        ]
        floats = dict(ends)
        counts = [max([int(self.timed), *(end.ring + 1 for end, _ in ends if end.stream == i)]) for i in range(count)]
        # The last ring of a table has the arrival numbers of its versions.
        counts = [n + (key is not None) for n, key in zip(counts, primary, strict=True)]
        rings = tuple(tuple(floats.get(ComparedValue(i, k), False) for k in range(n)) for i, n in enumerate(counts))
        object.__setattr__(self, "float_rings", rings)
        object.__setattr__(self, "rings", tuple(counts))
        object.__setattr__(self, "compared", sum(1 << i for i in {end.stream for end, _ in ends}))

    @property
    def on_one_key(self) -> bool:
        """Whether equalities of one key are all conditions of the join."""
        return self.n_classes == 1 and not self.comparisons

    @property
    def n_streams(self) -> int:
        """Number of streams."""
        return len(self.names)

    def place(self, stream: int) -> str:
        """Return the noun and the name of a stream, with which errors begin: "stream R", "table T"."""
        return f"{'table' if stream in self.tables else 'stream'} {self.names[stream]}"

    @property
    def tables(self) -> tuple[int, ...]:
        """The streams that are tables."""
        return tuple(i for i, key in enumerate(self.primary) if key is not None)

    @property
    def n_classes(self) -> int:
        """Number of attribute classes."""
        return len(self.widths)

    def compared_with(self, stream: int, others: int) -> list[tuple[Comparison, int]]:
        """Return the comparisons of a stream with streams among `others` (bits), each with its other stream."""
        comparisons = []
        for comparison in self.comparisons:
            ends = comparison.left.stream, comparison.right.stream
            if stream in ends:
                other = ends[0] if stream == ends[1] else ends[1]
                if others >> other & 1:
                    comparisons.append((comparison, other))
        return comparisons

    def forest(self) -> frozenset[tuple[int, int]]:
        """Return attributes, as (stream, class), that form a spanning forest of streams and classes.

        These are all attributes unless the join has a cycle: two streams with two classes in common, or a longer one.
        Scan classes do not count.
        """
        part = list(range(self.n_streams + self.n_classes))

        def root(node: int) -> int:
            while part[node] != node:
                node = part[node]
            return node

        attributes = set()
        for c, streams in enumerate(self.members):
            for i in streams if c not in self.scans else ():
                stream_root, other = root(i), root(self.n_streams + c)
                if stream_root != other:
                    part[stream_root] = other
                    attributes.add((i, c))
        return frozenset(attributes)

    def shared(self, left: frozenset[int], right: frozenset[int]) -> tuple[int, ...]:
        """Return the classes by which a tuple over `left` can probe one over `right`, ascending. O(classes)."""
        return tuple(
            c
            for c, streams in enumerate(self.members)
            if not left.isdisjoint(streams) and not right.isdisjoint(streams)
        )
