"""A topic of Kafka: the first and last offsets of its partitions, and the messages between two offsets.

A range of offsets always has the same messages, so a repeated micro-batch reads the same rows. Offsets are never
committed to Kafka, because Spark's checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddy.log import LOG
from eddy.spark.errors import MalformedMessageError, SparkJoinError
from eddy.spark.kafka.client import Offsets, client_of, described
from eddy.spark.kafka.dead_letters import send_dead_letters
from eddy.spark.kafka.decoding import DECODERS, Decode, NotDecodedError, shortened
from eddy.spark.kafka.message_parts import MessagePart, part_column
from eddy.spark.kafka.registered import registered

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True)
class Topic:
    """A topic and how it is read: the arguments of `stream_topic`.

    settings   settings of librdkafka with `bootstrap.servers`; like those of the registry they may contain passwords
    parts      the argument `message`
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)
    encoding: str = "json"
    starting: str = "earliest"
    max_rows: int | None = None
    malformed: str = "fail"
    dead_letters: str | None = None
    parts: Mapping[str, MessagePart] = field(default_factory=dict)
    registry: Mapping[str, str] | None = field(default=None, repr=False)
    protobuf: str | None = None

    def begins(self) -> Offsets:
        """Return the offsets at which a new job starts."""
        return self.ends() if self.starting == "latest" else client_of(self.settings).offsets(self.name, latest=False)

    def ends(self) -> Offsets:
        """Return the current end of each partition. Messages of uncommitted transactions are beyond the end."""
        return client_of(self.settings).offsets(self.name, latest=True)

    def take(self, start: Offsets, ends: Offsets, everything: bool = False) -> Offsets:
        """Return the end of a micro-batch that begins at `start`: at most `max_rows` messages, in fair shares.

        everything  whether `max_rows` is ignored

        Raises SparkJoinError if a partition ends before `start`, because it is not the partition that was read.
        """
        for name, at in start.items():
            if ends.get(name, -1) < at:
                raise SparkJoinError(
                    f"{self}: the job has read partition {name} up to offset {at}, and"
                    f" {f'it ends at {ends[name]}' if name in ends else 'it is not there'}: the topic was deleted and"
                    " made again; begin with a new checkpoint"
                )
        left = {name: end - start.get(name, 0) for name, end in ends.items()}
        total = sum(left.values())
        if everything or self.max_rows is None or total <= self.max_rows:
            return ends
        taken = {name: n * self.max_rows // total for name, n in left.items()}
        spare = self.max_rows - sum(taken.values())
        for name, n in left.items():
            more = min(spare, n - taken[name])
            taken[name] += more
            spare -= more
        return {name: start.get(name, 0) + n for name, n in taken.items()}

    def read(self, partition: str, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the messages of a partition from offset `start` up to `end`.

        Messages without a value have no row. Raises a SparkJoinError that names the place for deleted messages, and if
        the broker does not answer; MalformedMessageError for a message that cannot be decoded.
        """
        for messages in client_of(self.settings).messages(self.name, partition, start, end):
            kept = [message for message in messages if message.value() is not None]
            try:
                rows = self._rows(kept, schema)
            except (NotDecodedError, pa.ArrowInvalid):
                kept = self._decodable(kept, schema)
                rows = self._rows(kept, schema)
            yield from rows.to_batches()

    def _rows(self, messages: Sequence[Message], schema: pa.Schema) -> pa.Table:
        """Return the rows of messages. Raises NotDecodedError or ArrowInvalid if a message cannot be decoded."""
        decode, values = self._decoder(), [message.value() or b"" for message in messages]
        parts = {name: self.parts[name] for name in schema.names if name in self.parts}
        if not parts:
            return decode(values, schema)
        inside = pa.schema([column for column in schema if column.name not in parts])
        if self.encoding == "arrow":  # a message has any number of rows
            tables = [decode([value], inside) for value in values]
            rows = pa.concat_tables([decode([], inside), *tables])
            of_row = np.repeat(np.arange(len(values)), [table.num_rows for table in tables])
        else:
            # A table of JSON cannot represent a row without columns.
            rows = decode(values, inside) if inside.names else None
            of_row = np.arange(len(values))
        columns = {
            column.name: part_column(messages, parts[column.name], column.type).take(pa.array(of_row))
            if column.name in parts
            else rows.column(column.name)
            for column in schema
        }
        return pa.table(columns, schema)

    def _decoder(self) -> Decode:
        if self.registry is None:
            return DECODERS[self.encoding]
        return registered(self.encoding, self.name, self.registry, self.protobuf)

    def _decodable(self, messages: Sequence[Message], schema: pa.Schema) -> list[Message]:
        """Return the messages that can be decoded; other messages fail, are skipped, or become dead letters."""
        good, dead = [], []
        for message in messages:
            try:
                self._rows([message], schema)
                good.append(message)
            except (NotDecodedError, pa.ArrowInvalid) as problem:
                why, place = shortened(str(problem)), f"partition {message.partition()}, offset {message.offset()}"
                if self.dead_letters is not None:
                    dead.append((message, why))
                elif self.malformed == "fail":
                    raise MalformedMessageError(
                        f"{self}: the message at {place} is not {self.encoding} with the columns of the stream ({why})"
                        "; pass dead_letters='a topic' to send such messages there, or malformed='skip' to leave them"
                        " out"
                    ) from problem
                else:
                    LOG.warning("%s: the message at %s is skipped: %s", self, place, why)
        if dead:
            assert self.dead_letters is not None
            send_dead_letters(self.dead_letters, self.settings, dead)
            LOG.warning(
                "%s: %d messages cannot be decoded and went to topic %r; the first is at partition %s, offset %s: %s",
                *(self, len(dead), self.dead_letters, dead[0][0].partition(), dead[0][0].offset(), dead[0][1]),
            )
        return good

    def __str__(self) -> str:
        return described(self.name, self.settings)


def topic_of(data: Mapping[str, Any]) -> Topic:
    """Return a topic from its fields, as `dataclasses.asdict` returns them."""
    return Topic(**data)
