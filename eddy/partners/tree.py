"""The nodes of a query with branches: each reads the results of its inner join and yields rows to the node above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eddy.partners.row_store import RowStore
from eddy.partners.rows import Int64s, PartnerRows, joined
from eddy.query.branch_nodes import BranchNode
from stairs.deadlines import Deadlines
from stairs.graph import FOREVER, WindowKind
from stairs.ledger import LEAST_ROOM, Ledger
from stairs.memory.allowance import Allowance
from stairs.storage.parts import Parts, Plain

TIME = -1
"""The clock that is the watermark. The other clocks are the numbers of rows arrived in each ROWS stream."""


class Pushed(NamedTuple):
    """The data of a push that all nodes read.

    matches    by path, the results of the inner joins
    alone      per stream the arrival numbers of its rows that begin, and of those that leave their windows
    live       per stream the oldest row in its window after the push
    watermark  the watermark after the push; None before the first
    counts     per stream, the rows that have arrived
    finished   the input has ended
    """

    matches: Mapping[tuple[int, ...], PartnerRows]
    alone: list[tuple[range, range]]
    live: list[int]
    watermark: int | None
    counts: list[int]
    finished: bool


class TreeNode:
    """A node with branches. A node without branches passes the results of its inner join on.

    changelog  whether the node also yields rows that end
    below      the nodes of the branches
    ledger     its matches and their partners; None in a node without branches
    deadlines  by (clock, branch), the moment from which the branch can get no further option. A ROWS window has the
               number of its stream as its clock
    parts      the node and all nodes below it
    """

    def __init__(self, node: BranchNode, row_store: RowStore, changelog: bool, allowance: Allowance) -> None:
        self.node, self.row_store, self.changelog = node, row_store, changelog
        self.below = [TreeNode(branch, row_store, changelog, allowance) for branch in node.branches]
        self.width, self.final = len(row_store.query.streams), row_store.query.expiry == "final"
        self._released = LEAST_ROOM
        tables = not set(node.path).isdisjoint(row_store.query.tables_at)
        hows = [branch.how for branch in node.branches]
        self.ledger = Ledger(hows, self.width, node.path, tables, allowance) if node.branches else None
        rows = [i for i in node.path if row_store.query.graph.windows[i].kind == WindowKind.ROWS]
        clocks = ([TIME] if row_store.query.graph.timed else []) + rows
        self.deadlines = {(clock, b): Deadlines() for clock in clocks for b in range(len(node.branches))}
        self.parts: list[TreeNode] = [self, *(part for child in self.below for part in child.parts)]

    def waits_forever(self) -> list[tuple[BranchNode, BranchNode]]:
        """Return the pairs of a node and a left or anti branch of it that may get an option at any time."""
        pairs = []
        for part in self.parts:
            rows = any(clock != TIME for clock, _ in part.deadlines)
            for branch in part.node.branches:
                timed = all(part.node.spans(below) for below in branch.below())
                if branch.how != "semi" and not rows and not timed:
                    pairs.append((part.node, branch))
        return pairs

    @property
    def _kept(self) -> list[Ledger | Deadlines]:
        """The ledgers and deadlines of this node and of all nodes below, which a push changes."""
        kept: list[Ledger | Deadlines] = []
        for part in self.parts:
            if part.ledger is not None:
                kept += [part.ledger, *part.deadlines.values()]
        return kept

    def to_parts(self) -> Plain:
        """Return the ledger and the deadlines of this node as parts for another process."""
        assert self.ledger is not None
        return {
            "ledger": self.ledger.to_parts(),
            "deadlines": [deadlines.to_parts() for deadlines in self.deadlines.values()],
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of this node. Raises StateError for parts that do not fit."""
        assert self.ledger is not None
        self.ledger.load_parts(parts.part("ledger"))
        for queue, deadlines in zip(
            parts.items("deadlines", len(self.deadlines)), self.deadlines.values(), strict=True
        ):
            deadlines.load_parts(queue)

    @property
    def nbytes(self) -> int:
        """Bytes of ledgers and deadlines, in this node and all nodes below it."""
        return sum(kept.nbytes for kept in self._kept)

    @property
    def due(self) -> int | None:
        """The event time that the watermark must pass before a row can be output; None if no row waits for it."""
        queues = [queue for part in self.parts for (clock, _), queue in part.deadlines.items() if clock == TIME]
        return min((at for queue in queues if (at := queue.earliest) is not None), default=None)

    def begin(self) -> None:
        """Open a push."""
        for kept in self._kept:
            kept.begin()

    def commit(self) -> None:
        """Close the push. The call may be repeated."""
        for kept in self._kept:
            kept.commit()

    def undo(self) -> None:
        """Undo the open push. The call may be repeated."""
        for kept in self._kept:
            kept.undo()

    def follow(self, pushed: Pushed) -> PartnerRows:
        """Process a push, and return the rows that begin and end with the push."""
        matches = self._matches(pushed)
        if self.ledger is None:
            return matches
        begins = matches.signed(1) if self.changelog else matches.rows
        serials = self.ledger.enter(begins, self.changelog)
        if self.changelog:
            # Their rows end as they are now, so the options that end with them change nothing.
            self.ledger.leave(matches.signed(0))
        else:
            self.wait(begins, serials)
        parts = []
        for b, child in enumerate(self.below):
            options = child.follow(pushed)
            if self.ledger.passes and not self.changelog:
                self.ledger.mark(options.rows)
                parts.append(options)
            else:
                self.ledger.follow(b, options.rows, options.signs)
        if not self.changelog:
            self._close(pushed)
        rows = PartnerRows(*self.ledger.put_out())
        if self.changelog and self.final:
            self._release(pushed)
        return joined([*parts, rows], self.width)

    def _matches(self, pushed: Pushed) -> PartnerRows:
        if self.node.path in pushed.matches:
            return pushed.matches[self.node.path]
        (i,) = self.node.path
        parts = []
        ends = self.changelog and not self.final
        for numbers, sign in zip(pushed.alone[i][: 1 + ends], (1, 0), strict=False):
            rows = self._rows(i, numbers)
            parts.append(PartnerRows(rows, np.full(len(numbers), sign, np.uint8)))
        return joined(parts, self.width)

    def _rows(self, i: int, numbers: range) -> Int64s:
        """Return the matches of stream i alone, by its arrival numbers."""
        rows = np.full((len(numbers), self.width), -1, np.int64)
        rows[:, i] = np.arange(numbers.start, numbers.stop)
        return rows

    def release(self, live: Sequence[int]) -> None:
        """Forget the matches of final rows that have left their windows, between two pushes. O(matches)."""
        if self.ledger is not None and self.final:
            self.ledger.begin()
            try:
                self._leave(live)
            except BaseException:
                self.ledger.undo()
                raise
            self.ledger.commit()

    def _release(self, pushed: Pushed) -> None:
        """Forget the matches whose rows have left their windows: what was put out for them stays.

        A match of several inputs is forgotten when there are twice as many as after the last time, so the cost is O(1)
        for each match.
        """
        assert self.ledger is not None
        if len(self.node.path) == 1:
            (i,) = self.node.path
            self.ledger.forget(self._rows(i, pushed.alone[i][1]))
        elif len(self.ledger) > 2 * self._released:
            self._leave(pushed.live)
            self._released = max(len(self.ledger), LEAST_ROOM)

    def _leave(self, live: Sequence[int]) -> None:
        assert self.ledger is not None
        matches = self.ledger.matches()
        self.ledger.forget(matches[(matches < live)[:, self.node.path].any(axis=1)])

    def wait(self, matches: Int64s, serials: Int64s) -> None:
        """Note the moment from which each branch of new entries can get no further option."""
        k, times = len(self.below), dict[int, Int64s]()
        for (clock, b), deadlines in self.deadlines.items():
            if clock == TIME:
                times = times or {i: self.row_store.times(i, matches[:, i]) for i in self.node.path}
                at = self._end_of(times, self.node.branches[b], len(matches))
            else:
                # The row leaves when `size` rows have arrived after it.
                at = matches[:, clock] + self.row_store.query.graph.windows[clock].size
            known = at < 2 * FOREVER
            due = serials * k + b
            deadlines.add(*((at, due) if known.all() else (at[known], due[known])))

    def _end_of(self, times: Mapping[int, Int64s], branch: BranchNode, n: int) -> Int64s:
        """Return the event times after which matches get no option of a branch; 2 * FOREVER = never."""
        latest = np.full(n, -2 * FOREVER, np.int64)
        for below in branch.below():
            first = np.full(n, 2 * FOREVER, np.int64)
            for i, size in self.node.spans(below):
                np.minimum(first, times[i] + size, out=first)
            np.maximum(latest, first, out=latest)
        return latest

    def _close(self, pushed: Pushed) -> None:
        """Process the deadlines that are due, in order of event time, or in order of the rows that left."""
        assert self.ledger is not None
        for clock in dict.fromkeys(clock for clock, _ in self.deadlines):
            now = pushed.watermark if clock == TIME else pushed.counts[clock]
            if now is None and not pushed.finished:
                continue
            taken = [
                self.deadlines[clock, b].take(None if pushed.finished else now) for b in range(len(self.node.branches))
            ]
            at, due = (np.concatenate(parts) for parts in zip(*taken, strict=True))
            self.ledger.close(due if len(taken) == 1 else due[np.argsort(at, kind="stable")])
        if pushed.finished:
            k = len(self.below)
            self.ledger.close(((self.ledger.serials() * k)[:, None] + np.arange(k)).reshape(-1))
