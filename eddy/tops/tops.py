"""The operator after a join, its partners or its groups: its input is their rows, its output the first of each group.

    changelog   output="changelog" or "upsert": the difference of the answers before and after a push
    end         output="append" of a bounded runtime: the answer, when the input has ended
    windows     output="append" of groups in windows of event time that `by` names: all rows of a window come in one
                push, so the first ones among the rows of a push are final, and no row is kept

The operator reads rows only, and is independent of plans and strategies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.query.query import Query
from eddy.results.results import NUMBER, OP, SIGNS, equal_values
from eddy.storage.arrow_bytes import write_rows
from eddy.tops.forest import NONE, Answers, Forest, Taken
from eddy.tops.modes import lasting, mode_of, parted
from eddy.tops.ranked import RankedRows
from eddy.tops.stored_rows import StoredRows
from stairs.descriptors import DELETED, INSERTED, UPDATED_FROM, UPDATED_TO
from stairs.errors import InputError, SnapshotError
from stairs.memory.allowance import Allowance
from stairs.plain_types import Column, declared, taken
from stairs.storage.parts import MOST, Parts, Plain

Int64s = npt.NDArray[np.int64]


class TopsCommit(NamedTuple):
    """The outcome of a push in the operator, None = it keeps nothing of it."""

    taken: Taken | None


class Tops:
    """The first rows of each group, of one runtime.

    output     the output mode, of `eddy.results.modes`
    bounded    whether the input ends: `Runtime.finish` will be called
    rows       the schema of the rows that come
    signed     whether its first column is `op`, of a changelog
    allowance  is asked before the state grows

    Raises InputError for output that a query cannot have.
    """

    def __init__(
        self, query: Query, output: str, bounded: bool, rows: pa.Schema, signed: bool, allowance: Allowance
    ) -> None:
        ranking = query.ranking
        assert ranking is not None
        rows = rows.remove(0) if signed else rows
        self.ranking, self.upsert, self._rows, self._signed = ranking, output == "upsert", rows, signed
        self.mode = mode_of(query, output, bounded)
        self._ties = [name for name in rows.names if name.startswith(NUMBER)]
        self._ranked = RankedRows(ranking, rows, self._ties)
        self._retracts = self.mode == "changelog" and not lasting(query)
        self._allowance = allowance
        self.forest = self._empty_forest()
        shown = query.output_schema.names
        if ranking.top.rank is not None:
            shown = shown[:-1]
        self._shown = [rows.names.index(name) for name in shown]
        schema = query.output_schema
        if self.mode == "changelog":
            if OP in schema.names:
                raise InputError(
                    f"an output column is named {OP!r}, which is the column of a changelog that has +I or -D; give it"
                    " another name"
                )
            schema = schema.insert(0, pa.field(OP, pa.string(), False))
        self.schema = schema
        """The schema of the tables."""

    def _empty_forest(self) -> Forest:
        return Forest(self._ranked, self._rows, self.ranking.n, self._retracts, self._allowance)

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self.forest.nbytes

    # A push

    def begin(self, loading: bool = False) -> None:
        """Note the state. This method has nothing to do, because the trees note each change themselves."""

    def follow(self, table: pa.Table, finished: bool) -> tuple[pa.Table, TopsCommit]:
        """Process the rows of a push; return the rows of the answer, or their changes, and what `settle` needs.

        table      rows with the column `op` if they are taken back
        finished   whether the input has ended

        Cost: O(rows log rows) with the rows of the largest group, and the first n rows of each group that changes.
        """
        signs = np.ones(len(table), np.int64)
        if self._signed:
            table, signs = parted(table)
        forest = self.forest
        if self.mode == "windows":
            forest = self._empty_forest()
        changes, done = NONE.reshape(0, 3), None
        if len(table):
            done = forest.take(table, signs)
            if self.mode == "changelog":
                changes = forest.difference(done.before, done.after, self.ranking.keyed)
        if self.mode == "windows" or (self.mode == "end" and finished):
            answers, nothing = forest.all_answers(), Answers(NONE, NONE)
            nothing = Answers(NONE, np.zeros(len(answers.ends), np.int64))
            changes = forest.difference(nothing, answers, paired=True)
        rows = forest.rows if done is None else done.rows
        return self._table(forest, rows, changes), TopsCommit(None if self.mode == "windows" else done)

    def _table(self, forest: Forest, stored: StoredRows, changes: Int64s) -> pa.Table:
        """Return the table of a difference: rows that ended, then pairs, then rows that began."""
        if not len(changes):
            # Arrow cannot make empty arrays of every type.
            return pa.Table.from_batches([], schema=self.schema)
        old, new, places = changes.T
        ended, begun = np.flatnonzero(new < 0), np.flatnonzero(old < 0)
        pairs = np.flatnonzero((old >= 0) & (new >= 0))
        nodes = np.concatenate([old[ended], np.column_stack([old[pairs], new[pairs]]).reshape(-1), new[begun]])
        places = places[np.concatenate([ended, np.repeat(pairs, 2), begun])]
        signs = np.full(len(nodes), INSERTED, np.uint8)
        signs[: len(ended)] = DELETED
        first = len(ended)
        last = first + 2 * len(pairs)
        signs[first:last:2], signs[first + 1 : last : 2] = UPDATED_FROM, UPDATED_TO
        columns = stored.columns(forest.row_numbers(nodes), self._shown)
        kept = self._differing(columns, signs)
        if not kept.all():
            numbers = np.flatnonzero(kept)
            columns = [taken(column, numbers) for column in columns]
            signs, places = signs[numbers], places[numbers]
        arrays: list[Column] = [
            declared(column, self._rows.field(k).type) for column, k in zip(columns, self._shown, strict=True)
        ]
        if self.ranking.top.rank is not None:
            arrays.append(pa.array(places + 1))
        if self.mode == "changelog":
            arrays.insert(0, SIGNS.take(pa.array(signs)))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _differing(self, columns: list[pa.Array], signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Return which rows are put out: no pairs of equal rows, and no rows before a change if keys replace them."""
        kept = np.ones(len(signs), np.bool_)
        before = np.flatnonzero(signs == UPDATED_FROM)
        same = np.ones(len(before), np.bool_)
        for column in columns if len(before) else ():
            same[same] = equal_values(taken(column, before[same]), taken(column, before[same] + 1))
        kept[before[same]] = kept[before[same] + 1] = False
        if self.upsert:
            kept[before] = False
        return kept

    def settle(self, commit: TopsCommit, again: bool = False) -> None:
        """Commit a push. The call may be repeated."""
        if commit.taken is not None:
            self.forest.settle(commit.taken)

    def roll_back(self) -> None:
        """Take the open push back; do nothing if no push is open. The call may be repeated."""
        self.forest.roll_back()

    # Their form elsewhere

    def to_parts(self) -> Plain:
        """Return all from which `load_parts` resumes: the rows that trees keep. Raises StateError. O(rows log rows)."""
        forest = self.forest
        rows = forest.sorted_rows()
        return {"count": len(rows), "rows": write_rows(rows.schema, [batch.columns for batch in rows.batches], "top")}

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Fill the new operator. It cannot be used if the parts do not fit. O(rows log rows)."""
        count = parts.integer("count")
        batches = parts.batches("rows", self.forest.rows.schema, MOST)
        parts.require(sum(map(len, batches)) == count, f"top: {count} rows were written, and others are there")
        for batch in batches:
            known = all(not batch[field.name].null_count for field in self._rows if not field.nullable)
            parts.require(known, "top: a column that has no nulls has one")
            if len(batch):
                table = pa.Table.from_batches([batch])
                try:
                    self.forest.settle(self.forest.take(table, np.ones(len(table), np.int64)))
                except SnapshotError as problem:
                    raise parts.wrong("top: a row is there twice") from problem
        parts.require(len(self.forest) == count, "top: a group has more rows than it keeps")

    def check(self) -> None:
        """Raise StateError unless all invariants of the state hold. O(state), for tests."""
        self.forest.check()

    def dismantle(self) -> None:
        """Release all memory immediately. The operator cannot be used afterwards."""
        vars(self).clear()
