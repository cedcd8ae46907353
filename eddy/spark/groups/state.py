"""The groups of a streaming join after a batch, in a file of the checkpoint and its copy.

    groups/000000000007             after batch 7: groups, and the file of rows that the batch returned
    groups/000000000007-copy
    groups/000000000008-rows        after batch 8: the results that it added, and the file of rows that it returned
    groups/000000000008-rows-copy

The file of a batch is written before its rows are published, so a repeated batch returns the same rows. The file names
its batch and the results of the join that were aggregated, so a file of another batch or attempt is recognised.

Groups that are more than the results of a batch are not written after each one: the file has the results instead, until
those since the last groups take as many bytes as these groups did. So what is written is proportional to the results,
and a restart reads at most twice the groups.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.query.query import Query
from eddy.query.text import difference, query_text
from eddy.spark.errors import StreamingStateError
from eddy.spark.groups.batch import as_rows
from eddy.spark.groups.operators import ResultOperator
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.copies import read_twice, write_twice
from eddy.spark.streaming.state.group_names import ROWS, still_needed
from eddy.spark.streaming.state.late_files import FAILED_GROUPS, named_in_footer
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.storage.arrow_bytes import write_rows
from eddy.storage.durable import make_directories, write_whole
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, integer, list_of, mapping, optional, text
from stairs.storage.parts import MOST, Parts, Plain

GROUPS = FileKind("file of groups", b"eddygrps", 5, StreamingStateError, "a streaming join", "read")
_TICK = optional(integer(-(1 << 63), (1 << 63) - 1))
_FORM = fields(
    {
        "batch": integer(0, (1 << 63) - 1),
        "query": mapping,
        "watermark": _TICK,
        "results": list_of(text),
        "files": list_of(text),
    }
)
_COPY = "-copy"
MOST_LOGGED = 50
"""Batches after the last groups that are written, at most: a restart aggregates their results again."""


@dataclass(frozen=True)
class TakenBatch:
    """A batch that the groups have taken.

    results    the files of results of the join
    files      the files of rows that the batch returned
    watermark  the watermark after the batch
    """

    results: tuple[str, ...]
    files: tuple[str, ...]
    watermark: int | None


@dataclass(frozen=True)
class SavedGroups:
    """The contents of a file.

    parts  the whole file, with the groups or the results
    whole  whether it has the groups
    """

    taken: TakenBatch
    parts: Parts
    whole: bool


@dataclass(frozen=True)
class _Log:
    """The files from which the groups after a batch follow.

    batch    this batch
    logged   the batches since the last groups that were written
    groups   bytes of these groups
    rows     bytes of the results since
    """

    batch: int
    logged: int
    groups: int
    rows: int


class GroupsFiles:
    """The files of the groups of one query, in a directory `place` of its checkpoint; `name` is its name in a hub."""

    def __init__(self, locations: Locations, query: Query, place: str, name: str | None) -> None:
        self._name = name
        self._root, self._query, self._locations = locations.root / place, query, locations
        self._log: _Log | None = None
        self.recoveries: list[str] = []
        """Texts on files that were restored from their copies."""

    @property
    def begun(self) -> bool:
        """Whether the checkpoint belongs to a join with aggregates."""
        return self._root.exists()

    def path(self, batch: int) -> Path:
        """Return the path of the file after a batch; the file may be missing."""
        whole, rows = self._paths(batch)
        return rows if _is_there(rows) and not _is_there(whole) else whole

    def _paths(self, batch: int) -> tuple[Path, Path]:
        """Return the paths of the two files that there may be after a batch: with the groups, and with results."""
        return self._root / batch_name(batch), self._root / f"{batch_name(batch)}{ROWS}"

    def begin(self) -> None:
        """Create the directory."""
        make_directories(self._root)

    def has(self, batch: int) -> bool:
        """Return whether a batch has a file, or its copy."""
        return _is_there(self.path(batch))

    def write(self, batch: int, groups: ResultOperator, rows: pa.Table | None, taken: TakenBatch) -> None:
        """Write the groups after a batch, or the rows of the results that it added."""
        parts: Plain = {"header": {"batch": batch, "query": query_text(self._query), **asdict(taken)}}
        results = as_rows(groups.rows, rows)
        log = self._log
        if log is not None and log.batch == batch - 1:
            log = replace(log, batch=batch, logged=log.logged + 1, rows=log.rows + results.nbytes)
        if log is not None and (log.batch != batch or log.logged > MOST_LOGGED or log.rows > log.groups):
            log = None
        self._log = None
        path, other = self._paths(batch)
        if log is None:
            parts["groups"] = groups.to_parts()
        else:
            path, other = other, path
            batches = (part.columns for part in results.to_batches())
            parts["rows"] = write_rows(groups.rows, batches, "results", StreamingStateError)
        whole = GROUPS.pack(parts)
        if _is_there(other):  # of an attempt with other results
            self._remove(other.name)
            self._locations.forget(other)
        write_twice(path, _copy_of(path), whole)
        self._locations.keep(path)
        self._log = _Log(batch, 0, len(whole), 0) if log is None else log

    def write_failed(self, batch: int, failed: Sequence[pa.RecordBatch]) -> None:
        """Write the groups that fail in a batch: rows of `FAILED`. Another attempt writes the same rows again."""
        path = self._root / f"{batch_name(batch)}{FAILED_GROUPS}"
        rows = FailedRows()
        rows.add(failed, self._name)
        table = rows.table()
        out = io.BytesIO()
        pq.write_table(table.cast(named_in_footer(table.schema, path.name)), out)
        write_whole(path, out.getvalue())
        self._locations.keep(path)

    def read(self, batch: int) -> SavedGroups:
        """Return the contents of the file after a batch.

        Raises StreamingStateError if the file is missing or damaged, or belongs to another batch or query.
        """
        path = self.path(batch)
        reading = read_twice(path, _copy_of(path), partial(self._parsed, batch, not path.name.endswith(ROWS)))
        if reading.value is None:
            damages = "; ".join(reading.damages)
            state = f"is damaged, and so is its copy: {damages}" if damages else "is missing, and so is its copy"
            raise StreamingStateError(
                f"{path}, the groups after batch {batch}, {state}; restore one of them from a backup, or start with a"
                " new checkpoint"
            )
        self.recoveries += reading.repairs
        return reading.value

    def check(self, batch: int) -> None:
        """Raise StreamingStateError unless all files are whole from which the groups after a batch follow."""
        self._files_of(batch)

    def fill(self, batch: int, groups: ResultOperator) -> None:
        """Fill new groups with those after a batch. Raises what `read` raises."""
        (first, saved), *others = self._files_of(batch)
        groups.load_parts(saved.parts.part("groups"), saved.taken.watermark)
        saved.parts.check_read()
        logged = 0
        for number, later in others:
            rows = pa.Table.from_batches(later.parts.batches("rows", groups.rows, MOST), groups.rows)
            later.parts.check_read()
            groups.follow(rows, later.taken.watermark, number)
            logged += rows.nbytes
        self._log = _Log(batch, batch - first, self.path(first).stat().st_size, logged)

    def _files_of(self, batch: int) -> list[tuple[int, SavedGroups]]:
        """Return the files from which the groups after a batch follow, by their batches, the groups first."""
        files = [(batch, self.read(batch))]
        while not files[0][1].whole:
            batch -= 1
            files.insert(0, (batch, self.read(batch)))
        return files

    def clean(self, before_batch: int) -> None:
        """Remove the files of batches before this one from which the next batch does not follow."""
        names = {path.name.removesuffix(_COPY) for path in self._root.iterdir()} if self.begun else set()
        for name in still_needed(names, 1, before_batch)[1]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a file and its copy, if they are there."""
        path = self._root / name
        for file in (path, _copy_of(path)):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()

    def _parsed(self, batch: int, whole: bool, data: bytes) -> SavedGroups:
        parts = GROUPS.unpack(data)
        header = parts.value("header", _FORM)
        if header["batch"] != batch:
            raise StreamingStateError(f"it has the groups after batch {header['batch']}, not after {batch}")
        # Rows of a changelog that have been given are taken back as they were given.
        changelog = self._query.aggregation is not None and self._query.aggregation.window is None
        differs = difference(header["query"], self._query, where="the checkpoint", results=changelog)
        if differs is not None:
            raise StreamingStateError(f"these are groups of another query: {differs}; start with a new checkpoint")
        taken = TakenBatch(tuple(header["results"]), tuple(header["files"]), header["watermark"])
        return SavedGroups(taken, parts, whole)


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + _COPY)


def _is_there(path: Path) -> bool:
    return path.exists() or _copy_of(path).exists()
