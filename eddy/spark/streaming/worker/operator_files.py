"""The states of the parts of an operator, in files of the log.

    000000000007-groups-…        of batch 7 and one task: per part its groups, or the results that it took
    000000000007-groups-…-copy   the same; without an object store only

Groups that are more than the results of a batch are not written after each one: the file has the results instead, or
the groups of these results alone, until those since the last groups take as many bytes as these groups did. So what is
written is proportional to the results, and a start reads at most twice the groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from eddy.query.query import Query
from eddy.spark.errors import StreamingStateError
from eddy.spark.groups.operators import ResultOperator, operator_of
from eddy.spark.groups.partial import PartialGroups
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.copies import COPY, read_twice, write_twice
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import PartState
from eddy.storage.arrow_bytes import write_rows
from eddy.storage.durable import write_whole
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, integer, optional, text
from stairs.storage.parts import MOST, Parts, Plain

GROUPS = FileKind("file of groups", b"eddygrps", 6, StreamingStateError, "a streaming join", "read")
_TICK = optional(integer(-(1 << 63), (1 << 63) - 1))
_FORM = fields({"batch": integer(0, (1 << 63) - 1), "query": text, "watermark": _TICK})
MOST_LOGGED = 50
"""Batches after the last groups that are written, at most: a start aggregates their results again."""


@dataclass
class HeldPart:
    """A part of an operator in the memory of a worker.

    token  names the state; "" for one that no manifest has named yet
    """

    operator: ResultOperator
    state: PartState = field(default_factory=PartState)
    token: str = ""


class QueryAbove:
    """A query with aggregates or `top` above a join, in one worker.

    empty  an operator that takes no results: it tells what those of the parts take and give
    """

    def __init__(self, query: Query) -> None:
        self.query, self.empty = query, operator_of(query)

    @property
    def rows(self) -> pa.Schema:
        """The columns of the results that operators of the query take."""
        return self.empty.rows


class OperatorFile:
    """The file of one task and batch with the states of parts of one operator.

    query      name of the query, "" in a join of one query
    watermark  after the batch
    """

    def __init__(self, locations: Locations, batch: int, query: str, watermark: int | None) -> None:
        self._locations = locations
        self._header = {"batch": batch, "query": query, "watermark": watermark}
        self._name = f"{batch_name(batch)}-groups-{uuid.uuid4().hex}"
        self._parts: dict[str, Plain] = {}

    def add(
        self, number: int, before: PartState, operator: ResultOperator, taken: pa.Table | PartialGroups
    ) -> PartState:
        """Add the state of a part after the batch; return it.

        before  the state before the batch
        taken   the results that the part took, or their groups
        """
        nbytes = taken.nbytes if isinstance(taken, pa.Table) else len(GROUPS.pack(taken.to_parts()))
        files, whole, since = before.files, before.whole, before.since + nbytes
        if files and since <= whole and len(files) <= MOST_LOGGED:
            self._parts[str(number)] = _logged(operator, taken)
            return PartState((*files, self._name), operator.due, whole, since)
        parts = {"groups": operator.to_parts()}
        self._parts[str(number)] = parts
        return PartState((self._name,), operator.due, len(GROUPS.pack(parts)))

    def write(self) -> None:
        """Make the file durable; without parts no file is made."""
        if not self._parts:
            return
        whole, path = GROUPS.pack({"header": self._header, "parts": self._parts}), self._locations.log / self._name
        if self._locations.store is None:
            write_twice(path, _copy_of(path), whole)
        else:
            write_whole(path, whole)
            self._locations.keep(path)


class OperatorFiles:
    """The files that the states of one operator name, each read once.

    repairs  texts on files that were restored from their copies
    """

    def __init__(self, locations: Locations, query: str) -> None:
        self._locations, self._query = locations, query
        self._read: dict[str, tuple[int, int | None, Parts]] = {}
        self.repairs: list[str] = []

    def fill(self, number: int, state: PartState, operator: ResultOperator) -> None:
        """Fill a new operator with the state of a part.

        Raises StreamingStateError if a file is missing or damaged, or has other contents.
        """
        for k, name in enumerate(state.files):
            batch, watermark, parts = self._file(name)
            try:
                part = parts.part(str(number))
                if not k:
                    operator.load_parts(part.part("groups"), watermark)
                elif part.flag("merged"):
                    taken = operator.partial()
                    part.require(taken is not None, "groups of results that are taken back")
                    assert taken is not None
                    taken.merge(part.part("groups"))
                    operator.follow_groups(taken, watermark)
                else:
                    rows = pa.Table.from_batches(part.batches("rows", operator.rows, MOST), operator.rows)
                    operator.follow(rows, watermark, batch)
                part.check_read()
            except StreamingStateError as problem:
                raise StreamingStateError(f"{self._locations.log / name}, part {number}: {problem}") from problem

    def _file(self, name: str) -> tuple[int, int | None, Parts]:
        if name not in self._read:
            path = self._locations.log / name
            self._read[name] = self._parsed(path)
        return self._read[name]

    def _parsed(self, path: Path) -> tuple[int, int | None, Parts]:
        parse = partial(_parsed, self._query, path.name)
        remedy = "restore it from a backup, or start with a new checkpoint"
        if self._locations.store is not None:
            self._locations.fetch(path)
            try:
                return parse(path.read_bytes())
            except (OSError, StreamingStateError) as problem:
                raise StreamingStateError(f"{path}, groups of the join: {problem}; {remedy}") from problem
        reading = read_twice(path, _copy_of(path), parse)
        if reading.value is None:
            damages = "; ".join(reading.damages)
            state = f"is damaged, and so is its copy: {damages}" if damages else "is missing, and so is its copy"
            raise StreamingStateError(f"{path}, groups of the join, {state}; {remedy}")
        self.repairs += reading.repairs
        return reading.value


def _parsed(query: str, name: str, data: bytes) -> tuple[int, int | None, Parts]:
    parts = GROUPS.unpack(data)
    header: Mapping[str, int | str | None] = parts.value("header", _FORM)
    batch, watermark = header["batch"], header["watermark"]
    assert isinstance(batch, int)
    assert watermark is None or isinstance(watermark, int)
    if header["query"] != query or not name.startswith(batch_name(batch)):
        raise StreamingStateError(f"it has groups of query {header['query']!r} after batch {batch}")
    return batch, watermark, parts.part("parts")


def _logged(operator: ResultOperator, taken: pa.Table | PartialGroups) -> Plain:
    """Return what a part took in a batch, as plain values."""
    if isinstance(taken, PartialGroups):
        return {"merged": True, "groups": taken.to_parts()}
    batches = (part.columns for part in taken.to_batches())
    return {"merged": False, "rows": write_rows(operator.rows, batches, "results", StreamingStateError)}


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + COPY)
