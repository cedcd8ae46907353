"""The operators above a streaming join: groups, and first rows of groups.

    results of a batch -> groups in windows              rows of the windows that the watermark has passed
                       -> groups in windows -> top       the first ones among the rows of each window
                       -> groups                         the changes of the groups
                       -> groups -> top, or -> top       the changes of the answer

Each takes the results of a batch after the other. It runs in parts, each with all results of its groups (`deal.py`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from eddy.aggregates.groups import Groups, GroupsCommit
from eddy.aggregates.windows import NEVER
from eddy.query.query import Query
from eddy.query.result_key import result_key
from eddy.query.ungrouped import ungrouped, without_top
from eddy.results.results import OP
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.batch import as_rows
from eddy.spark.groups.first_rows import TIE, by_content
from eddy.spark.groups.partial import PartialGroups
from eddy.spark.partitioning.engine import JoinOutput
from eddy.streams.windows import Rows
from eddy.tops.modes import lasting, mode_of, parted
from eddy.tops.tops import Tops
from stairs.errors import InputError
from stairs.graph import WindowKind
from stairs.memory.allowance import Allowance
from stairs.storage.parts import Parts, Plain

BATCH_BITS = 32
"""Bits of the number of a row below those of its batch."""
_OF_A_CHANGELOG = "which is the column of a changelog that has +I or -D; give it another name"


class Followed(NamedTuple):
    """The rows that a batch gives, and the groups that fail (`eddy.results.failed_rows.FAILED`)."""

    rows: pa.Table
    failed: tuple[pa.RecordBatch, ...] = ()


class ResultOperator(Protocol):
    """An operator over all results of a streaming join."""

    rows: pa.Schema
    """The columns of the results that it takes, in plain types."""
    schema: pa.Schema
    """The columns of the rows that it gives."""

    @property
    def due(self) -> int | None:
        """The watermark at which the operator gives rows without further results, None if no watermark does."""

    def follow(self, rows: pa.Table | None, watermark: int | None, batch: int) -> Followed:
        """Take the results of a batch, None without results, and the watermark after it."""

    def partial(self) -> PartialGroups | None:
        """Return groups of no results yet, None if the operator takes results only."""

    def follow_groups(self, taken: PartialGroups, watermark: int | None) -> Followed:
        """Take the results of a batch as groups; see `follow`."""

    def to_parts(self) -> Plain:
        """Return all from which `load_parts` resumes."""

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Fill the new operator."""


def operator_of(query: Query, after: int | None = None) -> ResultOperator:
    """Return the operator of a query with aggregates or `top`, empty; `after` as in `WindowGroups`."""
    if query.aggregation is None:
        return RankedResults(query)
    return ChangingGroups(query) if query.aggregation.window is None else WindowGroups(query, after)


class WindowGroups:
    """Groups in windows of event time. The rows of a window come in one batch, so the first ones of them are final.

    after   only windows that begin after this time are given; None = all windows
    """

    def __init__(self, query: Query, after: int | None) -> None:
        self._query = query
        self._groups = Groups(query, "append", False, Allowance())
        if after is not None:
            self._groups.give_only(lambda starts: starts > after)
        self.rows, self.schema = as_rows(query.row_schema, None).schema, query.output_schema
        self._tops = None
        if query.ranking is not None:
            self._tops = Tops(query, "append", False, self._groups.schema, False, Allowance())

    @property
    def due(self) -> int | None:
        """See `ResultOperator`."""
        window, next_end = self._groups.window, self._groups.progress.next
        assert window is not None
        assert window.slack is not None
        return None if next_end == NEVER else next_end + window.slack

    def follow(self, rows: pa.Table | None, watermark: int | None, batch: int) -> Followed:
        """See `ResultOperator`."""
        return self._given(*self._groups.follow(as_rows(self.rows, rows), watermark, False))

    def partial(self) -> PartialGroups | None:
        """See `ResultOperator`."""
        return PartialGroups(self._query)

    def follow_groups(self, taken: PartialGroups, watermark: int | None) -> Followed:
        """See `ResultOperator`."""
        return self._given(*self._groups.follow_groups(taken.groups, watermark))

    def _given(self, group_rows: pa.Table, commit: GroupsCommit) -> Followed:
        self._groups.settle(commit)
        if self._tops is not None:
            group_rows, _ = self._tops.follow(group_rows, False)
        return Followed(group_rows, commit.failed)

    def to_parts(self) -> Plain:
        """See `ResultOperator`."""
        return self._groups.to_parts()

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """See `ResultOperator`."""
        self._groups.load_parts(parts, watermark)


class ChangingGroups:
    """Groups of all results, or of those whose rows are in their windows, as a changelog: it has one change of a group
    in a batch at most. With `top`, the changes of the first groups.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._groups = Groups(query, "changelog", False, Allowance(), lasting=not ends(query))
        rows = query.row_schema
        given = rows.insert(0, pa.field(OP, pa.string(), False)) if ends(query) else rows
        self.rows = as_rows(given, None).schema
        self._tops = None
        if query.ranking is not None:
            self._tops = Tops(query, "changelog", False, self._groups.schema, True, Allowance())
        self.schema = self._groups.schema if self._tops is None else self._tops.schema
        self.due = None

    def follow(self, rows: pa.Table | None, watermark: int | None, batch: int) -> Followed:
        """See `ResultOperator`."""
        # Whatever their order, results that move from one key group to another end as often as they begin.
        return self._changed(*self._groups.follow(as_rows(self.rows, rows), None, False))

    def partial(self) -> PartialGroups | None:
        """See `ResultOperator`."""
        return None if self._groups.state.layout.retracts else PartialGroups(self._query)

    def follow_groups(self, taken: PartialGroups, watermark: int | None) -> Followed:
        """See `ResultOperator`."""
        return self._changed(*self._groups.follow_groups(taken.groups, None))

    def _changed(self, changes: pa.Table, commit: GroupsCommit) -> Followed:
        self._groups.settle(commit)
        if self._tops is not None:
            changes, ranked = self._tops.follow(changes, False)
            self._tops.settle(ranked)
        return Followed(changes, commit.failed)

    def to_parts(self) -> Plain:
        """See `ResultOperator`."""
        groups = {"groups": self._groups.to_parts()}
        return groups if self._tops is None else {**groups, "top": self._tops.to_parts()}

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """See `ResultOperator`."""
        self._groups.load_parts(parts.part("groups"), None)
        if self._tops is not None:
            self._tops.load_parts(parts.part("top"), None)


class RankedResults:
    """The first rows of each group of the results, as a changelog.

    Without tables no result is taken back. Results that are equal in all columns get numbers, since either of them may
    have a place. With tables the results have keys, so no two of them are equal.
    """

    def __init__(self, query: Query) -> None:
        query = by_content(query)
        self._changing = bool(query.tables_changing)
        rows = without_top(query).output_schema.append(pa.field(TIE, pa.int64(), False))
        signed = rows.insert(0, pa.field(OP, pa.string(), False)) if self._changing else rows
        self.rows = as_rows(signed.remove(len(signed) - 1), None).schema
        self._tops = Tops(query, "changelog", False, signed, self._changing, Allowance())
        self.schema = self._tops.schema
        self.due = None

    def follow(self, rows: pa.Table | None, watermark: int | None, batch: int) -> Followed:
        """See `ResultOperator`."""
        given = as_rows(self.rows, rows)
        numbers = np.zeros(len(given), np.int64)
        if self._changing and len(given):
            # A row that moves from one key group to another ends in one and begins in the other.
            given = given.take(pa.array(np.argsort(parted(given)[1], kind="stable")))
        elif not self._changing:
            numbers = (batch << BATCH_BITS) + np.arange(len(given))
        ranked, commit = self._tops.follow(given.append_column(TIE, pa.array(numbers)), False)
        self._tops.settle(commit)
        return Followed(ranked)

    def partial(self) -> PartialGroups | None:
        """See `ResultOperator`."""
        return None

    def follow_groups(self, taken: PartialGroups, watermark: int | None) -> Followed:
        """Raise NotImplementedError: there are no groups."""
        raise NotImplementedError

    def to_parts(self) -> Plain:
        """See `ResultOperator`."""
        return self._tops.to_parts()

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """See `ResultOperator`."""
        self._tops.load_parts(parts, watermark)


def without_operators(query: Query) -> Query:
    """Return the streaming join of a query, without its aggregates or `top`.

    Raises SparkJoinError for aggregates and `top` that a streaming join cannot have.
    """
    if query.aggregation is not None:
        return grouped_join(query)
    return query if query.ranking is None else ranked_join(query)


def ends(query: Query) -> bool:
    """Return whether the groups of a query follow results that end: without a `group_window`, they may."""
    if query.aggregation is None or query.aggregation.window is not None:
        return False
    endless = query.lasting or all(window.kind == WindowKind.UNBOUNDED for window in query.graph.windows)
    return bool(query.tables_changing) or not endless


def grouped_join(query: Query) -> Query:
    """Return the streaming join whose results a query aggregates.

    Raises SparkJoinError for aggregates that a streaming join does not have.
    """
    assert query.aggregation is not None
    window = query.aggregation.window
    if len(query.streams) == 1:
        raise SparkJoinError(
            "a streaming join has two streams or more: aggregate one stream with Spark,"
            " frame.withWatermark(…).groupBy(window(…)), or in an eddy.Engine"
        )
    if window is not None and window.slack is None:
        raise SparkJoinError(
            "group_window: results with any event time may come, because the stream whose time counts has no Range"
            " window or interval; give it one, or leave time= out"
        )
    if window is None and OP in query.output_schema.names:
        raise SparkJoinError(f"an output column is named {OP!r}, {_OF_A_CHANGELOG}")
    if query.ranking is not None:
        mode_of(query, "changelog" if window is None else "append", False)
    return ungrouped(query)


def ranked_join(query: Query) -> Query:
    """Return the streaming join whose results a query with `top` ranks.

    Raises SparkJoinError for a query whose answer a streaming join does not know.
    """
    if len(query.streams) == 1:
        raise SparkJoinError(
            "a streaming join has two streams or more: rank the rows of one stream with an eddy.Runtime, or with Spark"
            " in foreachBatch"
        )
    if OP in query.output_schema.names:
        raise SparkJoinError(f"an output column is named {OP!r}, {_OF_A_CHANGELOG}")
    below = without_top(by_content(query))
    if query.tables_changing:
        try:
            result_key(below, "top in a streaming join")
        except InputError as problem:
            raise SparkJoinError(f"{problem}: without a key, equal results could not be told apart") from problem
    elif not lasting(query):
        raise SparkJoinError(
            "top: the results of a streaming join come once, and the answer of this query has only those whose rows are"
            " in their windows; make the query with expiry='final', for the first rows of all results so far, or give"
            " it a group_window that by= names"
        )
    return below


def check_changelog(query: Query, output: JoinOutput, change: bool = False) -> None:
    """Raise SparkJoinError for a query that cannot have the changelog that it needs, or for which `output` asks.

    change   whether the query replaces another one
    """
    if query.tables_changing:
        return
    asked = output != "append"
    if asked and (query.aggregation is not None or query.ranking is not None):
        raise SparkJoinError(
            f"output={output!r} is for joins without aggregates and top: whether their rows are final follows"
            " from the query; leave it out"
        )
    if not asked and not ends(query):
        return
    what = "output='changelog'" if asked else "aggregates without group_window, of the results in the windows"
    remedy = "leave it out" if asked else "make the query with expiry='final', for those of all results so far"
    if query.as_of:
        remedy = remedy if asked else "give it a group_window, or leave the windows of its streams out if it has one"
        raise SparkJoinError(
            f"{what}: this is for joins without as-of joins, and rows wait for versions of"
            f" {query.as_of[0].table.name}: on Spark a row is put out when its version is certain; {remedy}"
        )
    counted = [stream.place for stream in query.streams if isinstance(stream.window, Rows)]
    if counted:
        raise SparkJoinError(
            f"{what}: {counted[0]} has a Rows window; results end by event time only, with Range windows; {remedy}"
        )
    if not query.graph.timed:
        raise SparkJoinError(f"{what}: no result ever ends, because no stream has a Range window; {remedy}")
    if change:
        raise SparkJoinError(
            f"change= is for queries whose results are not taken back, and {what} takes back those of the old query."
            " Start the changed query with a checkpoint of its own"
        )
