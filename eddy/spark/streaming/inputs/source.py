"""The source of a join whose workers read its input: one source for all streams, in place of a Spark source for each.

The source finds new files and messages and yields no rows. Its offset states the position of each stream
(`offsets.py`), and the driver gives the input between two offsets to the workers. Listing four directories takes about
a millisecond; four file sources of Spark take 150 to 350, mostly for their own checkpoints.

Spark runs the source in a separate Python process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from eddy.spark.directories import File, StreamDirectory
from eddy.spark.environment.ending import end_quietly
from eddy.spark.environment.stream_reader import LimitedReader, ReadAllAvailable, ReadLimit, ReadMaxFiles, reader_of
from eddy.spark.errors import StreamingStateError
from eddy.spark.kafka.client import Offsets
from eddy.spark.kafka.topic import Topic
from eddy.spark.streaming.inputs.file_log import FileLog
from eddy.spark.streaming.inputs.offsets import END, Position, fix_starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "eddy_inputs"
_KINDS: dict[str, type[StreamDirectory] | type[Topic]] = {"directory": StreamDirectory, "topic": Topic}
Place = StreamDirectory | Topic
end_quietly()


def inputs_frame(
    spark: SparkSession, log: Path, places: Mapping[str, Place], finish: bool = False, now: bool = False
) -> DataFrame:
    """Return the streaming DataFrame that represents the input of all streams.

    log     directory of the lists of files, and of the starts of topics
    places  name of a stream -> its directory or topic
    finish  whether a run with the trigger `availableNow` ends the input, with an additional last micro-batch
    now     whether the run has that trigger and this version of Spark cannot tell the source (`stream_reader.py`)
    """
    spark.dataSource.register(InputsSource)
    kinds = {place_type: name for name, place_type in _KINDS.items()}
    streams = json.dumps({name: [kinds[type(place)], asdict(place)] for name, place in places.items()})
    reader = spark.readStream.format(NAME).option("log", str(log)).option("finish", finish).option("now", now)
    return reader.option("streams", streams).load()


class InputsSource(DataSource):
    """The source as Spark's interface defines it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "files long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        streams = json.loads(self.options["streams"])
        places = {name: _KINDS[kind](**data) for name, (kind, data) in streams.items()}
        reader = InputsReader(Path(self.options["log"]), places, self.options["finish"] == "true")
        return reader_of(reader, self.options["now"] == "true")


class InputsReader(LimitedReader):
    """Finds files and messages. An offset maps each stream to its position, and has `END` after the end."""

    def __init__(self, log: Path, places: Mapping[str, Place], finish: bool = False) -> None:
        self._places, self._finish = places, finish
        self._directory = log
        self._topics = {name: place for name, place in places.items() if isinstance(place, Topic)}
        self._log = FileLog(log, len(places))
        self._log.refresh()
        self._seen = self._known()
        self._there: list[set[str]] = [set() for _ in places]
        self._taken: list[int] | None = None
        """Number of files of each stream in batches that Spark has committed; None = unknown."""
        self._last: list[list[File]] | None = None
        """The last files of a run with the trigger `availableNow`, until they are in the log."""
        self._ends: dict[str, Offsets] | None = None
        """The ends of the topics when such a run began."""

    def initialOffset(self) -> dict[str, Position]:
        return dict.fromkeys(self._places, 0) | fix_starts(self._directory, self._topics)

    def getDefaultReadLimit(self) -> ReadLimit:
        # A limit other than "all": the limits of the streams apply. With the limit "all" they do not apply.
        return ReadMaxFiles(1)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._new()
        self._ends = self._topics_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._check(start)
        if self._last is None:
            self._add(self._new())
        else:
            self._add(self._last)
            self._last = [[] for _ in self._places]
        everything = isinstance(limit, ReadAllAvailable)
        ends = self._topics_now() if self._ends is None else self._ends
        positions: dict[str, Position] = {}
        for (name, place), first, files in zip(self._places.items(), self._log.first, self._log.files, strict=True):
            if isinstance(place, Topic):
                positions[name] = place.take(start[name], ends[name], everything)
            else:
                positions[name] = first + (len(files) if everything else place.take(files, start[name] - first))
        ended = END in start or (self._finish and self._last is not None)
        if ended and all(start[name] == position for name, position in positions.items()):
            return {**positions, END: "ended"}
        return positions

    def reportLatestOffset(self) -> dict[str, Position]:
        listed = dict(zip(self._places, self._log.counts, strict=True))
        return {**listed, **self._topics_now()}

    def commit(self, end: dict[str, Any]) -> None:
        self._taken = self._numbers(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())

    def stop(self) -> None:
        # Spark ends a source by closing the connection, and this process would print an error for that.
        if isinstance(sys.exc_info()[1], EOFError):
            os._exit(0)

    def _check(self, start: Mapping[str, Any]) -> None:
        """Raise StreamingStateError unless an offset has exactly these places."""
        for name, place in self._places.items():
            if isinstance(start[name], int) == isinstance(place, Topic):
                was, now = ("files", "a topic") if isinstance(place, Topic) else ("a topic", "files")
                raise StreamingStateError(
                    f"stream {name!r}: the job began with {was}, and its DataFrame is one of {now} now; start with a"
                    " new checkpoint"
                )
        self._log.require(self._numbers(start))

    def _numbers(self, offset: Mapping[str, Any]) -> list[int]:
        """Return how many files of each stream an offset counts, 0 for a topic."""
        return [position if isinstance(position, int) else 0 for position in (offset[name] for name in self._places)]

    def _known(self) -> list[set[str]]:
        """Return the paths of each stream that are not new."""
        return [
            {*old, *(file.path for file in files)} for old, files in zip(self._log.old, self._log.files, strict=True)
        ]

    def _topics_now(self) -> dict[str, Offsets]:
        """Return the current ends of the topics."""
        return {name: topic.ends() for name, topic in self._topics.items()}

    def _new(self) -> list[list[File]]:
        """Return the files of each stream that are not in the log."""
        pairs = zip(self._places.values(), self._seen, strict=True)
        looks = [place.look(seen) if isinstance(place, StreamDirectory) else ([], set()) for place, seen in pairs]
        self._there = [there for _, there in looks]
        return [files for files, _ in looks]

    def _add(self, files: list[list[File]]) -> None:
        """Add files to the log, before any offset counts them."""
        if any(files):
            if self._log.add(files, self._taken, self._there):
                self._seen = self._known()
            else:
                for seen, added in zip(self._seen, files, strict=True):
                    seen.update(file.path for file in added)
