"""Sends results to a topic of Kafka, a message per row. Needs the packages confluent-kafka and Polars."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.base import ReplacingKey, Sink
from eddy.spark.streaming.sinks.json_rows import json_rows, json_text
from eddy.spark.streaming.sinks.keyed import key_columns, keyed_changes
from eddy.spark.streaming.sinks.staging import read_batches, row_count

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message, Producer
    from pyspark.sql import SparkSession

BATCH, ROW = "eddy-batch", "eddy-row"
"""Headers of each message: number of the batch, and of the row in the batch, as decimal text."""

_PREFIX, _SERVERS = "kafka.", "bootstrap.servers"
_DEFAULTS = {
    "partitioner": "murmur2_random",  # the partitioner of Java's clients: a key has the same partition as in Spark
    "queue.buffering.max.kbytes": 65_536,  # the default of librdkafka is a gigabyte
    "log_level": 3,
}
_START_S = 30.0
_PAUSE_S = 0.2
_TIMEOUTS = ("message.timeout.ms", "delivery.timeout.ms")
"""The names of the setting for the time of a message."""
_TIMEOUT_MS = 300_000
"""The default value of this setting in the client."""
_LATE_S = 10.0
"""Seconds after the time of a message by which the client must have reported it."""


_Message: TypeAlias = tuple[bytes | None, bytes | None, dict[str, str | bytes | None]]
"""Key, value and headers."""


class KafkaSink(Sink):
    """Sends each row of a batch as a message, and waits until the brokers have acknowledged all of them.

    servers   addresses of brokers, "host:port,host:port"
    topic     name of the topic; Kafka creates the topic if the brokers are configured so
    key       result column that is the key of messages: text and binary values as they are, others as in the JSON
              object; None = messages without a key
    upsert    whether the topic is one of rows by key, as Kafka's compaction keeps them: `key` then names the columns
              that identify a row, with commas between them; a row that ends without a successor is a message without a
              value, and the value of another has no column `op`. For the changelog of a join over tables
    settings  further settings of librdkafka, such as `security.protocol` and `message.timeout.ms`

    The value of a message is the row as a JSON object; `json_rows` describes it. The driver encodes and sends all rows.

    Guarantee: at least once. A batch whose publication ended early, by a crash or by an error, is sent again as a
    whole, with the same rows in the same order. The headers `eddy-batch` and `eddy-row` are the number of the batch and
    of the row in the batch. Together they identify a message among those of the job, so a consumer can drop repeated
    messages. Within a batch that is published in one attempt, the producer is idempotent: its own retries send no
    message twice.
    """

    name = "kafka"
    options = frozenset({"kafka.*", "topic", "key", "upsert"})

    def __init__(
        self,
        servers: str,
        topic: str,
        key: str | None = None,
        settings: Mapping[str, object] | None = None,
        upsert: bool = False,
    ) -> None:
        fixed = {_SERVERS: servers, "enable.idempotence": True}
        given = dict(settings or {})
        for name, value in fixed.items():
            if str(given.get(name, value)).lower() != str(value).lower():
                raise SparkJoinError(
                    f"KafkaSink: setting {name}={given[name]!r}: the sink sets {value!r}; leave it out"
                )
        self._settings: dict[str, Any] = {**_DEFAULTS, **given, **fixed}
        self._servers, self._topic, self._key, self._upsert = servers, topic, key, upsert
        self._columns: list[str] = []
        if upsert and key is None:
            raise SparkJoinError(f"topic {topic}: upsert needs the columns that identify a row: give key=…")
        self._producer: Producer | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> KafkaSink:
        for name in (_PREFIX + _SERVERS, "topic"):
            if not options.get(name):
                raise SparkJoinError(f"format 'kafka' needs the option {name!r}: call option({name!r}, …)")
        settings = {name.removeprefix(_PREFIX): text for name, text in options.items() if name.startswith(_PREFIX)}
        upsert = options.get("upsert", "false").lower()
        if upsert not in ("true", "false"):
            raise SparkJoinError(f"format 'kafka': upsert is true or false, not {upsert!r}")
        return cls(settings.pop(_SERVERS), options["topic"], options.get("key"), settings, upsert == "true")

    def replaces_by(self, schema: pa.Schema) -> ReplacingKey | None:
        """Return the key of rows by key. Raises SparkJoinError for a key that is no result column."""
        if not self._upsert:
            return None
        place = f"topic {self._topic}"
        return ReplacingKey(key_columns(str(self._key), schema, place), place)

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        """Connect to the brokers.

        Raises a SparkJoinError with a remedy: without the package confluent-kafka, for settings that librdkafka
        refuses, a key that is no result column, brokers that do not answer, and a topic that does not exist.
        """
        if find_spec("confluent_kafka") is None or find_spec("polars") is None:
            raise SparkJoinError(
                "KafkaSink needs the packages confluent-kafka and polars: pip install 'eddy-join[kafka]'"
            )
        if self._upsert:
            self._columns = key_columns(str(self._key), schema, f"topic {self._topic}")
        elif self._key is not None and self._key not in schema.names:
            raise SparkJoinError(
                f"topic {self._topic}: key {self._key!r} is no result column; the columns are {', '.join(schema.names)}"
            )
        super().prepare(schema=schema, job=job, scratch=scratch)
        with self._explained("connecting"):
            self._producer = self._connect()

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        """Send the rows of the files and wait until all are delivered. Raises SparkJoinError if a row is not
        delivered."""
        paths = self.paths(batch, files)
        for path in paths:
            row_count(path)  # a damaged file is named before anything is sent
        with self._explained(f"sending batch {batch}"):
            producer, self._producer = self._producer or self._connect(), None
            try:
                self._send(producer, self._messages(batch, paths))
            except BaseException:
                producer.purge()  # the next attempt sends the whole batch, with a new producer
                raise
            self._producer = producer

    def _send(self, producer: Producer, messages: Iterable[_Message]) -> None:
        """Send messages and wait until all are delivered. Raises KafkaException for the first undelivered message."""
        from confluent_kafka import KafkaError, KafkaException

        failed: list[KafkaError] = []
        heard = time.monotonic()

        def delivered(error: KafkaError | None, _: Message) -> None:
            nonlocal heard
            heard = time.monotonic()
            if error is not None:
                failed.append(error)

        def fail_if_silent() -> None:
            # The client should report on each message, but it sometimes did not after its brokers had disappeared.
            if time.monotonic() - heard > self._timeout_s + _LATE_S:
                failed.append(KafkaError(KafkaError._MSG_TIMED_OUT, "the client reports nothing"))

        for key, value, headers in messages:
            while not failed:
                try:
                    producer.produce(self._topic, value, key, headers=headers, on_delivery=delivered)
                    break
                except BufferError:  # the queue is full
                    producer.poll(_PAUSE_S)
                    fail_if_silent()
            producer.poll(0)
            if failed:
                break
        heard = time.monotonic()  # the timeout of the last message has just begun
        while not failed and producer.flush(_PAUSE_S):
            fail_if_silent()
        if failed:
            raise KafkaException(failed[0])

    def _messages(self, batch: int, paths: Sequence[Path]) -> Iterator[_Message]:
        """Yield key, value and headers of each row."""
        number, of_batch = 0, {BATCH: str(batch)}
        if self._upsert:
            for key, value in self._by_key(paths):
                yield key, value, {**of_batch, ROW: str(number)}
                number += 1
            return
        for rows in read_batches(paths):
            keys: list[Any] = [None] * rows.num_rows if self._key is None else rows[self._key].to_pylist()
            for key, value in zip(keys, json_rows(rows), strict=True):
                yield None if key is None else json_text(key), value, {**of_batch, ROW: str(number)}
                number += 1

    def _by_key(self, paths: Sequence[Path]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the key and the value of each key that changes, None for a key without a row."""
        assert self._schema is not None
        upserts, deletes = keyed_changes(paths, self._schema, self._columns, f"topic {self._topic}")
        if len(self._columns) == 1 and any(
            changed.column(self._columns[0]).null_count for changed in (upserts, deletes)
        ):
            raise SparkJoinError(
                f"topic {self._topic}: column {self._columns[0]!r}, the key, is null in a result, and compaction needs"
                " messages with keys; add a column to the key, with which it is a JSON object"
            )
        for rows in upserts.combine_chunks().to_batches():
            yield from zip(self._keys(rows), json_rows(rows), strict=True)
        for rows in deletes.combine_chunks().to_batches():
            yield from ((key, None) for key in self._keys(rows))

    def _keys(self, rows: pa.RecordBatch) -> Iterable[bytes]:
        """Return the key of each row: the value of one column, or a JSON object of several."""
        columns = rows.select(self._columns)
        return map(json_text, columns.column(0).to_pylist()) if len(self._columns) == 1 else json_rows(columns)

    def _connect(self) -> Producer:
        """Return a producer after the brokers have named the topic; they may create it at the first request."""
        from confluent_kafka import Producer

        producer = Producer(self._settings)
        timeout_s = min(_START_S, self._timeout_s)
        end = time.monotonic() + timeout_s
        while (error := producer.list_topics(self._topic, timeout=timeout_s).topics[self._topic].error) is not None:
            if time.monotonic() > end:
                raise self._error("looking for the topic", error)
            time.sleep(_PAUSE_S)
        return producer

    @property
    def _timeout_s(self) -> float:
        """Seconds within which the client reports the outcome of a message; inf = the client never gives up a
        message."""
        milliseconds = next((self._settings[name] for name in _TIMEOUTS if name in self._settings), _TIMEOUT_MS)
        return int(milliseconds) / 1000 or math.inf

    @contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as problem:
            raise self._error(action, problem.args[0]) from problem

    def _error(self, action: str, error: KafkaError) -> SparkJoinError:
        return SparkJoinError(
            f"topic {self._topic} of {self._servers}: {action} failed: {error.name()}, {error.str()}; check the"
            " servers, the topic and the settings, then start the job again"
        )
