"""Inputs that the workers of a streaming join read in place of Spark: files of a directory, or messages of a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa


class UnsuitableError(Exception):
    """A transport cannot carry the rows of a DataFrame; the message states the reason."""


class FilePart(NamedTuple):
    """A part of a file of a stream: number `part` of `parts` parts with even numbers of row groups."""

    stream: int
    path: str
    part: int = 0
    parts: int = 1


class TopicPart(NamedTuple):
    """The messages of a partition of a stream's topic from offset `start` up to `end`."""

    stream: int
    partition: str
    start: int
    end: int


@dataclass(frozen=True)
class StreamInput(ABC):
    """The input of a stream.

    place    a `StreamDirectory` or a `Topic`
    columns  stored names, in the order of the job's inputs
    types    stored name -> type in the schema that the user gave to Spark
    """

    place: Any
    columns: tuple[str, ...]
    types: dict[str, pa.DataType]

    @abstractmethod
    def read(self, part: Any, stream: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with columns of these names. Raises a SparkJoinError that names the stream."""
