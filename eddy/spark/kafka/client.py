"""The clients of Kafka in this process: the offsets of partitions, and the messages between two offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from confluent_kafka import Message

Offsets = dict[str, int]
"""Partition -> offset of its next message. Partitions are text, as JSON has no other keys."""
PIECE = 8192
"""Number of messages that are fetched together."""
SILENCE_S = 60.0
"""Seconds after which a broker that sends nothing counts as dead."""
_FIXED = {
    "group.id": "eddy",  # required, and without effect
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # deleted messages must not be skipped silently
}
_USUAL = {"fetch.wait.max.ms": 50, "client.id": "eddy"}
KAFKA_LOG = logging.getLogger("eddy.kafka")
"""The logger for the messages of librdkafka, at their own levels."""
_clients: dict[str, Client] = {}
"""The clients of this process, by settings. A new client needs a connection, so workers keep their clients."""


def client_of(settings: Mapping[str, str]) -> Client:
    """Return the client of this process for some settings."""
    key = repr(sorted(settings.items()))
    if key not in _clients:
        _clients[key] = Client(settings)
    return _clients[key]


def described(topic: str, settings: Mapping[str, str]) -> str:
    """Return the text by which messages name a topic."""
    return f"topic {topic!r} at {settings.get('bootstrap.servers')}"


def other_settings(settings: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    """Return the settings for a client that reads no messages."""
    kept = {name: value for name, value in settings.items() if not name.startswith(("fetch.", "isolation."))}
    return {**kept, "client.id": "eddy"}


class Client:
    """A client for one set of settings of librdkafka. Use it in one thread at a time.

    Raises SparkJoinError if the package is missing or librdkafka refuses the settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        try:
            from confluent_kafka import Consumer, IsolationLevel, KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as problem:
            raise SparkJoinError(
                "this Python cannot read topics; driver and workers need pip install 'eddy-join[kafka]'"
            ) from problem
        self._settings = settings
        level = settings.get("isolation.level", "read_committed").upper()
        self._isolation = (
            IsolationLevel[level] if level in IsolationLevel.__members__ else IsolationLevel.READ_COMMITTED
        )
        try:
            self._consumer = Consumer({**_USUAL, **settings, **_FIXED}, logger=KAFKA_LOG)
            self._admin = AdminClient(other_settings(settings), logger=KAFKA_LOG)
        except (KafkaException, ValueError) as problem:
            raise SparkJoinError(f"librdkafka refuses the settings of a topic: {problem}") from problem

    def offsets(self, topic: str, latest: bool) -> Offsets:
        """Return the end of each partition of a topic, or its beginning. Open transactions are beyond the end.

        Raises SparkJoinError if the servers do not answer or the topic has no partitions.
        """
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # documented, not exported

        try:
            metadata = self._consumer.list_topics(topic, timeout=SILENCE_S).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
            asked = {TopicPartition(topic, number): spec for number in sorted(metadata.partitions)}
            if not asked:
                raise SparkJoinError(
                    f"{described(topic, self._settings)} has no partitions; create it before the job starts"
                )
            told = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=SILENCE_S)
            return {str(place.partition): future.result(SILENCE_S).offset for place, future in told.items()}
        except (KafkaException, TimeoutError) as problem:
            raise self._unavailable(topic, problem) from problem

    def messages(self, topic: str, partition: str, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the messages of a partition from offset `start` up to `end`, in blocks.

        Raises SparkJoinError for deleted messages, and if the servers do not answer.
        """
        from confluent_kafka import TopicPartition

        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, int(partition), start)])
        try:
            at, heard = start, time.monotonic()
            while at < end:
                received = self._consumer.consume(min(PIECE, end - at), timeout=1.0)
                events = [message for message in received if message.error() is not None]
                messages = [message for message in received if message.error() is None] if events else received
                if messages:
                    # Records of transactions, and messages that compaction removed, leave gaps.
                    at, heard = _offset(messages[-1]) + 1, time.monotonic()
                    yield messages if at <= end else [message for message in messages if _offset(message) < end]
                for event in events:
                    at = max(at, self._after(event, topic, partition, at, end))
                if time.monotonic() - heard > SILENCE_S:
                    raise self._unavailable(topic, f"nothing came for {SILENCE_S:.0f} s")
        finally:
            self._consumer.unassign()

    def _after(self, event: Message, topic: str, partition: str, at: int, end: int) -> int:
        """Return the offset after an event. Raises SparkJoinError for a permanent error."""
        from confluent_kafka import KafkaError

        error = event.error()
        assert error is not None
        at_end = error.code() == KafkaError._PARTITION_EOF
        if error.code() == KafkaError._AUTO_OFFSET_RESET or (at_end and _offset(event) < end):
            raise SparkJoinError(
                f"{described(topic, self._settings)}: the messages of partition {partition} from offset {at} are gone,"
                " and the job has not read them; keep messages longer, or begin with a new checkpoint"
            )
        if not at_end and not error.retriable():
            raise self._unavailable(topic, error)
        return _offset(event) if at_end else at

    def _unavailable(self, topic: str, why: object) -> SparkJoinError:
        where = described(topic, self._settings)
        return SparkJoinError(f"{where} cannot be read: {why}; check the servers, the name and the settings")


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
