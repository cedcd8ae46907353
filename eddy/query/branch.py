"""The argument `branches` of a query: streams that hang on the core of a query, or on another branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eddy.filters.conditions import Condition, Filter
from eddy.query.arguments import listed, predicate_texts
from eddy.streams.stream import Stream
from stairs.errors import QueryError

How = Literal["left", "semi", "anti", "full"]
HOWS: tuple[How, ...] = ("left", "semi", "anti", "full")


@dataclass(frozen=True, eq=False)
class Branch:
    """Streams that hang on the core of a query, or on another branch.

    streams   the streams of the branch; several are joined with each other
    on        predicates among these streams, and between them and the streams on which the branch hangs
    how       "left": each row of the core with its partners in the branch, or with nulls without a partner
              "semi": each row of the core that has a partner, once, without the columns of the branch
              "anti": each row of the core that has no partner
              "full": as "left", and each row of the branch without a partner; only between two streams
    branches  branches that hang on this one
    where     further conditions on a partner, as `Query.where`: over columns named "stream.column" of the branch and of
              all streams on its path to the core. The conditions are evaluated on blocks of matches

    Raises QueryError for arguments that do not fit.

    >>> import pyarrow as pa
    >>> from eddy import Query
    >>> rows = pa.schema([("a", pa.int64())])
    >>> paid = Branch([Stream("S", rows)], ["R.a = S.a"], "left")
    >>> Query([Stream("R", rows)], branches=[paid]).output_schema.field("S.a").nullable
    True
    """

    streams: Sequence[Stream]
    on: Sequence[str]
    how: How
    branches: Sequence[Branch] = ()
    where: Filter | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "streams", tuple(listed(self.streams, "streams of a branch", "eddy.Stream objects")))
        object.__setattr__(self, "on", predicate_texts(self.on))
        object.__setattr__(self, "branches", checked_branches(self.branches))
        if not self.streams:
            raise QueryError("a branch has no stream; name the streams that hang on the core")
        for stream in self.streams:
            if not isinstance(stream, Stream):
                raise QueryError(f"streams of a branch must be eddy.Stream objects, not {stream!r}")
        if self.how not in HOWS:
            raise QueryError(f"how is one of {', '.join(map(repr, HOWS))}, not {self.how!r}")

    def of_streams(self, streams: Mapping[str, Stream]) -> Branch:
        """Return the branch with other streams of the same names."""
        inputs = [streams[stream.name] for stream in self.streams]
        return Branch(inputs, self.on, self.how, [branch.of_streams(streams) for branch in self.branches], self.where)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of `where`."""
        where = self.where
        return () if where is None else tuple(where) if isinstance(where, list | tuple) else (where,)

    def all_streams(self) -> Iterator[Stream]:
        """Yield the streams of the branch, then those of its branches."""
        yield from self.streams
        for branch in self.branches:
            yield from branch.all_streams()


def checked_branches(branches: Any) -> tuple[Branch, ...]:
    """Return branches as a tuple. Raises QueryError for a value that is no list of branches."""
    checked = tuple(listed(branches, "branches", "eddy.Branch objects"))
    for branch in checked:
        if not isinstance(branch, Branch):
            raise QueryError(f"branches must be eddy.Branch objects, not {branch!r}")
    return checked
