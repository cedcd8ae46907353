"""Manifests: the whole state of a job after a batch, as the names of the files that contain the state.

A manifest is complete: a job can resume from the newest manifest and the files that it names.

The bytes are those of `eddy/storage/file_kind.py` with another magic. The parts are

    header     batch, watermarks, partition map, splits of key groups, groups in fragments, extra; results and late
               files as lists; per key group version, token, plan, due and its chain as [batch, late marks or null,
               number of segments]; per operator above a join its name, token, query, files, and per part the numbers
               of its files, due, and bytes
    segments   the segments of all links, in order of key group and chain: the names of their files, a row of numbers
               for each field, and the digests

Segments are arrays because there are thousands of them; a chain has few links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.fragments import Dealt
from eddy.spark.partitioning.split_tree import GroupSplit
from eddy.spark.streaming.state.segments import DIGEST_BYTES, Segment
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, file_name, integer, list_of, mapping, optional, row_of, text
from stairs.storage.parts import Parts, Plain

VERSION = 14
KIND = FileKind("manifest", b"eddymani", VERSION, StreamingStateError, "Manifest.to_bytes()", "go on from")

_NUMBERS = ("offset", "length", "group", "stream", "rows", "splits", "first", "last")
_COUNT = integer(0, (1 << 63) - 1)
_TICK = integer(-(1 << 63), (1 << 63) - 1)
_OUTPUTS = list_of(row_of(file_name, _COUNT, _COUNT, optional(_COUNT)))
_HEADER = fields(
    {
        "batch": _COUNT,
        "watermarks": mapping,
        "partition_map": list_of(_COUNT),
        "splits": list_of(row_of(_COUNT, _COUNT)),
        "dealt": list_of(row_of(_COUNT, _COUNT, _COUNT)),
        "groups": list_of(
            row_of(
                _COUNT,
                _COUNT,
                text,
                optional(text),
                optional(_TICK),
                list_of(row_of(_COUNT, optional(list_of(_TICK)), _COUNT)),
            )
        ),
        "operators": list_of(
            row_of(
                text,
                text,
                mapping,
                list_of(file_name),
                list_of(row_of(list_of(_COUNT), optional(_TICK), _COUNT, _COUNT)),
            )
        ),
        "results": _OUTPUTS,
        "late": _OUTPUTS,
        "extra": mapping,
    }
)


@dataclass(frozen=True)
class ManifestLink:
    """The rows of one batch of one key group, or of several batches after compaction.

    batch       the batch, or the last of several
    late_below  rows of stream s with an event time below late_below[s] were late, and readers of the link skip them;
                None if no row was late
    segments    locations of the rows
    """

    batch: int
    late_below: tuple[int, ...] | None
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class GroupState:
    """The state of one key group.

    version  the last batch in which the group ran, with new rows or with rows that had waited
    token    digest of all inputs of the state
    chain    rows of the group, in order of batches; empty for a further fragment, whose rows are in the group's chain
    plan     the plan that the engine of the group ran, None if no plan was chosen
    due      the event time that the watermark must pass before the group has results without further rows, None if it
             has no such results (`Runtime.due`)
    """

    version: int
    token: str
    chain: tuple[ManifestLink, ...]
    plan: str | None
    due: int | None = None


@dataclass(frozen=True)
class PartState:
    """The state of one part of the operator above a join: of those of its groups that one task keeps together.

    files  files of the log from which the part follows: the first one has its groups, each other one the results of a
           batch; empty for a part without groups
    due    the watermark at which the part gives rows without further results, None if no watermark does
    whole  bytes of its groups in the first file
    since  bytes of the results in the other files
    """

    files: tuple[str, ...] = ()
    due: int | None = None
    whole: int = 0
    since: int = 0


@dataclass(frozen=True)
class OperatorState:
    """The state of the operator above a join, in parts that are dealt out by group.

    token  names the state in the memory of workers
    query  text of the query whose operator it is (`eddy.query.text`)
    parts  its parts, by their numbers
    """

    token: str
    query: dict[str, Any]
    parts: tuple[PartState, ...]


@dataclass(frozen=True)
class OutputFile:
    """A file of results, of late rows or of failed rows.

    file    path, with /, relative to the staging directory or to the directory of late rows
    rows    number of rows
    bytes   size
    stream  stream of late rows; None for results and failed rows
    """

    file: str
    rows: int
    bytes: int
    stream: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The state of a job after a batch.

    batch          number of the batch in Spark
    watermarks     state of the watermarks as JSON: mappings have text as keys, sequences become lists
    partition_map  the partition of each key group
    splits         splits of key groups, in their order
    dealt          key groups in fragments, ascending
    groups         the state of each key group with a state
    results        result files of this batch
    late           files of late and of failed rows of this batch
    extra          further state of the driver as JSON
    operators      the operators above the join, by the names of their queries, "" in a join of one query
    """

    batch: int
    watermarks: dict[str, Any]
    partition_map: tuple[int, ...]
    groups: dict[int, GroupState]
    results: tuple[OutputFile, ...]
    late: tuple[OutputFile, ...]
    extra: dict[str, Any]
    splits: tuple[GroupSplit, ...] = ()
    dealt: tuple[Dealt, ...] = ()
    operators: dict[str, OperatorState] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the manifest as bytes; equal manifests give equal bytes. O(segments), about a microsecond each."""
        groups = sorted(self.groups.items())
        header = {
            "batch": self.batch,
            "watermarks": self.watermarks,
            "partition_map": self.partition_map,
            "splits": self.splits,
            "dealt": self.dealt,
            "groups": [
                [
                    group,
                    state.version,
                    state.token,
                    state.plan,
                    state.due,
                    [[link.batch, link.late_below, len(link.segments)] for link in state.chain],
                ]
                for group, state in groups
            ],
            "operators": [_operator(name, state) for name, state in sorted(self.operators.items())],
            "results": [_output(output) for output in self.results],
            "late": [_output(output) for output in self.late],
            "extra": self.extra,
        }
        segments = [segment for _, state in groups for link in state.chain for segment in link.segments]
        return KIND.pack({"header": header, "segments": _parts(segments)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest that `to_bytes` wrote. Raises StreamingStateError for any other bytes. O(segments)."""
        parts = KIND.unpack(data)
        header = parts.value("header", _HEADER)
        numbers = [group for group, *_ in header["groups"]]
        KIND.require(numbers == sorted(set(numbers)), f"it has key groups {numbers[:20]}")
        names = [name for name, *_ in header["operators"]]
        KIND.require(names == sorted(set(names)), f"it has operators {names[:20]}")
        count = sum(length for *_, chain in header["groups"] for _, _, length in chain)
        segments = _segments(parts.part("segments"), count)
        parts.check_read()
        return cls(
            batch=header["batch"],
            watermarks=header["watermarks"],
            partition_map=tuple(header["partition_map"]),
            splits=tuple(GroupSplit(*entry) for entry in header["splits"]),
            dealt=tuple(Dealt(*entry) for entry in header["dealt"]),
            groups={
                group: GroupState(version, token, tuple(_link(segments, *link) for link in chain), plan, due)
                for group, version, token, plan, due, chain in header["groups"]
            },
            results=tuple(OutputFile(*entry) for entry in header["results"]),
            late=tuple(OutputFile(*entry) for entry in header["late"]),
            extra=header["extra"],
            operators={name: _operator_state(*entry) for name, *entry in header["operators"]},
        )

    def log_files(self) -> frozenset[str]:
        """Return the names of the log files that the state needs."""
        chains = (state.chain for state in self.groups.values())
        segments = (segment.file for chain in chains for link in chain for segment in link.segments)
        return frozenset(segments).union(*(part.files for state in self.operators.values() for part in state.parts))


def _output(file: OutputFile) -> list[Any]:
    return [file.file, file.rows, file.bytes, file.stream]


def _operator(name: str, state: OperatorState) -> list[Any]:
    numbers: dict[str, int] = {}
    parts = [
        [[numbers.setdefault(file, len(numbers)) for file in part.files], part.due, part.whole, part.since]
        for part in state.parts
    ]
    return [name, state.token, state.query, list(numbers), parts]


def _operator_state(token: str, query: dict[str, Any], files: list[str], parts: list[list[Any]]) -> OperatorState:
    known = all(number < len(files) for numbers, *_ in parts for number in numbers)
    KIND.require(known, "a part of an operator has a file without a name")
    return OperatorState(
        token, query, tuple(PartState(tuple(files[k] for k in numbers), *more) for numbers, *more in parts)
    )


def _link(segments: Iterator[Segment], batch: int, late_below: list[int] | None, count: int) -> ManifestLink:
    return ManifestLink(batch, None if late_below is None else tuple(late_below), tuple(islice(segments, count)))


def _parts(segments: list[Segment]) -> Plain:
    names: dict[str, int] = {}
    files = [names.setdefault(segment.file, len(names)) for segment in segments]
    columns = [files, *(list(map(attrgetter(name), segments)) for name in _NUMBERS)]
    digests = np.frombuffer(bytes.fromhex("".join([segment.digest for segment in segments])), np.uint8)
    return {"files": list(names), "numbers": np.array(columns, np.int64), "digests": digests}


def _segments(parts: Parts, count: int) -> Iterator[Segment]:
    """Return the segments. Raises StreamingStateError unless their number is `count`, the sum over the links."""
    names = parts.sequence("files", form=file_name)
    numbers = parts.array("numbers", np.int64, (1 + len(_NUMBERS), count))
    # A digest has eight bytes. Formatting integers is faster than formatting bytes objects.
    words = parts.array("digests", np.uint8, (count * DIGEST_BYTES,)).view(">u8").tolist()
    fits = not count or (numbers[:-2].min() >= 0 and numbers[0].max() < len(names))
    parts.require(bool(fits), "a segment has negative numbers, or a file without a name")
    parts.require(bool((numbers[-2] <= numbers[-1]).all()), "a segment has its last event time before its first")
    file_numbers, offset, length, group, stream, rows, splits, first, last = numbers.tolist()
    digests, files = [f"{word:016x}" for word in words], [names[k] for k in file_numbers]
    return map(Segment, files, offset, length, digests, group, stream, rows, first, last, splits)
