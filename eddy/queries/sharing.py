"""Joins of several families over the same SteMs.

Families over different join graphs share their streams: each row is stored once, with its keys and its columns, and
each family walks its own routes over it (`stairs.shared`). A family is shared if another family reads one of its
streams, and if the strategy stores nothing by itself. These have SteMs of their own, in a `Runtime`:

- a family whose streams no other family reads: its no-good marks and stored states save it more;
- one with comparisons, which read values of their own;
- one with a filter below a window of rows, which counts the rows that pass;
- one whose filters keep rows out of its join, which stays small.

The shared SteMs know the attributes of the families for which they were made. A family that needs another attribute,
another stream or earlier rows makes them anew, from the rows that the engine keeps, at the next push: O(window), once
however many queries have started. A fresh start that finds its attributes costs nothing of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.queries.bound import EngineBound
from eddy.queries.kept import KeptRows
from eddy.queries.shared_join import STRATEGIES, SharedJoin
from eddy.queries.sources import EnginePush, Sources
from eddy.queries.stem_pool import StemPool

if TYPE_CHECKING:
    from eddy.queries.family import Family


class Sharing:
    """Decides which families of an engine share SteMs, and has these take pushes in.

    pool   the shared SteMs, None while no family shares
    """

    def __init__(self, sources: Sources, options: Mapping[str, Any], share: bool, bound: EngineBound) -> None:
        self._sources, self._options, self._bound = sources, options, bound
        self._on = share and options.get("strategy", "eddy") in STRATEGIES
        self.pool: StemPool | None = None

    def offer(self, family: Family, others: Collection[Family]) -> None:
        """Have a family share with those others that read one of its streams, from the next push on.

        To be called when a family has a new version: the filters of all versions decide.
        """
        if family.shared or not self._may_share(family):
            return
        near = [other for other in others if other is not family and not set(other.names).isdisjoint(family.names)]
        sharing = [other for other in near if other.shared or self._may_share(other)]
        for sharer in [family, *sharing] if sharing else ():
            sharer.shared = True

    def _may_share(self, family: Family) -> bool:
        query, graph = family.query, family.query.graph
        return (
            self._on
            and len(family.names) > 1
            and not family.keeps_out
            and not graph.comparisons
            and not graph.scans
            and all(stream.filter is None for stream in query.streams)
        )

    def prepare(
        self, push: EnginePush, families: Iterable[Family], rows: Mapping[str, KeptRows]
    ) -> dict[Family, pa.Table]:
        """Compute the results of the families that share, in a push that has not happened yet.

        rows     per stream those that are kept
        """
        sharing = [family for family in families if family.shared]
        if not sharing:
            self.pool = None
            return {}
        # The runtimes of families that begin to share go when their rows are in the shared SteMs.
        with self._bound.at_work(lambda: self.nbytes + sum(family.own_bytes for family in sharing)):
            self._follow(sharing, rows, push.watermark_at(push.first))
            assert self.pool is not None
            return self.pool.prepare(push)

    @property
    def nbytes(self) -> int:
        """Bytes of the shared SteMs."""
        return 0 if self.pool is None else self.pool.nbytes

    def seconds(self, family: Family) -> float:
        """Return the seconds of the walks of a family over shared SteMs."""
        join = self.join(family)
        return 0.0 if join is None else join.seconds

    def join(self, family: Family) -> SharedJoin | None:
        """Return the shared join of a family, None if it has none, or none yet."""
        return None if self.pool is None else self.pool.joins.get(family)

    def settle(self) -> None:
        """Let the prepared push happen. It may be repeated."""
        if self.pool is not None:
            self.pool.settle()

    def roll_back(self) -> None:
        """Take back a push that has not happened. It may be repeated."""
        if self.pool is not None:
            self.pool.roll_back()

    def _follow(self, families: list[Family], rows: Mapping[str, KeptRows], watermark: int) -> None:
        """Have the pool serve these families, and no others."""
        pool = self.pool
        if pool is not None:
            for family in [family for family in pool.joins if family not in families]:
                pool.remove(family)
            pool.drop_strays()
        known = {} if pool is None else pool.joins
        other = [family for family in families if family not in known or known[family].query is not family.query]
        anew = pool is None or any(not (family.fresh and pool.has_place(family.query)) for family in other)
        if pool is None or anew:
            pool = StemPool(self._sources, families, self._bound)
            pool.fill(rows)
            other = families
        for family in other:
            alone = None if family.runtime is None else family.runtime._pipeline.join
            pool.add(family, self._options, watermark, anew, known.get(family, alone))
        for family in families:
            # Also those whose release was undone, with a push that did not happen.
            if family in other or family.runtime is not None:
                family.released()
        self.pool = pool
