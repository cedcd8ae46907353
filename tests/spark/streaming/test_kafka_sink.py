"""The sink for Kafka: each row is a message that names its batch; what Kafka refuses is named."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, Message

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.streaming.sinks import KafkaSink
from eddy.spark.streaming.sinks.json_rows import json_rows, json_text
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.streaming.mock_kafka import PRODUCE, MockKafka, mock_kafka
from tests.spark.streaming.sinks import ROWS, ready, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.string())])
STREAMS = [eddy.Stream(name, SCHEMA, window=eddy.Range(timedelta(minutes=5)), time="t") for name in "RS"]
QUERY = eddy.Query(STREAMS, ["R.k = S.k"], select={"k": "R.k", "at": "S.t", "v": "R.v"})


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        yield cluster


def place(message: Message) -> tuple[int, int]:
    """Return batch and row of a message."""
    headers = {name: int(number) for name, number in message.headers() or []}
    return headers["eddy-batch"], headers["eddy-row"]


def values(messages: list[Message]) -> list[dict[str, Any]]:
    """Return what the messages say, in order of batches and rows."""
    return [json.loads(message.value() or b"") for message in sorted(messages, key=place)]


@pytest.mark.versions
def test_every_row_is_a_message_that_names_its_batch(tmp_path: Path, kafka: MockKafka) -> None:
    topic = kafka.topic("pairs", partitions=3)
    sink = ready(KafkaSink(kafka.servers, topic, key="S.v", settings={"linger.ms": 0}), tmp_path)
    sink.publish(4, stage(sink, 4, a=[1, 2], b=[3]))
    sink.publish(5, [])
    files = stage(sink, 6, a=[4, 1])
    sink.publish(6, files)
    messages = kafka.messages(topic)
    assert values(messages) == [{"R.k": k, "S.v": str(k)} for k in (1, 2, 3, 4, 1)]
    assert sorted(place(message) for message in messages) == [(4, 0), (4, 1), (4, 2), (6, 0), (6, 1)]
    partitions = {(message.key(), message.partition()) for message in messages}
    assert sorted(key for key, _ in partitions) == [b"1", b"2", b"3", b"4"], "a key has one partition"
    sink.publish(6, files)
    again = kafka.messages(topic)
    assert len(again) == 7
    assert {place(message): message.value() for message in again} == {
        place(message): message.value() for message in messages
    }


def test_more_rows_than_the_queue_holds(tmp_path: Path, kafka: MockKafka) -> None:
    settings = {"queue.buffering.max.messages": 10, "linger.ms": 0}
    sink = ready(KafkaSink(kafka.servers, kafka.topic("pairs"), settings=settings), tmp_path)
    sink.publish(0, stage(sink, 0, a=list(range(1000))))
    assert [row["R.k"] for row in values(kafka.messages("pairs"))] == list(range(1000))


def test_what_the_brokers_refuse_is_named_and_comes_with_the_next_attempt(tmp_path: Path, kafka: MockKafka) -> None:
    topic = kafka.topic("pairs")
    sink = ready(KafkaSink(kafka.servers, topic), tmp_path)
    files = stage(sink, 3, a=[1, 2])
    kafka.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    says = rf"topic pairs of {kafka.servers}: sending batch 3 failed: TOPIC_AUTHORIZATION_FAILED, .*; check the servers"
    with pytest.raises(SparkJoinError, match=says):
        sink.publish(3, files)
    assert kafka.messages(topic) == []
    sink.publish(3, files)
    assert len(kafka.messages(topic)) == 2
    huge = ready(KafkaSink(kafka.servers, topic, settings={"message.max.bytes": 1000}), tmp_path)
    pq.write_table(pa.table([[1], ["x" * 2000]], schema=ROWS), huge.staging(4) / "a.parquet")
    with pytest.raises(SparkJoinError, match="sending batch 4 failed: MSG_SIZE_TOO_LARGE"):
        huge.publish(4, ["a.parquet"])
    (huge.staging(4) / "a.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(SparkJoinError, match=r"a.parquet is not a whole Parquet file"):
        huge.publish(4, ["a.parquet"])


def test_brokers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    with mock_kafka() as kafka:
        servers = kafka.servers
        sink = ready(KafkaSink(servers, "pairs", settings={"message.timeout.ms": 300}), tmp_path)
    files = stage(sink, 0, a=[1])
    with pytest.raises(SparkJoinError, match=rf"topic pairs of {servers}: sending batch 0 failed: _MSG_TIMED_OUT, "):
        sink.publish(0, files)
    with pytest.raises(SparkJoinError, match=rf"topic pairs of {servers}: connecting failed: _TRANSPORT, "):
        ready(KafkaSink(servers, "pairs", settings={"message.timeout.ms": 300}), tmp_path)


class Silent:
    """A producer that never reports a message."""

    def __init__(self, full: bool) -> None:
        self._full = full

    def produce(self, *_: object, **__: object) -> None:
        if self._full:
            raise BufferError

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        return 1

    def purge(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("full", [False, True])
def test_a_client_that_reports_nothing_is_not_waited_for(
    full: bool, tmp_path: Path, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ready(KafkaSink(kafka.servers, "pairs", settings={"delivery.timeout.ms": "100"}), tmp_path)
    files = stage(sink, 0, a=[1])
    monkeypatch.setattr("eddy.spark.streaming.sinks.kafka._LATE_S", 0.1)
    sink._producer = Silent(full)  # type: ignore[assignment]
    with pytest.raises(SparkJoinError, match="sending batch 0 failed: _MSG_TIMED_OUT, the client reports nothing"):
        sink.publish(0, files)


def test_what_does_not_fit_is_refused(tmp_path: Path, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkJoinError, match=r"topic pairs: key 'k' is no result column; the columns are R.k, S.v"):
        ready(KafkaSink(kafka.servers, "pairs", "k"), tmp_path)
    with pytest.raises(SparkJoinError, match=r'connecting failed: _INVALID_ARG, No such configuration property: "lin'):
        ready(KafkaSink(kafka.servers, "pairs", settings={"lin": "1"}), tmp_path)
    with pytest.raises(SparkJoinError, match=r"enable.idempotence='false': the sink sets True; leave it out"):
        KafkaSink(kafka.servers, "pairs", settings={"enable.idempotence": "false"})
    for missing in ("kafka.bootstrap.servers", "topic"):
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": "pairs"}
        del options[missing]
        with pytest.raises(SparkJoinError, match=f"format 'kafka' needs the option '{missing}'"):
            KafkaSink.from_options(options)
    monkeypatch.delitem(sys.modules, "confluent_kafka")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(
        SparkJoinError, match=r"needs the packages confluent-kafka and polars: pip install 'eddy-join\[kafka\]'"
    ):
        ready(KafkaSink(kafka.servers, "pairs"), tmp_path)


def test_a_streaming_join_to_a_topic(spark: SparkSession, tmp_path: Path, kafka: MockKafka) -> None:
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    for number in range(2):
        at = datetime(2024, 5, 6, 7, number, tzinfo=UTC)
        for name in "RS":
            inputs.add(name, [{"k": k, "t": at, "v": f"{name}{number}{k}"} for k in range(4)])
    writer = join(QUERY, inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4).writeStream
    writer = writer.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("key", "k")
    assert writer.trigger(availableNow=True).start(topic=kafka.topic("pairs", 2)).awaitTermination(120)
    run(QUERY, inputs.frames(spark), tmp_path / "other", tmp_path / "parquet")
    messages = kafka.messages("pairs")
    assert len(messages) == 16
    expected = [{**row, "at": row["at"].isoformat()} for row in published(tmp_path / "parquet").to_pylist()]
    assert sorted(map(repr, values(messages))) == sorted(map(repr, expected))
    assert {message.key() for message in messages} == {b"0", b"1", b"2", b"3"}
    assert {place(message)[0] for message in messages} == {0, 1}
    with pytest.raises(SparkJoinError, match=r"has no option 'linger.ms'; its options: kafka.\*, key, topic"):
        writer.start(**{"linger.ms": 1})


# JSON


def test_values_that_json_lacks_are_text() -> None:
    at = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    row = {
        "at": at,
        "local": at.replace(tzinfo=None),
        "day": date(2024, 5, 6),
        "clock": time(7, 8),
        "long": timedelta(days=1, microseconds=500_000),
        "n": Decimal("0.00"),
        "b": b"\xff\x00",
        "s": {"x": [Decimal("1E+3"), None], "é": 'a"\n'},
        "none": None,
    }
    schema = pa.schema([*pa.Table.from_pylist([row]).schema, ("f", pa.float32()), ("m", pa.map_("date32", "double"))])
    rows = [{**row, "f": 0.5}, {"f": math.nan, "m": [(date(2024, 5, 6), -math.inf)]}]
    first, second = (json.loads(text) for text in json_rows(pa.RecordBatch.from_pylist(rows, schema)))
    assert first == {
        "at": "2024-05-06T07:08:09.000010+00:00",
        "local": "2024-05-06T07:08:09.000010",
        "day": "2024-05-06",
        "clock": "07:08:00",
        "long": "PT86400.5S",
        "n": "0.00",
        "b": "/wA=",
        "s": {"x": ["1000", None], "é": 'a"\n'},
        "none": None,
        "f": 0.5,
        "m": None,
    }
    assert {name: value for name, value in second.items() if value is not None} == {
        "f": "NaN",
        "m": [["2024-05-06", "-Infinity"]],
    }


@pytest.mark.parametrize(
    ("key", "text"), [(7, b"7"), ("é", "é".encode()), (b"\xff", b"\xff"), (Decimal("1.50"), b"1.50"), (True, b"true")]
)
def test_keys_are_plain(key: object, text: bytes) -> None:
    assert json_text(key) == text


CHANGES = pa.schema([("op", pa.string()), ("k", pa.int64()), ("v", pa.string())])


@pytest.mark.parametrize(("key", "encoded"), [("k", [b"1", b"2", b"3"]), ("k, v", [b'{"k":1,"v":"b"}'])])
def test_an_upsert_topic_has_rows_by_key(tmp_path: Path, kafka: MockKafka, key: str, encoded: list[bytes]) -> None:
    topic = kafka.topic("rows")
    sink = ready(KafkaSink(kafka.servers, topic, key=key, upsert=True), tmp_path, CHANGES)
    changes = [("-D", 1, "a"), ("+I", 1, "b"), ("-U", 2, "c"), ("+U", 2, "d"), ("-D", 3, "e")]
    rows = [dict(zip(CHANGES.names, change, strict=True)) for change in changes]
    pq.write_table(pa.Table.from_pylist(rows, CHANGES), sink.staging(0) / "a.parquet")
    sink.publish(0, ["a.parquet"])
    by_key = {message.key(): message.value() for message in kafka.messages(topic)}
    assert set(encoded) <= by_key.keys()
    assert {value and value.decode() for value in by_key.values()} == {'{"k":1,"v":"b"}', '{"k":2,"v":"d"}', None}
    assert len(by_key) == (3 if key == "k" else 5)


def test_a_null_is_part_of_a_key_and_no_key_alone(tmp_path: Path, kafka: MockKafka) -> None:
    topic = kafka.topic("nulls")
    for key in ("k, v", "k"):
        sink = ready(KafkaSink(kafka.servers, topic, key=key, upsert=True), tmp_path / key, CHANGES)
        rows = [{"op": "+I", "k": None, "v": "a"}, {"op": "-D", "k": None, "v": "b"}]
        pq.write_table(pa.Table.from_pylist(rows, CHANGES), sink.staging(0) / "a.parquet")
        if key == "k":
            with pytest.raises(SparkJoinError, match=r"column 'k', the key, is null in a result.* add a column to the"):
                sink.publish(0, ["a.parquet"])
        else:
            sink.publish(0, ["a.parquet"])
            by_key = {message.key(): message.value() for message in kafka.messages(topic)}
            assert by_key == {b'{"k":null,"v":"a"}': b'{"k":null,"v":"a"}', b'{"k":null,"v":"b"}': None}


def test_an_upsert_topic_needs_a_key(tmp_path: Path, kafka: MockKafka) -> None:
    with pytest.raises(SparkJoinError, match="topic rows: upsert needs the columns that identify a row"):
        KafkaSink(kafka.servers, "rows", upsert=True)
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": "rows", "key": "k"}
    with pytest.raises(SparkJoinError, match="upsert is true or false, not 'yes'"):
        KafkaSink.from_options({**options, "upsert": "yes"})
    sink = KafkaSink.from_options({**options, "upsert": "true", "key": "op"})
    with pytest.raises(SparkJoinError, match="topic rows: key 'op' is no result column; the columns are k, v"):
        ready(sink, tmp_path, CHANGES)
