"""The side output of rows and groups that fail: joined rows and groups for which an expression has no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from eddy.query.query import Query
from eddy.results.failed_rows import FAILED, FailedBatch
from eddy.results.side_output import SideOutput
from stairs.errors import FailedRowsError


class FailedOutput(SideOutput):
    """The side output of the failed rows of one runtime. It has one name, since its columns are always `FAILED`."""

    noun, option, error = "failed rows", "failed", FailedRowsError

    def __init__(self, query: Query) -> None:
        super().__init__({"failed": FAILED}, [query.failed], query.failed_rows)

    @property
    def unread(self) -> bool:
        """Whether there are failed rows that were not collected, or that were collected since the last push."""
        return self.rows.nbytes > 0 or self.rows.taken is not None

    def follow(self, query: Query) -> None:
        """Treat failed rows by the options of another query, from the next push on."""
        self.choices, self.most = (query.failed,), query.failed_rows

    @property
    def count(self) -> int:
        """The number of failed rows since the start."""
        return self.rows.counts[0]

    @property
    def dropped(self) -> int:
        """The number of failed rows that were dropped before they were collected."""
        return self.rows.dropped[0]

    def added(self, failed: Sequence[pa.RecordBatch]) -> dict[int, FailedBatch]:
        """Return failed rows of a push, for `LateRows.with_added` and `settle`."""
        if not failed:
            return {}
        rows = pa.concat_batches(list(failed))
        return {
            0: FailedBatch(None if self.choices == ("count",) else rows, len(rows), rows.slice(0, 1).to_pylist()[0])
        }

    def settle(self, failed: Mapping[int, FailedBatch], left: float) -> None:
        """Handle failed rows after a push, see `settle_with`."""
        self.settle_with(failed, left, lambda i: self._first(failed[i]))

    def table(self) -> pa.Table:
        """Return the stored rows, and remove them."""
        return self.take().get("failed", FAILED.empty_table())

    def last_table(self) -> pa.Table | None:
        """Return the rows that `table` removed since the last push, None without removed rows."""
        taken = self.taken()
        return None if taken is None else taken["failed"]

    def _place(self, name: str) -> str:
        return ""

    def _pass_on(self, function: object, name: str, table: pa.Table) -> None:
        assert callable(function)
        function(table)

    def _first(self, batch: FailedBatch) -> str:
        """Return the message about the first failed row."""
        first = batch.first
        row = ", ".join(f"{name} = {value}" for name, value in first["row"])
        return (
            f"{first['kind']} {first['expression']} has no value for a row, which is left out of the results:"
            f" {first['reason']}. The row has {row}. It {self._goes(0)}; everything else goes on, and failed rows are"
            " logged only once. metrics() counts them as failed"
        )
