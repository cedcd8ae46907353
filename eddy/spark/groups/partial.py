"""The groups of some results of a batch, which another task merges into its own: fewer groups go there than results."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from eddy.aggregates.groups import Groups
from eddy.aggregates.storage import contents
from eddy.query.query import Query
from eddy.spark.groups.batch import as_rows
from eddy.spark.groups.deal import Deal
from stairs.memory.allowance import Allowance
from stairs.storage.parts import Parts, Plain

SAMPLE = 1 << 18
"""Results of a task and batch by which is decided whether groups take their place; fewer results go as they are."""
WORTH = 16
"""Results for each group among these from which on groups take their place."""


class PartialGroups:
    """The groups of results that are not taken back."""

    def __init__(self, query: Query) -> None:
        self._query, self._rows = query, as_rows(query.row_schema, None).schema
        self.groups = Groups(query, "append", True, Allowance())
        self._taken = 0

    @property
    def pays(self) -> bool:
        """Whether there are far fewer groups than results."""
        return WORTH * len(self.groups.state) <= self._taken

    def add(self, results: pa.Table) -> tuple[pa.RecordBatch, ...]:
        """Take results; return rows of `eddy.results.failed_rows.FAILED`."""
        self._taken += len(results)
        _, commit = self.groups.follow(as_rows(self._rows, results), None, False)
        self.groups.settle(commit)
        return commit.failed

    def merge(self, parts: Parts) -> None:
        """Take the groups of others, as `to_parts` or `pieces` gives them."""
        other = Groups(self._query, "append", True, Allowance())
        other.load_parts(parts, None)
        self.groups.gather(other)

    def to_parts(self) -> Plain:
        """Return all groups."""
        return self.groups.to_parts()

    def pieces(self, deal: Deal) -> Iterator[tuple[int, Plain]]:
        """Yield (part, its groups)."""
        state = self.groups.state
        slots = state.groups.slots
        for part, numbers in deal.groups(state.key_columns(state.groups.keys[slots]), len(slots)):
            yield part, {"finished": False, **contents(state, slots[numbers])}
