"""The groups of a query with `top`, each with a tree of its rows in order, and the part of a push in them.

A push enters rows into the trees, or takes them back, and lists the first rows of the groups that it changes, before
and after. Its changes are noted in the arrays of the trees: until `settle`, `roll_back` takes them back. The kernels
that change trees are not interrupted; what Python changes, it can change again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.directory import SlotDirectory, numbered
from eddy.aggregates.state import SPARE_TEXTS
from eddy.tops.kernels import DONE, WRONG, differ, enter, judge, list_first, settle_nodes, undo_nodes
from eddy.tops.ranked import RankedRows
from eddy.tops.stored_rows import StoredRows, plain_column
from eddy.tops.trees import (
    GROUP,
    LEAST_NODES,
    LEFT,
    MARK,
    N_ADDED,
    N_FREE,
    N_NEXT,
    N_REMOVED,
    PRIORITY,
    RIGHT,
    ROW,
    SIZE,
    Trees,
    empty_trees,
    longer_trees,
)
from stairs.bytes_directory import BytesDirectory
from stairs.errors import SnapshotError, StateError
from stairs.kernels.byte_strings import B_FREE, B_NEXT
from stairs.memory.allowance import Allowance
from stairs.plain_types import plain_schema, taken
from stairs.seeds import seeds

Int64s = npt.NDArray[np.int64]
NONE = np.zeros(0, np.int64)
SPARE_ROWS = 1024
"""Number of rows without a node that do not yet start a compaction."""


class Planted(NamedTuple):
    """The trees; the groups, whose cells have their roots; the rows of their nodes.

    They are in one attribute, so that parts of different states never meet, whatever comes between two statements.
    """

    trees: Trees
    groups: SlotDirectory
    rows: StoredRows


class Answers(NamedTuple):
    """The first rows of the groups that a push may have changed: nodes in order, and where those of each group end."""

    nodes: Int64s
    ends: Int64s


class Taken(NamedTuple):
    """The part of a push in the trees.

    before, after   the answers of the groups that it may have changed
    emptied         the keys of groups that have no row any more
    rows            the stored rows after the push
    """

    before: Answers
    after: Answers
    emptied: Int64s
    rows: StoredRows


class Forest:
    """The trees of all groups.

    n       the first n rows of a group are its answer
    most    rows that a tree keeps: n if no row is ever taken back, 0 = all
    """

    def __init__(self, ranked: RankedRows, schema: pa.Schema, n: int, retracts: bool, allowance: Allowance) -> None:
        self.ranked, self.n, self.most = ranked, n, 0 if retracts else n
        self._allowance = allowance
        self.texts = BytesDirectory(allowance)
        self._used_texts = 0
        self.planted = Planted(
            empty_trees(ranked.width, ranked.kinds, seeds(2)),
            SlotDirectory(ranked.key_words, 1),
            StoredRows(plain_schema(schema)),
        )
        self._begun: Int64s | None = None
        """The keys of the groups that the open push has begun."""

    @property
    def trees(self) -> Trees:
        """The arrays of the trees."""
        return self.planted.trees

    @property
    def groups(self) -> SlotDirectory:
        """The groups by their keys, with the roots of their trees."""
        return self.planted.groups

    @property
    def rows(self) -> StoredRows:
        """The stored rows, of plain types."""
        return self.planted.rows

    @property
    def live(self) -> Int64s:
        """The nodes in trees, ascending. O(slots)."""
        return np.flatnonzero(self.trees.nodes[: self.trees.meta[N_NEXT], SIZE])

    def __len__(self) -> int:
        meta = self.trees.meta
        return int(meta[N_NEXT] - meta[N_FREE] - meta[N_REMOVED])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = sum(array.nbytes for array in self.trees)
        return arrays + self.groups.nbytes + self.texts.nbytes + self.rows.nbytes

    # A push

    def take(self, table: pa.Table, signs: Int64s) -> Taken:
        """Enter rows with sign 1, and take back those with sign -1. The push is open then.

        Raises SnapshotError if a row is taken back that no tree has, or comes twice: only altered snapshots have such
        rows.
        """
        self._compact()
        keys, words = self.ranked.keys(table, self.texts), self.ranked.places(table, self.texts)
        numbers, distinct = numbered(keys)
        keys = keys[distinct]
        slots = self._slots(keys)
        roots, texts, first = self.groups.cells, self.texts.arena, len(self.rows)
        edges, touched, reaches = (
            np.empty(len(distinct), np.int64),
            np.empty(len(distinct), np.int64),
            np.empty_like(numbers),
        )
        total = judge(self.trees, texts, roots, slots, self.n, words, numbers, edges, touched, reaches)
        if self.most:
            # What comes after the edge now comes after it for ever.
            signs = signs * reaches
        before = self._answers(slots, touched, total)
        done = np.zeros(1, np.int64)
        while True:
            status = enter(self.trees, texts, roots, slots, self.most, words, numbers, signs, done, first)
            if status == DONE:
                break
            if status == WRONG:
                raise SnapshotError(
                    "a group of top lacks a row that is taken back, or has one that comes: the groups contradict the"
                    " windows, so the snapshot from which this runtime was restored had been altered"
                )
            self._grow()
        after = self._answers(slots, touched, total + int(np.count_nonzero(signs * reaches > 0)))
        return Taken(before, after, keys[roots[slots, 0] == 0], self._with_added(table, first))

    def _with_added(self, table: pa.Table, first: int) -> StoredRows:
        """Return the stored rows with those of the nodes that the open push has added, which get their numbers."""
        trees = self.trees
        nodes = trees.added[: trees.meta[N_ADDED]]
        if not len(nodes):
            return self.rows
        nodes = nodes[np.argsort(trees.nodes[nodes, ROW])]
        numbers = trees.nodes[nodes, ROW] - first
        trees.nodes[nodes, ROW] = np.arange(first, first + len(nodes))
        columns = [plain_column(taken(column, numbers)) for column in table.columns]
        rows = self.rows.with_rows(pa.Table.from_arrays(columns, schema=self.rows.schema).to_batches())
        self._allowance.ask(rows.nbytes - self.rows.nbytes, "rows of top")
        return rows

    def _slots(self, keys: Int64s) -> Int64s:
        """Return the slots of groups, new ones for groups that are not there."""
        self.groups.make_room(len(keys), self._allowance)
        slots = self.groups.find(keys)
        new = slots < 0
        if new.any():
            self._begun = begun = np.ascontiguousarray(keys[new])
            n = len(begun)
            slots[new] = self.groups.write(begun, np.zeros((n, 1), np.int64), np.ones(n, np.bool_))
        return slots

    def _answers(self, slots: Int64s, touched: Int64s, most: int) -> Answers:
        nodes, ends = np.empty(most, np.int64), np.empty(len(slots), np.int64)
        count = list_first(self.trees, self.groups.cells, slots, touched, self.n, nodes, ends)
        return Answers(nodes[:count], ends)

    def all_answers(self) -> Answers:
        """Return the first rows of all groups."""
        slots = self.groups.slots
        return self._answers(slots, np.ones(len(slots), np.int64), len(self))

    def _grow(self) -> None:
        trees = self.trees
        room = len(trees.nodes)
        self._allowance.ask(
            sum(array.nbytes for array in trees) - trees.path.nbytes, f"room for {2 * room:,} rows of top"
        )
        self.planted = self.planted._replace(trees=longer_trees(trees, 2 * room))

    def difference(self, before: Answers, after: Answers, paired: bool) -> Int64s:
        """Return what differs between two answers, int64[n, 3]: node before, node after, -1 = none, and place.

        paired   whether the nodes at one place of a group are one row, before and after a change
        """
        changes = np.empty((len(before.nodes) + len(after.nodes), 3), np.int64)
        return changes[: differ(self.trees, *before, *after, int(paired), changes)]

    def settle(self, commit: Taken) -> None:
        """End a push that has happened. Idempotent."""
        settle_nodes(self.trees)
        self.planted = self.planted._replace(rows=commit.rows)
        self._remove(commit.emptied)
        self._begun = None
        self._tidy()

    def roll_back(self) -> None:
        """Take the open push back; do nothing if no push is open. Idempotent."""
        meta = self.trees.meta
        if meta[N_ADDED] or meta[N_REMOVED]:
            undo_nodes(self.trees, self.texts.arena, self.groups.cells)
        if self._begun is not None:
            self._remove(self._begun)
            self._begun = None

    def _remove(self, keys: Int64s) -> None:
        if len(keys):
            self.groups.remove(self.groups.find(np.ascontiguousarray(keys)))

    # Rows

    def row_numbers(self, nodes: Int64s) -> Int64s:
        """Return the numbers of the stored rows of nodes."""
        return self.trees.nodes[nodes, ROW]

    def sorted_rows(self) -> StoredRows:
        """Return the rows of all nodes, in an order that depends on these rows only. O(rows log rows)."""
        live = self.live
        ranks = self.ranked.ranks(self.trees.words[live], self.texts)
        return self.rows.only(self.row_numbers(live[np.lexsort(ranks.T[::-1])]))

    # Memory

    def _tidy(self) -> None:
        """Release unused memory. O(1), or O(rows) after as many rows have left."""
        if len(self.trees.nodes) > LEAST_NODES and 8 * len(self) < len(self.trees.nodes):
            self._rebuild()
        if self._texts_in_use() > 2 * self._used_texts + SPARE_TEXTS:
            live, slots = self.live, self.groups.slots
            ids = self.ranked.text_ids(self.groups.keys[slots], self.trees.words[live])
            self.texts.recount(np.concatenate([NONE, *ids]))
            self._used_texts = self._texts_in_use()

    def _texts_in_use(self) -> int:
        meta = self.texts.arena.meta
        return int(meta[B_NEXT] - meta[B_FREE])

    def _rebuild(self) -> None:
        """Put the nodes into smaller arrays, in their trees as they are."""
        trees, groups, live = self.trees, self.groups, self.live
        n = len(live)
        place = np.full(len(trees.nodes) + 1, -1, np.int64)
        place[live] = np.arange(n)
        smaller = SlotDirectory(self.ranked.key_words, 1)
        slots = groups.slots
        roots = place[groups.cells[slots, 0] - 1] + 1
        owners = np.zeros(groups.capacity, np.int64)
        owners[slots] = smaller.write(groups.keys[slots], roots[:, None], np.ones(len(slots), np.bool_))
        packed = longer_trees(
            empty_trees(self.ranked.width, self.ranked.kinds, trees.seeds),
            max(LEAST_NODES, 1 << (2 * n).bit_length()),
        )
        nodes = trees.nodes[live]
        nodes[:, [LEFT, RIGHT]] = place[nodes[:, [LEFT, RIGHT]]]
        nodes[:, GROUP] = owners[nodes[:, GROUP]]
        packed.nodes[:n], packed.words[:n] = nodes, trees.words[live]
        packed.meta[N_NEXT] = n
        self.planted = Planted(packed, smaller, self.rows)

    def _compact(self) -> None:
        """Drop rows that no tree has, if they are more than half. O(1) per row that has left, amortized."""
        if len(self.rows) <= 2 * len(self) + SPARE_ROWS:
            return
        live, nodes = self.live, self.trees.nodes.copy()
        live = live[np.argsort(nodes[live, ROW])]
        rows = self.rows.only(nodes[live, ROW])
        nodes[live, ROW] = np.arange(len(live))
        self.planted = self.planted._replace(trees=self.trees._replace(nodes=nodes), rows=rows)

    def check(self) -> None:
        """Raise StateError unless the invariants hold. O(rows log rows), for tests."""
        self.groups.check()
        trees, groups, live = self.trees, self.groups, self.live
        if trees.meta[N_ADDED] or trees.meta[N_REMOVED] or self._begun is not None:
            raise StateError("a push in the trees is open")
        if len(live) != len(self) or (trees.nodes[live, MARK] != 0).any():
            raise StateError(f"{len(live)} nodes are in trees, and {len(self)} slots are in use")
        seen = 0
        live_ranks = self.ranked.ranks(trees.words[live], self.texts)
        ranks = np.zeros((len(trees.nodes), live_ranks.shape[1]), np.int64)
        ranks[live] = live_ranks
        for slot in groups.slots.tolist():
            nodes = _in_order(trees, int(groups.cells[slot, 0]) - 1)
            seen += len(nodes)
            rows = ranks[nodes]
            # Rows of one group are different from each other.
            if not len(nodes) or not np.array_equal(np.lexsort(rows.T[::-1]), np.arange(len(nodes))):
                raise StateError("a group has no row, or its rows are in another order")
            if len(np.unique(rows, axis=0)) != len(nodes) or (trees.nodes[nodes, GROUP] != slot).any():
                raise StateError("a group has a row twice, or that of another group")
            if self.most and len(nodes) > self.most:
                raise StateError(f"a group keeps {len(nodes)} rows, which is more than {self.most}")
        numbers = trees.nodes[live, ROW]
        if len(np.unique(numbers)) != len(live) or (len(live) and numbers.max() >= len(self.rows)):
            raise StateError("two nodes have one row, or a node has none")
        if seen != len(live):
            raise StateError(f"the trees have {seen} nodes, and {len(live)} are in use")


def _in_order(trees: Trees, root: int) -> Int64s:
    """Return the nodes of a tree in order. Raises StateError for a wrong size, or a wrong priority."""
    nodes, path, at = list[int](), list[int](), root
    while at >= 0 or path:
        while at >= 0:
            path.append(at)
            at = int(trees.nodes[at, LEFT])
        at = path.pop()
        nodes.append(at)
        node = trees.nodes[at]
        below = trees.nodes[[int(k) for k in (node[LEFT], node[RIGHT]) if k >= 0]]
        if node[SIZE] != 1 + below[:, SIZE].sum() or (below[:, PRIORITY] > node[PRIORITY]).any():
            raise StateError("a tree has another size than its nodes, or is no heap")
        at = int(node[RIGHT])
    return np.array(nodes, np.int64)
