"""The groups of a streaming join after a batch, in a file of the checkpoint and its copy.

    groups/0000000007        after batch 7: groups, and the file of rows that the batch returned
    groups/0000000007-copy

The file of a batch is written before its rows are published, so a repeated batch returns the same rows. The file names
its batch and the results of the join that were aggregated, so a file of another batch or attempt is recognised.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.query.query import Query
from eddy.query.text import difference, query_text
from eddy.spark.errors import StreamingStateError
from eddy.spark.groups.operators import ResultOperator
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.spark.streaming.state.copies import read_twice, write_twice
from eddy.spark.streaming.state.late_files import FAILED_GROUPS, named_in_footer
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.storage.durable import make_directories, write_whole
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, integer, list_of, mapping, optional, text
from stairs.storage.parts import Parts

GROUPS = FileKind("file of groups", b"eddygrps", 4, StreamingStateError, "a streaming join", "read")
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


@dataclass(frozen=True)
class SavedGroups:
    """The contents of a file.

    results    the files of results of the join that the batch added
    files      the files of rows that the batch returned
    watermark  the watermark after the batch
    parts      those of the operator
    """

    results: tuple[str, ...]
    files: tuple[str, ...]
    watermark: int | None
    parts: Parts


class GroupsFiles:
    """The files of the groups of one query, in a directory `place` of its checkpoint; `name` is its name in a hub."""

    def __init__(self, locations: Locations, query: Query, place: str, name: str | None) -> None:
        self._name = name
        self._root, self._query, self._keep = locations.root / place, query, locations.keep
        self.recoveries: list[str] = []
        """Texts on files that were restored from their copies."""

    @property
    def begun(self) -> bool:
        """Whether the checkpoint belongs to a join with aggregates."""
        return self._root.exists()

    def path(self, batch: int) -> Path:
        """Return the path of the file after a batch."""
        return self._root / batch_name(batch)

    def begin(self) -> None:
        """Create the directory."""
        make_directories(self._root)

    def batches(self) -> list[int]:
        """Return the batches that have a file, ascending."""
        names = {path.name.removesuffix(_COPY) for path in self._root.iterdir()} if self.begun else set()
        return sorted(batch for name in names if (batch := batch_named(name)) is not None)

    def write(
        self, batch: int, groups: ResultOperator, watermark: int | None, results: Sequence[str], files: Sequence[str]
    ) -> None:
        """Write the groups after a batch."""
        taken = {"results": results, "files": files}
        header = {"batch": batch, "query": query_text(self._query), "watermark": watermark, **taken}
        whole = GROUPS.pack({"header": header, "groups": groups.to_parts()})
        path = self.path(batch)
        write_twice(path, path.with_name(path.name + _COPY), whole)
        self._keep(path)

    def write_failed(self, batch: int, failed: Sequence[pa.RecordBatch]) -> None:
        """Write the groups that fail in a batch: rows of `FAILED`. Another attempt writes the same rows again."""
        path = self._root / f"{batch_name(batch)}{FAILED_GROUPS}"
        rows = FailedRows()
        rows.add(failed, self._name)
        table = rows.table()
        out = io.BytesIO()
        pq.write_table(table.cast(named_in_footer(table.schema, path.name)), out)
        write_whole(path, out.getvalue())
        self._keep(path)

    def read(self, batch: int) -> SavedGroups:
        """Return the contents of the file after a batch.

        Raises StreamingStateError if the file is missing or damaged, or belongs to another batch or query.
        """
        path = self.path(batch)
        reading = read_twice(path, path.with_name(path.name + _COPY), partial(self._parsed, batch))
        if reading.value is None:
            damages = "; ".join(reading.damages)
            state = f"is damaged, and so is its copy: {damages}" if damages else "is missing, and so is its copy"
            raise StreamingStateError(
                f"{path}, the groups after batch {batch}, {state}; restore one of them from a backup, or start with a"
                " new checkpoint"
            )
        self.recoveries += reading.repairs
        return reading.value

    def fill(self, saved: SavedGroups, groups: ResultOperator) -> None:
        """Fill new groups with the contents of a file."""
        groups.load_parts(saved.parts, saved.watermark)
        saved.parts.check_read()

    def clean(self, before_batch: int) -> None:
        """Remove the files of batches before this one, except the newest of them, from which the next batch follows."""
        for batch in [number for number in self.batches() if number < before_batch][:-1]:
            path = self.path(batch)
            for file in (path, path.with_name(path.name + _COPY)):
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()

    def _parsed(self, batch: int, data: bytes) -> SavedGroups:
        parts = GROUPS.unpack(data)
        header = parts.value("header", _FORM)
        if header["batch"] != batch:
            raise StreamingStateError(f"it has the groups after batch {header['batch']}, not after {batch}")
        differs = difference(header["query"], self._query, where="the checkpoint", results=False)
        if differs is not None:
            raise StreamingStateError(f"these are groups of another query: {differs}; start with a new checkpoint")
        results, files = tuple(header["results"]), tuple(header["files"])
        return SavedGroups(results, files, header["watermark"], parts.part("groups"))
