"""The union: takes results with the rows that they account for, so that a lost track can be continued exactly.

Results become final in the union; in a real system the union is replicated with the logs. The union refuses the whole
commit of a fenced track, because the successor of the track emits these results.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from bench.simulated.cluster.messages import MANAGER, EmittedResults, Message, ResultCommit, Sent


class Union:
    """The ledger of all groups, and their results in the order of their arrival.

    schema   of the tables of results, with the columns of positions
    """

    def __init__(self, schema: pa.Schema, hidden: list[str]) -> None:
        self._schema, self._hidden = schema, hidden
        self.tables: list[pa.Table] = []
        self.count = 0
        self.ledger: dict[int, dict[int, EmittedResults]] = defaultdict(dict)
        """Per group and epoch, the results that its track has emitted."""
        self.fences: dict[int, int] = defaultdict(int)
        """Per group, the least epoch whose commits are taken."""

    def commit(self, commit: ResultCommit) -> bool:
        """Take a commit; return whether the union has taken it."""
        if commit.epoch < self.fences[commit.group]:
            return False
        self.ledger[commit.group][commit.epoch] = commit.given
        if commit.results is not None:
            self.tables.append(commit.results)
            self.count += commit.results.num_rows
        return True

    def receive(self, message: Message) -> list[Sent]:
        """Fence groups: refuse later commits of epochs below the new ones, and return the record of emitted results."""
        content = message.content
        for group in message.groups:
            self.fences[group] = max(self.fences[group], content["epochs"][group])
        given = {group: tuple(record for _, record in sorted(self.ledger[group].items())) for group in message.groups}
        return [(MANAGER, Message("Fenced", message.move, message.groups, {"given": given}))]

    def results(self) -> pa.Table:
        """Return all results, without positions."""
        return self.with_positions().drop_columns(self._hidden)

    def with_positions(self) -> pa.Table:
        """Return all results with the positions of their components."""
        return pa.concat_tables([self._schema.empty_table(), *self.tables])
