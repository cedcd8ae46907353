"""A Kafka cluster within the test's process: the mock brokers of librdkafka, which listen on ports of this host.

    with mock_kafka() as kafka:
        kafka.topic("orders", partitions=3)
        kafka.send("orders", [b"one", b"two"], partition=1)
        Consumer({"bootstrap.servers": kafka.servers, …})

Any client in any process can connect. A partition keeps its newest messages in memory, some megabytes. The brokers know
producers (also idempotent and transactional ones), consumers and groups; they do not know the admin's requests. The
calls are those of rdkafka_mock.h, because confluent-kafka has no Python form of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Message, Producer, TopicPartition

PRODUCE = 0
"""Kafka's number of the request that sends messages, for `fail`."""

_PRODUCER = 0
_QUIET = {"log_level": 3}  # clients report each closed connection otherwise
_WAIT_S = 30


@dataclass(frozen=True)
class MockKafka:
    """A running cluster.

    servers   the value of `bootstrap.servers`
    """

    servers: str
    _library: ctypes.CDLL
    _cluster: int

    def topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its name. A topic that a client uses before has four partitions."""
        self._check(self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))
        return name

    def send(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        """Append messages to a partition."""
        producer = Producer({"bootstrap.servers": self.servers, **_QUIET})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(_WAIT_S) == 0

    def messages(self, topic: str) -> list[Message]:
        """Return all messages of a topic, partition by partition."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test", **_QUIET})
        try:
            partitions = sorted(consumer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions)
            places = [TopicPartition(topic, partition) for partition in partitions]
            spans = [consumer.get_watermark_offsets(place, timeout=_WAIT_S) for place in places]
            count = sum(end - first for first, end in spans)
            consumer.assign([TopicPartition(topic, p, first) for p, (first, _) in zip(partitions, spans, strict=True)])
            messages = consumer.consume(count, timeout=_WAIT_S) if count else []
            assert len(messages) == count
            return sorted(messages, key=lambda message: (message.partition(), message.offset()))
        finally:
            consumer.close()

    def fail(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with these errors, such as KafkaError.TOPIC_AUTHORIZATION_FAILED."""
        numbers = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), numbers)

    def _check(self, error: int) -> None:
        if error:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(error))


@contextmanager
def mock_kafka(brokers: int = 1) -> Iterator[MockKafka]:
    """Run a cluster for the duration of the body."""
    library = _library()
    reason = ctypes.create_string_buffer(512)
    settings = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(settings, b"log_level", b"3", None, 0)
    client = library.rd_kafka_new(_PRODUCER, settings, reason, len(reason))
    assert client, reason.value
    cluster = library.rd_kafka_mock_cluster_new(client, brokers)
    try:
        yield MockKafka(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    """Return the librdkafka that confluent-kafka brings along."""
    (path,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, ctypes.c_int]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.c_int]),
        "rd_kafka_mock_push_request_errors_array": (
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)],
        ),
    }
    for name, (returned, taken) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = returned, taken
    return library
