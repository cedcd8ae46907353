"""A topic of Kafka: where its partitions begin and end, and the messages between two offsets.

A range of offsets always has the same messages, so a micro-batch that comes again reads the same rows. Offsets are
never committed to Kafka: Spark's checkpoint has them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.log import LOG
from eddy.spark.errors import SparkJoinError
from eddy.spark.kafka.decoding import DECODERS, NotDecodedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

Offsets = dict[str, int]
"""Partition -> offset of its next message. Partitions are text, as JSON has no other keys."""
PIECE = 8192
"""Messages that are decoded together."""
SILENCE_S = 60.0
"""A broker that gives nothing for so long is taken for dead."""
_FIXED = {
    "group.id": "eddy",  # required, and without effect
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # messages that are gone must not be skipped in silence
}
_USUAL = {"fetch.wait.max.ms": 50, "client.id": "eddy"}
_consumers: dict[str, Consumer] = {}
"""The consumers of this process, by topic and settings. To make one takes a connection; workers live long."""


@dataclass(frozen=True)
class Topic:
    """A topic and how it is read.

    name       of the topic
    settings   of librdkafka, `bootstrap.servers` among them; may hold passwords
    encoding   of the messages, one of `DECODERS`
    starting   where a new job starts: "earliest" or "latest"
    max_rows   most messages that a micro-batch takes, None for all
    malformed  "fail": a message that cannot be decoded ends the job; "skip": it is left out, with a warning
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)
    encoding: str = "json"
    starting: str = "earliest"
    max_rows: int | None = None
    malformed: str = "fail"

    def begins(self) -> Offsets:
        """Return where a new job starts."""
        if self.starting == "latest":
            return self.ends()
        return self._offsets(latest=False)

    def ends(self) -> Offsets:
        """Return where each partition ends now. Messages of transactions that are not committed yet are beyond it."""
        return self._offsets(latest=True)

    def take(self, start: Offsets, ends: Offsets, everything: bool = False) -> Offsets:
        """Return where a micro-batch ends that begins at `start`: at most `max_rows` messages, in fair shares.

        everything  whether `max_rows` does not count
        """
        left = {name: max(0, end - start.get(name, 0)) for name, end in ends.items()}
        total = sum(left.values())
        if everything or self.max_rows is None or total <= self.max_rows:
            return {name: max(end, start.get(name, 0)) for name, end in ends.items()}
        taken = {name: n * self.max_rows // total for name, n in left.items()}
        spare = self.max_rows - sum(taken.values())
        for name, n in left.items():
            more = min(spare, n - taken[name])
            taken[name] += more
            spare -= more
        return {name: start.get(name, 0) + n for name, n in taken.items()}

    def read(self, partition: str, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the messages of a partition from offset `start` up to `end`. Messages without a value have
        none.

        Raises SparkJoinError, which names the place, for messages that are gone or cannot be decoded, and if the broker
        does not answer.
        """
        decode = DECODERS[self.encoding]
        for messages in self._messages(partition, start, end):
            kept = [(value, _offset(one)) for one in messages if (value := one.value()) is not None]
            while True:
                try:
                    found = decode([value for value, _ in kept], schema)
                    break
                except NotDecodedError as problem:
                    place = f"partition {partition}, offset {kept.pop(problem.message)[1]}"
                    if self.malformed == "fail":
                        raise SparkJoinError(
                            f"{self}: the message at {place} is not {self.encoding} with the columns of the stream"
                            f" ({problem}); pass malformed='skip' to leave such messages out"
                        ) from problem
                    LOG.warning("%s: the message at %s is skipped: %s", self, place, problem)
            yield from found.to_batches()

    def __str__(self) -> str:
        return f"topic {self.name!r} at {self.settings.get('bootstrap.servers')}"

    # The client

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        key = repr((self.name, sorted(self.settings.items())))
        if key not in _consumers:
            # An error of the client goes to the log, at the level at which applications want such.
            _consumers[key] = Consumer({**_USUAL, **self.settings, **_FIXED}, logger=logging.getLogger("eddy.kafka"))
        return _consumers[key]

    def _offsets(self, latest: bool) -> Offsets:
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            found = consumer.list_topics(self.name, timeout=SILENCE_S).topics[self.name]
            if found.error is not None:
                raise KafkaException(found.error)
            marks = {
                number: consumer.get_watermark_offsets(TopicPartition(self.name, number), timeout=SILENCE_S)
                for number in sorted(found.partitions)
            }
        except KafkaException as problem:
            raise self._unavailable(problem) from problem
        if not marks:
            raise SparkJoinError(f"{self}: it has no partitions; create it before the job starts")
        return {str(number): high if latest else low for number, (low, high) in marks.items()}

    def _messages(self, partition: str, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the messages of a range, some at a time."""
        from confluent_kafka import TopicPartition

        if start >= end:
            return
        consumer = self._consumer()
        consumer.assign([TopicPartition(self.name, int(partition), start)])
        try:
            at, heard = start, time.monotonic()
            while at < end:
                found = consumer.consume(min(PIECE, end - at), timeout=1.0)
                for one in found:
                    at = max(at, self._after(one, partition, at, end))
                good = [one for one in found if one.error() is None and _offset(one) < end]
                if good:
                    heard = time.monotonic()
                    yield good
                elif time.monotonic() - heard > SILENCE_S:
                    raise self._unavailable(f"nothing came for {SILENCE_S:.0f} s")
        finally:
            consumer.unassign()

    def _after(self, one: Message, partition: str, at: int, end: int) -> int:
        """Return the offset after a message or another event. Raises SparkJoinError for an error that does not pass.

        Records of transactions, and messages that compaction removed, leave gaps.
        """
        from confluent_kafka import KafkaError

        error = one.error()
        if error is None:
            return _offset(one) + 1
        at_end = error.code() == KafkaError._PARTITION_EOF
        if error.code() == KafkaError._AUTO_OFFSET_RESET or (at_end and _offset(one) < end):
            raise SparkJoinError(
                f"{self}: the messages of partition {partition} from offset {at} are gone, and the job has not read"
                " them; keep messages longer, or begin with a new checkpoint"
            )
        if not at_end and not error.retriable():
            raise self._unavailable(error)
        return _offset(one) if at_end else at

    def _unavailable(self, why: object) -> SparkJoinError:
        return SparkJoinError(f"{self} cannot be read: {why}; check the servers, the name and the settings")


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def topic_of(data: Mapping[str, Any]) -> Topic:
    """Return a topic from its fields, as `dataclasses.asdict` gives them."""
    return Topic(**data)
