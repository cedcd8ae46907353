"""Topics of Kafka as streams: what is read, that it is read once, and what is said when it cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

import eddy
from eddy.spark import SparkJoinError, explain, join, stream_topic
from eddy.spark.environment.spark_version import limits_reads
from eddy.spark.errors import MalformedMessageError, StreamingStateError
from eddy.spark.kafka import client
from eddy.spark.kafka.decoding import NotDecodedError, decode_arrow, decode_json
from eddy.spark.kafka.message_parts import with_parts
from eddy.spark.kafka.topic import Topic
from eddy.spark.streaming.inputs.offsets import fix_starts
from eddy.spark.streaming.inputs.source import InputsReader
from tests.cases import text_rows
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.streaming.mock_kafka import PRODUCE, MockKafka, mock_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        yield cluster
        client._clients.clear()  # they would look for the brokers for ever


def as_json(rows: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def rows_of(name: str, start: int, count: int) -> list[dict[str, Any]]:
    return [{"k": n % 7, "t": n, "v": f"{name}{n}"} for n in range(start, start + count)]


def query() -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(10), time="t") for name in ("R", "S")]
    return eddy.Query(streams, ["R.k = S.k"], lateness=1000)


def expected(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """Return what the definition gives: pairs of equal keys, at most ten ticks apart."""
    return sorted(
        tuple(repr(row[name]) for row in (r, s) for name in SCHEMA.names)
        for r in rows["R"]
        for s in rows["S"]
        if r["k"] == s["k"] and abs(r["t"] - s["t"]) <= 10
    )


# Messages as rows


def test_messages_of_json_and_of_arrow_are_rows() -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("price", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
        ]
    )
    row = {"at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "day": date(2026, 1, 2), "price": Decimal("1.50")}
    rows = [row | {"tags": ["a", "b"]}, dict.fromkeys(schema.names)]
    text = b'{"at": "2026-01-02T03:04:05.000600Z", "day": "2026-01-02",\n "price": "1.50", "tags": ["a", "b"], "x": 1}'
    assert decode_json([text, b"{}"], schema).to_pylist() == rows
    table = pa.Table.from_pylist(rows, schema=schema)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema.insert(0, pa.field("more", pa.int8()))) as writer:
        writer.write_table(table.add_column(0, "more", pa.array([1, 2], pa.int8())))
    message = out.getvalue().to_pybytes()
    assert decode_arrow([message, message], schema).to_pylist() == rows * 2
    for decode in (decode_json, decode_arrow):
        assert decode([], schema) == schema.empty_table()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"nothing", "Invalid value"),
        (b'{"k": "text"}', "changed from number to string"),
        (b'{"k": 1}{"k": 2}', "1 messages hold 2 objects"),
        (b"", "Empty JSON"),
        (b"[1]", "from object to array"),
    ],
)
def test_the_message_that_is_no_row_is_named(bad: bytes, why: str) -> None:
    with pytest.raises(NotDecodedError, match=why) as raised:
        decode_json([b'{"k": 1}', bad, b'{"k": 2}'], SCHEMA)
    assert raised.value.message == 1


def test_an_arrow_message_of_another_schema_is_refused() -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("k", pa.int32())])) as writer:
        writer.write(pa.record_batch({"k": pa.array([1], pa.int32())}))
    wanted = pa.schema([("k", pa.int64())])
    with pytest.raises(NotDecodedError, match="column 'k' has type int32, not int64"):
        decode_arrow([out.getvalue().to_pybytes()], wanted)
    with pytest.raises(NotDecodedError, match="does not exist in schema"):
        decode_arrow([out.getvalue().to_pybytes()], SCHEMA)


# A topic


def made(kafka: MockKafka, name: str, partitions: int = 1, **how: Any) -> Topic:
    return Topic(kafka.topic(name, partitions), {"bootstrap.servers": kafka.servers}, **how)


def values(topic: Topic, partition: str, start: int, end: int) -> list[int]:
    return [row["k"] for batch in topic.read(partition, start, end, SCHEMA) for row in batch.to_pylist()]


def test_a_range_of_offsets_has_its_messages_and_no_others(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PIECE", 7)
    topic = made(kafka, "ranges", 2)
    kafka.send(topic.name, [b'{"k": %d}' % n for n in range(50)], partition=1)
    assert topic.begins() == {"0": 0, "1": 0}
    assert topic.ends() == {"0": 0, "1": 50}
    assert Topic(topic.name, topic.settings, starting="latest").begins() == {"0": 0, "1": 50}
    for start, end in ((0, 50), (3, 4), (10, 31), (50, 50), (0, 7)):
        assert values(topic, "1", start, end) == list(range(start, end))


def test_a_limit_is_shared_by_the_partitions() -> None:
    topic = Topic("t", {}, max_rows=10)
    assert topic.take({"0": 0, "1": 5}, {"0": 3, "1": 10}) == {"0": 3, "1": 10}
    assert topic.take({"0": 0, "1": 5}, {"0": 90, "1": 15}) == {"0": 9, "1": 6}
    assert topic.take({"0": 0, "1": 5}, {"0": 90, "1": 15}, everything=True) == {"0": 90, "1": 15}
    assert topic.take({"0": 0}, {"0": 4, "1": 100}) == {"0": 1, "1": 9}  # partition 1 is a new one
    for ends, why in (({"0": 4}, "it ends at 4"), ({"1": 9}, "it is not there")):
        with pytest.raises(SparkJoinError, match=f"partition 0 up to offset 20, and {why}: the topic was deleted"):
            topic.take({"0": 20}, ends)


def test_settings_that_librdkafka_does_not_know_are_named() -> None:
    with pytest.raises(SparkJoinError, match=r'refuses the settings of a topic: .*"bootstrap.sorvers"'):
        Topic("t", {"bootstrap.sorvers": "localhost:1"}).ends()


def test_messages_that_are_gone_are_not_skipped(kafka: MockKafka) -> None:
    topic = made(kafka, "gone")
    kafka.send(topic.name, [b'{"k": 1}'])
    with pytest.raises(SparkJoinError, match=r"topic 'gone' at .*: the messages of partition 0 from offset 5 are gone"):
        values(topic, "0", 5, 9)
    with pytest.raises(SparkJoinError, match="from offset 1 are gone"):
        values(topic, "0", 0, 2)


def test_malformed_messages_fail_or_are_skipped(kafka: MockKafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = made(kafka, "malformed")
    kafka.send(topic.name, [b'{"k": 1}', b"no", b'{"k": 2}', b"{", b'{"k": 3}'])
    with pytest.raises(SparkJoinError, match=r"message at partition 0, offset 1 is not json .*, or malformed='skip'"):
        values(topic, "0", 0, 5)
    assert values(Topic(topic.name, topic.settings, malformed="skip"), "0", 0, 5) == [1, 2, 3]
    assert [record.message.split(" is skipped")[0][-8:] for record in caplog.records] == ["offset 1", "offset 3"]


def test_malformed_messages_become_dead_letters(kafka: MockKafka, caplog: pytest.LogCaptureFixture) -> None:
    topic, dead = made(kafka, "with-letters"), kafka.topic("letters")
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 3})
    for number, value in enumerate([b'{"k": 1}', b"no" * 5000, b'{"k": 2}', b'{"k": "x"}']):
        producer.produce(topic.name, value, b"\xff%d" % number, headers=[("a", b"b")], timestamp=1000 + number)
    producer.flush()
    again = Topic(topic.name, topic.settings, dead_letters=dead)
    assert values(again, "0", 0, 4) == [1, 2]
    (record,) = caplog.records
    assert len(record.message) < 500
    assert (
        "2 messages cannot be decoded and went to topic 'letters'; the first is at partition 0, offset 1"
        in record.message
    )
    letters = kafka.messages(dead)
    assert [(letter.key(), len(letter.value() or b""), letter.timestamp()[1]) for letter in letters] == [
        (b"\xff1", 10_000, 1001),
        (b"\xff3", 10, 1003),
    ]
    headers = [dict(letter.headers() or []) for letter in letters]
    assert [
        (header["a"], header["eddy-topic"], header["eddy-partition"], header["eddy-offset"]) for header in headers
    ] == [
        (b"b", b"with-letters", b"0", b"1"),
        (b"b", b"with-letters", b"0", b"3"),
    ]
    assert all(0 < len(header["eddy-error"]) < 300 for header in headers)
    assert b"string" in headers[1]["eddy-error"]
    kafka.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SparkJoinError, match=r"topic 'letters' at .* takes no dead letters"):
        values(again, "0", 0, 4)


def test_parts_of_a_message_are_columns(kafka: MockKafka) -> None:
    topic = made(kafka, "parts", 2)
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 3})
    producer.produce(
        topic.name, b'{"k": 7}', b"one", 1, headers=[("a", b"\x00"), ("b", None)], timestamp=1_700_000_000_123
    )
    producer.produce(topic.name, b'{"k": 8}', partition=1, timestamp=5)
    producer.flush()
    parts = {"id": "key", "h": "headers", "sent": "timestamp", "part": "partition", "place": "offset"}
    whole = with_parts(pa.schema([("k", pa.int64()), ("id", pa.string())]), parts)  # type: ignore[arg-type]
    parted_topic = Topic(topic.name, topic.settings, parts=parts)  # type: ignore[arg-type]
    rows = [row for batch in parted_topic.read("1", 0, 2, whole) for row in batch.to_pylist()]
    assert rows == [
        {
            "k": 7,
            "id": "one",
            "h": [{"name": "a", "value": b"\x00"}, {"name": "b", "value": None}],
            "sent": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
            "part": 1,
            "place": 0,
        },
        {"k": 8, "id": None, "h": None, "sent": datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC), "part": 1, "place": 1},
    ]
    only = pa.schema([("sent", whole.field("sent").type)])
    assert sum(batch.num_rows for batch in parted_topic.read("1", 0, 2, only)) == 2
    producer.produce(topic.name, b"{}", b"\xff", 0)
    producer.flush()
    with pytest.raises(MalformedMessageError, match=r"partition 0, offset 0 is not json .*UTF8"):
        list(parted_topic.read("0", 0, 1, whole))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("k", pa.int64())])) as writer:
        writer.write_table(pa.table({"k": [1, 2, 3]}))
    arrow = Topic(kafka.topic("arrow-parts"), topic.settings, encoding="arrow", parts={"place": "offset"})
    kafka.send(arrow.name, [out.getvalue().to_pybytes()] * 2)
    table = pa.Table.from_batches(arrow.read("0", 0, 2, pa.schema([("k", pa.int64()), ("place", pa.int64())])))
    assert table.to_pydict() == {"k": [1, 2, 3] * 2, "place": [0, 0, 0, 1, 1, 1]}


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENCE_S", 0.5)
    topic = Topic("t", {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(SparkJoinError, match=r"topic 't' at 127.0.0.1:1 cannot be read: .*; check the servers"):
        topic.ends()


# The source of a join


def test_the_first_start_of_a_job_fixes_where_it_begins(kafka: MockKafka, tmp_path: Path) -> None:
    topic = made(kafka, "starts", starting="latest")
    kafka.send(topic.name, [b"{}"] * 3)
    reader = InputsReader(tmp_path, {"R": topic})
    assert reader.initialOffset() == {"R": {"0": 3}}
    kafka.send(topic.name, [b"{}"] * 2)
    again = InputsReader(tmp_path, {"R": topic})
    assert again.initialOffset() == {"R": {"0": 3}}
    assert again.latestOffset(again.initialOffset(), again.getDefaultReadLimit()) == {"R": {"0": 5}}
    assert again.reportLatestOffset() == {"R": {"0": 5}}
    with pytest.raises(StreamingStateError, match=r"stream 'R': the job began with files, and .* a topic now"):
        again.latestOffset({"R": 3}, again.getDefaultReadLimit())
    (tmp_path / "starts").write_bytes(b"damaged")
    with pytest.raises(StreamingStateError, match="where the job began to read its topics is lost"):
        fix_starts(tmp_path, {"R": topic})


# On Spark


@pytest.mark.versions
@pytest.mark.campaign(1)
@pytest.mark.parametrize("transport", ["packed", "rows"])
def test_a_join_of_topics_reads_each_message_once_through_restarts(
    spark: SparkSession, kafka: MockKafka, tmp_path: Path, transport: str
) -> None:
    rows: dict[str, list[dict[str, Any]]] = {"R": [], "S": []}
    limit = 25 if transport == "packed" or limits_reads() else None
    for name in rows:
        kafka.topic(f"{name}-{transport}", 3)

    def frames() -> dict[str, DataFrame]:
        named = {name: f"{name}-{transport}" for name in rows}
        return {
            name: stream_topic(spark, topic, SCHEMA, servers=kafka.servers, max_rows=limit)
            for name, topic in named.items()
        }

    def send(start: int, count: int) -> None:
        for name, stream_rows in rows.items():
            more = rows_of(name, start, count)
            stream_rows += more
            for partition in range(3):
                kafka.send(f"{name}-{transport}", as_json(more[partition::3]), partition)

    state, out = tmp_path / "state", tmp_path / "out"
    send(0, 60)
    running = run(query(), frames(), state, out, transport=transport)
    assert running.batches().num_rows == (3 if limit else 1)
    assert sorted(text_rows(published(out))) == expected(rows)
    send(60, 40)
    running = run(query(), frames(), state, out, transport=transport)
    assert sum(running.batches()["rows"].to_pylist()) == 80
    assert sorted(text_rows(published(out))) == expected(rows)
    progress = [batch["numInputRows"] for batch in running.recentProgress if batch["eddy"]]
    assert sum(progress) == 80


def test_a_topic_joins_files(spark: SparkSession, kafka: MockKafka, tmp_path: Path) -> None:
    topic, inputs = kafka.topic("mixed", 2), Inputs(tmp_path / "in", S=SCHEMA)
    rows = {name: rows_of(name, 0, 50) for name in ("R", "S")}
    kafka.send(topic, as_json(rows["R"]), 1)
    inputs.add("S", rows["S"])
    frame = stream_topic(spark, topic, SCHEMA, servers=kafka.servers)
    frames = {"R": frame.selectExpr("v", "t", "k"), **inputs.frames(spark)}
    text = explain(query(), frames, checkpoint=tmp_path / "state")
    assert "transport: packed: the workers read the Parquet files and the topics\n" in text
    run(query(), frames, tmp_path / "state", tmp_path / "out")
    assert sorted(text_rows(published(tmp_path / "out"))) == expected(rows)


def test_errors_of_a_topic_name_its_stream(
    spark: SparkSession, kafka: MockKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic("poisoned")
    kafka.send(topic, [b"poison"])
    frames = {name: stream_topic(spark, topic, SCHEMA, servers=kafka.servers) for name in ("R", "S")}
    writer = join(query(), frames, checkpoint=tmp_path / "state").writeStream.trigger(availableNow=True)
    running = writer.format("noop").start()
    with pytest.raises(SparkJoinError, match=r"stream '[RS]': topic 'poisoned' at .*, offset 0 is not json"):
        running.awaitTermination(120)
    assert not [record for record in caplog.records if "runs again" in record.message]  # such an error never passes
    (failed,) = [record for record in caplog.records if "has failed" in record.message]
    assert len(failed.message) < 700
    assert len(str(running.inner.exception())) < 6000


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"encoding": "xml"}, "encoding='xml': pass one of 'json', 'arrow', 'avro', 'protobuf'"),
        ({"starting": 5}, "starting=5: pass one of 'earliest', 'latest'"),
        ({"malformed": "drop"}, "malformed='drop': pass one of"),
        ({"max_rows": 0}, "max_rows=0: give 1 or more"),
        ({"dead_letters": "t"}, "dead_letters='t': name another topic than 't'"),
        ({"dead_letters": "u", "malformed": "skip"}, "leave malformed= out"),
        ({"message": {"x": "value"}}, "message: 'x' is 'value'; the parts of a message are key, headers,"),
        ({"message": {"k": "key"}}, "message: column 'k' has type int64; a key is binary or string"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(spark: SparkSession, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(SparkJoinError, match=why):
        stream_topic(spark, "t", SCHEMA, servers="localhost:1", **wrong)
