"""Splits the rows of one stream into pieces, one cell of the grid each: the map side of both kinds of join.

A splitter gathers a *run* of about a million rows, sorts it by arrival order if it is not sorted, deals it to the cells
and cuts each cell's part into *pieces* of up to 65 536 tuples or 8 MB. So each piece is sorted, and the pieces that one
run gives a cell follow one another in time. The reduce side (`merge.py`) merges runs like an external sort, and holds
about one piece per run and stream.

Invariants: a tuple is in exactly one piece, which represents all cells to which the tuple is copied. A tuple with a
null key that no `ROWS` window counts is in no piece. The division of the input into batches affects only the bounds of
pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.changes import UPSERTS
from eddy.ingest.keys import key_hash
from eddy.results.failed_rows import failed_batch
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.kernels import find_cells, group_rows, keep_branch, refine_cells
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.streams.keyed import OP_COLUMN
from stairs.graph import FOREVER
from stairs.plain_types import TOO_LONG, taken, to_plain

PIECE_ROWS = 65_536
PIECE_BYTES = 8 << 20
RUN_ROWS = 1 << 20
RUN_BYTES = 64 << 20


@dataclass(frozen=True)
class GridPiece:
    """Tuples of one run that go to one cell of the grid, and to the cells at the stream's other offsets from it.

    cell         cell of the grid; a key group if the splitter has applied splits
    first, last  positions in arrival order of the first and last tuple; 0 without an order, -FOREVER before all others
    """

    cell: int
    tuples: pa.RecordBatch
    first: int
    last: int


def conform(batch: pa.RecordBatch, schema: pa.Schema, stream: str) -> pa.RecordBatch:
    """Return the columns of `schema`, by name and with its types. Casts only without loss, else SparkJoinError."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                column = to_plain(column)
                column = column if column.type == field.type else column.cast(field.type)
            except TOO_LONG as problem:
                raise SparkJoinError(
                    f"stream {stream!r}, column {field.name!r}: a value of type {column.type} does not fit"
                    f" {field.type}, the type in the query ({problem}); declare a wider type or convert the column"
                    " before the join"
                ) from problem
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Splitter:
    """Splits the rows of one stream. Call `add` for each batch and `finish` at the end; both return pieces.

    tree    splits of cells; None = no splits. Splits are applied to streams without copies; other streams have one
            piece for a cell and all its groups
    failed  takes the rows for which the filter has no value (`eddy.results.failed_rows.FAILED`), which are left out;
            None = such a row is an error
    """

    def __init__(
        self, job: Job, stream: int, tree: SplitTree | None = None, failed: list[pa.RecordBatch] | None = None
    ) -> None:
        self._job = job
        self._stream = stream
        self._name = job.query.streams[stream].name
        self._input = job.inputs[stream]
        self._kept = job.logged[stream].names
        conditions = job.filters[stream]
        place = f"stream {self._name}: its filter"
        self._filter = AdaptiveFilter(conditions, place=place) if conditions else None
        self._failed = failed
        shares = job.shares
        self._tree = tree if tree is not None and tree.splits and tree.refines(shares, stream) else None
        self.splits = 0 if self._tree is None else len(self._tree.splits)
        """Number of splits that are applied."""
        along = set() if self._tree is None else self._tree.along
        self._routed = tuple(sorted({*shares.routed(stream), *along}))
        self._shares = np.array([shares.counts[c] for c in self._routed], np.int64)
        self._strides = np.array([shares.strides[c] for c in self._routed], np.int64)
        self._tables = None if self._tree is None else self._tree.tables(self._routed)
        self.offsets = [int(offset) for offset in shares.offsets(stream)]
        """Per copy of a tuple, its partition minus the cell of its piece."""
        # A row with a null key joins no row, but a ROWS window counts it.
        self._drops_null = not job.keeps_null_keys
        self._classes = shares.has[stream] if self._drops_null else self._routed
        self.span: tuple[int, int] | None = None
        """Least and greatest position in arrival order so far, null keys included; None without rows or order."""
        self._run: list[pa.RecordBatch] = []
        self._run_rows = 0
        self._run_bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[GridPiece]:
        """Take rows, whose columns are selected by name; return pieces once a run is full, else an empty list."""
        batch = conform(batch, self._input, self._name)
        if batch.num_rows:
            self._run.append(batch)
            self._run_rows += batch.num_rows
            self._run_bytes += batch.nbytes
        if self._run_rows < RUN_ROWS and self._run_bytes < RUN_BYTES:
            return []
        return self.finish()

    def finish(self) -> list[GridPiece]:
        """Return the pieces of the rows that wait for a full run."""
        if not self._run:
            return []
        run = pa.concat_batches(self._run)
        self._run, self._run_rows, self._run_bytes = [], 0, 0
        if self._filter is not None:
            run = self._filter.filter(run) if self._failed is None else self._filtered(self._filter, run, self._failed)
            if not run.num_rows:
                return []
        if OP_COLUMN in self._kept and OP_COLUMN not in run.schema.names:
            # The rows of a table without operations are upserts.
            run = run.append_column(OP_COLUMN, pa.repeat(UPSERTS[0], run.num_rows))
        return self._cut(run.select(self._kept))

    def _filtered(self, accepts: AdaptiveFilter, run: pa.RecordBatch, failed: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows that the filter accepts, and add failed rows to `failed`."""
        rows, failing = accepts.divided(run)
        named = {f"{self._name}.{column}": run.column(column) for column in run.schema.names}
        failed += failed_batch(accepts.faults(failing, "filter"), named)
        return run if len(rows) == len(run) else run.take(pa.array(rows))

    def _cut(self, run: pa.RecordBatch) -> list[GridPiece]:
        positions = self._job.positions(run, self._stream)
        if positions is not None:
            low, high = int(positions.min()), int(positions.max())
            self.span = (low, high) if self.span is None else (min(low, self.span[0]), max(high, self.span[1]))
        order = np.arange(run.num_rows, dtype=np.int64)
        # Read-only memory has another type, for which Numba would compile the kernel again.
        if positions is not None and (positions[1:] < positions[:-1]).any():
            order = np.argsort(positions, kind="stable").astype(np.int64, copy=False)
        cells, starts = self._cells(run)
        rows = np.empty(starts[-1], np.int64)
        group_rows(cells, order, starts[:-1].copy(), rows)
        dealt = run.take(pa.array(rows))
        # Wide tuples make shorter pieces: the reduce side holds a piece per run, and a binary value is limited to 2 GB.
        step = max(1, min(PIECE_ROWS, PIECE_BYTES * dealt.num_rows // max(1, dealt.nbytes)))
        pieces: list[GridPiece] = []
        none = (-FOREVER, -FOREVER) if self._name in self._job.first else (0, 0)
        for cell in np.flatnonzero(np.diff(starts)):
            begin, end = int(starts[cell]), int(starts[cell + 1])
            for low in range(begin, end, step):
                high = min(low + step, end)
                first, last = none if positions is None else positions[rows[[low, high - 1]]].tolist()
                pieces.append(GridPiece(int(cell), dealt.slice(low, high - low), first, last))
        return pieces

    def _cells(self, run: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the cell of each row, -1 without a cell, and the start of each cell among the rows sorted by cell."""
        hashes = np.empty((len(self._routed), run.num_rows), np.uint64)
        keep = np.ones(run.num_rows, np.bool_)
        for c in self._classes:
            class_hashes, valid = key_hash(self._job.query, c, self._name, run)
            if c in self._routed:
                hashes[self._routed.index(c)] = class_hashes
            if self._drops_null:
                keep &= valid
        cells = np.empty(run.num_rows, np.int32)
        starts = np.zeros(self._job.shares.partitions + 1, np.int64)
        find_cells(hashes, keep, self._shares, self._strides, cells, starts)
        if self._tree is not None and self._tables is not None:
            starts = np.zeros(self._tree.groups + 1, np.int64)
            refine_cells(hashes, self._shares, *self._tables, cells, starts)
        return cells, starts


def dealt(hashes: npt.NDArray[np.uint64], rows: pa.RecordBatch, places: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (place, rows) in pieces: the rows dealt to a number of places by their hashes uint64[rows]."""
    cells, starts = np.empty(len(rows), np.int32), np.zeros(places + 1, np.int64)
    strides, n = np.ones(1, np.int64), np.array([places])
    find_cells(hashes[None, :], np.ones(len(rows), np.bool_), n, strides, cells, starts)
    order = np.empty(len(rows), np.int64)
    group_rows(cells, np.arange(len(rows)), starts[:-1].copy(), order)
    sorted_rows = taken(rows, order)
    step = max(1, min(PIECE_ROWS, PIECE_BYTES * len(rows) // max(1, sorted_rows.nbytes)))
    for cell in np.flatnonzero(np.diff(starts)).tolist():
        for low in range(int(starts[cell]), int(starts[cell + 1]), step):
            yield cell, sorted_rows.slice(low, min(step, int(starts[cell + 1]) - low))


def warmup() -> None:
    """Compile or load the kernels of this module."""
    ones, cells, starts = np.ones(1, np.int64), np.empty(2, np.int32), np.zeros(2, np.int64)
    find_cells(np.zeros((1, 2), np.uint64), np.ones(2, np.bool_), ones, ones, cells, starts)
    group_rows(cells, np.arange(2, dtype=np.int64), starts[:-1].copy(), np.empty(2, np.int64))
    tree = SplitTree(1, 1).split(0, 0)
    refine_cells(np.zeros((1, 2), np.uint64), ones, *tree.tables([0]), cells, np.zeros(3, np.int64))
    keep_branch(np.zeros(2, np.uint64), 1, 31, 0, np.ones(2, np.bool_))
