"""A topic of Kafka as a streaming DataFrame. Spark's own source needs a package of Java classes; this source does not.

A join with the transport "packed" reads the messages in its own tasks. The source then only names the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from eddy.spark.environment.ending import end_quietly
from eddy.spark.environment.spark_version import arrow_schema
from eddy.spark.environment.stream_reader import (
    LimitedReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    reader_of,
    require_limits,
)
from eddy.spark.errors import MalformedMessageError, SparkJoinError
from eddy.spark.kafka.client import Offsets
from eddy.spark.kafka.message_parts import MessagePart, with_parts
from eddy.spark.kafka.registered import check_registered
from eddy.spark.kafka.topic import Topic, topic_of
from eddy.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME, TOPIC = "eddy_kafka", "topic"
Encoding = Literal["json", "arrow", "avro", "protobuf"]
Starting = Literal["earliest", "latest"]
Malformed = Literal["fail", "skip"]
end_quietly()


def stream_topic(
    spark: SparkSession,
    topic: str,
    schema: pa.Schema,
    *,
    servers: str,
    settings: Mapping[str, str] | None = None,
    encoding: Encoding = "json",
    starting: Starting = "earliest",
    max_rows: int | None = None,
    malformed: Malformed = "fail",
    dead_letters: str | None = None,
    message: Mapping[str, MessagePart] | None = None,
    registry: Mapping[str, str] | None = None,
    protobuf: str | None = None,
) -> DataFrame:
    """Return a topic of Kafka as a streaming DataFrame.

        clicks = eddy.spark.stream_topic(spark, "clicks", schema, servers="broker:9092")

    topic      name of the topic
    schema     schema of the rows
    servers    addresses of brokers, "host:port,host:port"
    settings   further settings of librdkafka, such as `security.protocol` and `sasl.password`. Users of the session see
               these settings in Spark's plans; no file contains them
    encoding   "json": each message is a JSON object; fields that the schema lacks are ignored, missing ones are null,
               times and dates are text in the form of ISO 8601. "arrow": an Arrow IPC stream of any number of rows.
               "avro", "protobuf": each message is a record whose schema `registry` has; fields as with "json", and
               their values must fit the column
    starting   where a query without a checkpoint starts: at the "earliest" message that Kafka has, or at the "latest"
    max_rows   maximal number of messages in a micro-batch; None = all available messages
    malformed  "fail": a message that cannot be decoded ends the query with an error that names its offset; "skip": such
               a message is left out, with a warning
    dead_letters   name of a topic of the same servers to which a message that cannot be decoded is sent unchanged, with
               the reason and its place in the headers `eddy-error`, `eddy-topic`, `eddy-partition` and `eddy-offset`.
               The stream continues without the message. A repeated micro-batch sends its dead letters again
    message    column -> its part of the message: "key" (binary, or text if the column of `schema` is text), "headers"
               (a list of name and value), "timestamp", "partition" or "offset". A column that `schema` lacks is added.
               With encoding "arrow" all rows of a message have the same parts
    registry   settings of a schema registry by the names of confluent-kafka, {"url": "http://registry:8081"}: messages
               of Avro, Protobuf and JSON begin with the number of their schema in it. None = JSON without a registry
    protobuf   "module:name" of the class that protoc generated for the messages

    A query with a checkpoint reads each message once. Messages without a value have no row. In a streaming join with
    the transport "packed", the tasks of the join read the messages, which do not pass through the JVM. Needs
    confluent-kafka (`pip install 'eddy-join[kafka]'`) on the driver and the workers. No message is read before a query
    starts. Raises SparkJoinError for arguments that do not fit.
    """
    if find_spec("confluent_kafka") is None:
        raise SparkJoinError("stream_topic needs the package confluent-kafka: pip install 'eddy-join[kafka]'")
    for name, value, known in (
        ("encoding", encoding, Encoding),
        ("starting", starting, Starting),
        ("malformed", malformed, Malformed),
    ):
        if value not in get_args(known):
            raise SparkJoinError(f"{name}={value!r}: pass one of {', '.join(map(repr, get_args(known)))}")
    if max_rows is not None and max_rows < 1:
        raise SparkJoinError(f"max_rows={max_rows}: give 1 or more, or None for all")
    if dead_letters is not None and (malformed != "fail" or dead_letters in ("", topic)):
        raise SparkJoinError(
            f"dead_letters={dead_letters!r}: name another topic than {topic!r}, and leave malformed= out: messages are"
            " sent there in place of failing"
        )
    check_registered(encoding, registry, protobuf)
    parts = dict(message or {})
    schema = with_parts(schema, parts)
    known_settings = {**(settings or {}), "bootstrap.servers": servers}
    source_topic = Topic(
        topic, known_settings, encoding, starting, max_rows, malformed, dead_letters, parts, registry, protobuf
    )
    try:
        spark.dataSource.register(TopicSource)
    except AnalysisException as known:
        if known.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    reader = spark.readStream.format(NAME).schema(struct_type(schema))
    return reader.option(TOPIC, json.dumps(asdict(source_topic))).load()


class TopicSource(DataSource):
    """The source as Spark's interface defines it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        topic = topic_of(json.loads(self.options[TOPIC]))
        if topic.max_rows is not None:
            require_limits(f"topic {topic.name!r}: max_rows={topic.max_rows}")
        return reader_of(TopicReader(topic, schema))


class _Range(InputPartition):
    def __init__(self, partition: str, start: int, end: int) -> None:
        super().__init__((partition, start, end))
        self.partition, self.start, self.end = partition, start, end


class TopicReader(LimitedReader):
    """Reads a topic. An offset maps each partition to the offset of its next message."""

    def __init__(self, topic: Topic, schema: StructType) -> None:
        self._topic = topic
        self._schema = arrow_schema(schema)
        self._last: Offsets | None = None

    def initialOffset(self) -> Offsets:
        return self._topic.begins()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._topic.max_rows is None else ReadMaxRows(self._topic.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._topic.ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        return self._topic.take(start, self._last or self._topic.ends(), isinstance(limit, ReadAllAvailable))

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        ranges = (_Range(name, start.get(name, 0), last) for name, last in end.items())
        return [part for part in ranges if part.start < part.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        try:
            yield from self._topic.read(partition.partition, partition.start, partition.end, self._schema)
        except MalformedMessageError as problem:
            # Spark logs the trace of each attempt: the trace of the decoder adds no information.
            raise problem.with_traceback(None) from None
