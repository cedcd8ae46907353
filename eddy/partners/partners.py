"""Partners: an operator that reads the results of inner joins and yields the rows of left, semi, anti and full joins.

The core of a query and each of its branches are inner joins (`eddy.join`). The nodes of the query read the results of
these joins, and yield a row when the row is certain (`eddy.partners.tree`). A row stays in the row store as long as a
result may need the row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals
from eddy.join.join import Join
from eddy.partners.as_of_joins import AsOfJoins
from eddy.partners.row_store import RowStore
from eddy.partners.rows import Int64s, PartnerRows, joined, net, paired
from eddy.partners.tree import Pushed, TreeNode
from eddy.query.branch_nodes import Path
from eddy.query.query import Query
from eddy.results.results import PRESENT, Combined
from stairs.descriptors import DELETED, INSERTED
from stairs.errors import InputError
from stairs.graph import WindowKind
from stairs.ledger import Ledger
from stairs.memory.allowance import Allowance
from stairs.memory.spill import SpillDirectory
from stairs.plain_types import Column
from stairs.storage.parts import Parts, Plain


class Partners:
    """The nodes of a query with branches, and the rows that they need.

    joins      the inner joins, by the positions of their streams
    trees      the nodes of the query, from each core on
    row_store  the rows that results may need
    live       per stream the oldest row in its window
    tables     the positions of the tables
    allowance  is asked before ledgers and rows take more memory
    """

    def __init__(
        self,
        query: Query,
        joins: Mapping[Path, Join],
        columns: list[list[str]],
        changelog: bool,
        allowance: Allowance,
        spill: SpillDirectory | None = None,
    ) -> None:
        self.query, self.joins, self.changelog, self._allowance = query, joins, changelog, allowance
        self.tables = query.tables_at
        versioned = {join.table for join in query.as_of_joins}
        kept = [[] if i in versioned else names for i, names in enumerate(columns)]
        self.row_store = RowStore(query, kept, allowance, spill)
        self.as_of = AsOfJoins(query, self.row_store, columns, changelog) if versioned else None
        self.trees = [TreeNode(node, self.row_store, changelog, allowance) for node in query.cores]
        self.live = [0] * len(query.streams)

    def check_ends(self) -> None:
        """Raise InputError for a branch whose rows might wait for a partner for ever."""
        for tree in self.trees:
            for node, branch in tree.waits_forever():
                core, other = (", ".join(self.query.streams[i].name for i in side.streams) for side in (node, branch))
                raise InputError(
                    f"a row of {core} without a partner in {other} would never be known: no window of {core} ends, so a"
                    " partner may always come. Give the streams windows or intervals, use output='changelog', or, for"
                    " input that ends, bounded=True and finish()"
                )

    @property
    def nodes(self) -> list[TreeNode]:
        """All nodes with a ledger."""
        return [node for tree in self.trees for node in tree.parts if node.ledger is not None]

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledgers of all nodes."""
        return [node.ledger for node in self.nodes if node.ledger is not None]

    @property
    def waiting(self) -> int:
        """The number of entries of all ledgers."""
        return sum(map(len, self.ledgers)) + (0 if self.as_of is None else self.as_of.waiting)

    @property
    def due(self) -> int | None:
        """See `Runtime.due`."""
        times = [tree.due for tree in self.trees]
        if self.as_of is not None:
            times.append(self.as_of.due)
        return min((at for at in times if at is not None), default=None)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of a push, which do not count as state."""
        return sum(ledger.buffer_bytes for ledger in self.ledgers)

    @property
    def nbytes(self) -> int:
        """Bytes of the ledgers and of the rows."""
        as_of = 0 if self.as_of is None else self.as_of.nbytes
        return self.row_store.nbytes + as_of + sum(tree.nbytes for tree in self.trees)

    def living(self, i: int) -> Int64s:
        """Return the arrival numbers of the living versions of table i, ascending. O(versions)."""
        path, join = self._join_with(i)
        return join.modules.living_numbers(path.index(i))

    def _replaced(self, i: int) -> tuple[int, Int64s]:
        """Return the first arrival number of table i in a push, and the version that each of its changes ended."""
        path, join = self._join_with(i)
        return self.row_store.before[i], join.modules.replaced(path.index(i), self.row_store.before[i])

    def _join_with(self, i: int) -> tuple[Path, Join]:
        return next((path, join) for path, join in self.joins.items() if i in path)

    # A push

    def begin(self, loading: bool = False) -> None:
        """Leave out dead versions of tables. In `follow` each part notes its own state."""
        for i in self.tables:
            if self.row_store.crowded(i):
                self.row_store.compact(i, self.living(i))

    def compact(self) -> None:
        """Leave out dead versions, and rows that have ended or are final, between two pushes. O(what is kept)."""
        for node in self.nodes:
            node.release(self.live)
        if self.as_of is not None:
            self.as_of.release()
        for i in self.tables:
            self.row_store.compact(i, self.living(i))

    def follow(self, arrivals: Arrivals, results: Mapping[Path, PartnerRows]) -> tuple[PartnerRows, list[int]]:
        """Process the results of the inner joins in a push; return the rows that begin and end, and `live` after it.

        The push is still open: `settle` or `roll_back` follows.
        """
        following = self.row_store.following
        self.row_store.load(arrivals, self.lows, self.waiting)
        counts = self.row_store.following
        live = self._live_after(counts)
        alone = [
            (range(first, end), range(low, new_low))
            for first, end, low, new_low in zip(following, counts, self.live, live, strict=True)
        ]
        news = Pushed(results, alone, live, arrivals.watermark, counts, arrivals.ends)
        for tree in self.trees:
            tree.begin()
        put_out = joined([tree.follow(news) for tree in self.trees], len(counts))
        if not arrivals.ends:
            self._allowance.ask(0, "the rows that wait for partners")
        rows = net(put_out) if self.changelog else put_out
        if self.as_of is not None:
            rows = self.as_of.follow(arrivals, rows, following, self.lows)
            rows = net(rows) if self.changelog else rows
        return rows, live

    def settle(self, commit: list[int], again: bool = False) -> None:
        """Commit a push: `commit` is `live` after the push. The call may be repeated."""
        for tree in self.trees:
            tree.commit()
        if self.as_of is not None:
            self.as_of.settle()
        self.row_store.commit()
        self.live = commit

    def roll_back(self) -> None:
        """Take an open push back. The call may be repeated."""
        for tree in self.trees:
            tree.undo()
        if self.as_of is not None:
            self.as_of.undo()
        self.row_store.undo()

    def combinations(self, partner_rows: PartnerRows, pairs: bool) -> Combined:
        """Return rows as combinations of which `Results` makes a table.

        pairs   rows that others replace come before those, in pairs; else there are rows that end and rows that begin
        """
        rows, signs = partner_rows.rows, np.where(partner_rows.signs == 1, INSERTED, DELETED).astype(np.uint8)
        if pairs and len(rows):
            rows, signs = paired(partner_rows, {i: self._replaced(i) for i in self.tables}, self.query.versioned_at)
        shown = [self.query.index(stream.name) for stream in self.query.shown]
        return Combined(
            len(rows),
            lambda: self._columns(rows),
            lambda: np.ascontiguousarray(self._numbered(rows).T[shown]),
            signs,
            int(np.count_nonzero(partner_rows.signs == 0)),
        )

    def _columns(self, rows: Int64s) -> dict[tuple[int, int], Column]:
        """Return the columns of results, including the columns that say whether a component exists."""
        columns = self.row_store.gather(rows) | {(i, PRESENT): pa.array(rows[:, i] >= 0) for i in self.query.presences}
        return columns if self.as_of is None else columns | self.as_of.columns(rows)

    def _numbered(self, rows: Int64s) -> Int64s:
        return rows if self.as_of is None else self.as_of.numbered(rows)

    def _live_after(self, counts: list[int]) -> list[int]:
        """Return the oldest row of each stream in its window after a push, as the inner joins report."""
        live = list(self.live)
        for path, join in self.joins.items():
            for i, low in zip(path, join.modules.oldest().tolist(), strict=True):
                window = self.query.graph.windows[i]
                live[i] = max(counts[i] - window.size, 0) if window.kind == WindowKind.ROWS else low
        for i in self.tables:
            live[i] = 0
        return live

    def lows(self) -> Int64s:
        """Return the oldest row of each stream that results may still need."""
        lows = np.array(self.row_store.following, np.int64)
        for path, join in self.joins.items():
            # Rows that leave with the present push may be in its results.
            np.minimum.at(lows, list(path), join.modules.oldest(before=True))
        for ledger in self.ledgers:
            ledger.lower(lows)
        if self.as_of is not None:
            self.as_of.lower(lows)
        lows = np.minimum(lows, self.live) if self.changelog else lows
        for i in self.tables:
            # The dead versions of a table leave by compaction.
            lows[i] = self.row_store.low[i]
        return lows

    def check(self) -> None:
        """Raise StateError unless all invariants of the ledgers hold. O(state), for tests."""
        for ledger in self.ledgers:
            ledger.check()

    def to_parts(self) -> Plain:
        """Return all parts from which `load_parts` resumes."""
        if self.as_of is not None:
            # A row that ended while it waited may have versions of tables that are not kept any more.
            self.as_of.release()
        return {
            "shelf": self.row_store.to_parts(),
            "nodes": [node.to_parts() for node in self.nodes],
            "live": self.live,
            **({} if self.as_of is None else {"as_of": self.as_of.to_parts(self.lows())}),
        }

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of the partners of the same query. Raises StateError for parts that do not fit."""
        self.row_store.load_parts(parts.part("shelf"))
        nodes = self.nodes
        for part, node in zip(parts.items("nodes", len(nodes)), nodes, strict=True):
            node.load_parts(part)
        for i in self.tables:
            whole = bool(np.isin(self.living(i), self.row_store.kept(i)).all())
            parts.require(whole, f"table {self.query.streams[i].name} lacks payload of versions that live")
        self.live = parts.integers("live", len(self.live))
        if self.as_of is not None:
            self.as_of.load_parts(parts.part("as_of"), watermark)

    def dismantle(self) -> None:
        """Release all memory immediately. The operator cannot be used afterwards."""
        # Some of these objects refer to themselves, and would keep their memory until reference cycles are collected.
        nodes = [node for tree in self.trees for node in tree.parts]
        for part in (*nodes, self.row_store.payload, self.row_store, self):
            vars(part).clear()
