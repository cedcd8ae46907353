"""Topics whose messages have their schemas in a schema registry: Avro, Protobuf and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc.context.attribute_context_pb2 import AttributeContext

import eddy
from eddy.spark import SparkJoinError, stream_topic
from eddy.spark.kafka import client, registered
from eddy.spark.kafka.decoding import NotDecodedError
from tests.spark.streaming.jobs import run
from tests.spark.streaming.mock_kafka import mock_kafka
from tests.spark.streaming.test_tables import total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, CONTEXT = "orders", SerializationContext("orders", MessageField.VALUE)
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "note", "type": ["null", "string"], "default": None},
    {
        "name": "lines",
        "type": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Line",
                "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}],
            },
        },
    },
    {"name": "tags", "type": {"type": "map", "values": "int"}},
]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
AVRO_ROW: dict[str, Any] = {
    "id": 7,
    "at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "price": Decimal("1.50"),
    "key": UUID(int=5),
    "note": None,
    "lines": [{"item": "a", "n": 1}, {"item": "b", "n": 2}],
    "tags": {"x": 1},
}
AVRO_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "price": pa.decimal128(9, 2),
        "key": pa.string(),
        "note": pa.string(),
        "lines": pa.list_(pa.struct({"n": pa.int32()})),
        "tags": pa.map_(pa.string(), pa.int32()),
        "missing": pa.float64(),
    }
)


class Registry(BaseHTTPRequestHandler):
    """The calls of a schema registry that serializers and deserializers make."""

    schemas: list[dict[str, Any]]
    status = 200

    def answer(self, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if schema not in self.schemas:
            self.schemas.append(schema)
        self.answer(200, {"id": self.schemas.index(schema) + 1, **schema})

    def do_GET(self) -> None:
        number = self.path.partition("?")[0].rpartition("/")[2]
        if self.status != 200:
            self.answer(self.status, {"error_code": 40101, "message": "nobody you know"})
        elif number.isdigit() and 0 < int(number) <= len(self.schemas):
            self.answer(200, self.schemas[int(number) - 1])
        else:
            self.answer(404, {"error_code": 40403, "message": "schema not found"})

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setattr(Registry, "schemas", [], raising=False)
    monkeypatch.setattr(registered, "_known", {})
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield {"url": f"http://127.0.0.1:{server.server_port}"}
        server.shutdown()


def avro(registry: dict[str, str], **changes: Any) -> bytes:
    made = AvroSerializer(SchemaRegistryClient(dict(registry)), AVRO)({**AVRO_ROW, **changes}, CONTEXT)
    assert made is not None
    return made


def test_records_of_avro_are_rows(registry: dict[str, str]) -> None:
    decode = registered.registered("avro", TOPIC, registry, None)
    rows = decode([avro(registry), avro(registry, note="é", id=-1)], AVRO_SCHEMA).to_pylist()
    wanted = {
        **AVRO_ROW,
        "key": str(UUID(int=5)),
        "lines": [{"n": 1}, {"n": 2}],
        "tags": [("x", 1)],
        "missing": None,
    }
    assert rows == [wanted, {**wanted, "note": "é", "id": -1}]
    assert decode([], AVRO_SCHEMA).num_rows == 0


def test_messages_of_protobuf_are_rows(registry: dict[str, str]) -> None:
    place = "google.rpc.context.attribute_context_pb2:AttributeContext"
    message = AttributeContext()
    message.request.size, message.request.method = 2**40, "GET"
    message.request.headers["a"] = "b"
    message.request.time.FromJsonString("2026-01-02T03:04:05.000600Z")
    message.request.auth.audiences.extend(["x", "y"])
    serialize = ProtobufSerializer(AttributeContext, SchemaRegistryClient(dict(registry)))
    made = serialize(message, CONTEXT)
    assert made is not None
    request = pa.struct(
        {
            "size": pa.int64(),
            "method": pa.string(),
            "headers": pa.map_(pa.string(), pa.string()),
            "time": pa.timestamp("us", "UTC"),
            "auth": pa.struct({"audiences": pa.list_(pa.string()), "principal": pa.string()}),
        }
    )
    decode = registered.registered("protobuf", TOPIC, registry, place)
    (row,) = decode([made], pa.schema({"request": request, "response": pa.struct({"code": pa.int64()})})).to_pylist()
    assert row == {
        "request": {
            "size": 2**40,
            "method": "GET",
            "headers": [("a", "b")],
            "time": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
            "auth": {"audiences": ["x", "y"], "principal": ""},
        },
        "response": None,
    }


def test_objects_of_json_are_rows_and_are_held_against_their_schema(registry: dict[str, str]) -> None:
    text = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
    serialize = JSONSerializer(text, SchemaRegistryClient(dict(registry)), conf={"validate": False})
    good, bad = (serialize({"id": value, "at": "2026-01-02T03:04:05Z"}, CONTEXT) for value in (7, "x"))
    assert good is not None
    assert bad is not None
    decode = registered.registered("json", TOPIC, registry, None)
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    assert decode([good], schema).to_pylist() == [{"id": 7, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}]
    with pytest.raises(NotDecodedError, match="'x' is not of type 'integer'") as refused:
        decode([good, bad], schema)
    assert refused.value.message == 1


def test_what_cannot_be_decoded_is_told_from_a_registry_that_does_not_answer(
    registry: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = registered.registered("avro", TOPIC, registry, None)
    good = avro(registry)
    narrow = pa.schema({"id": pa.int8()})
    for bad, schema, why in (
        (b"", narrow, "short|empty|bytes"),
        (b"{}", narrow, "bytes"),
        (b"\x00\x00\x00\x00\x63" + good[5:], narrow, "its schema is not in the registry"),
        (avro(registry, id=300), narrow, "column 'id' has type int8"),
        (good, pa.schema({"at": pa.timestamp("us")}), "column 'at' has type timestamp"),
        (good, pa.schema({"price": pa.int64()}), "column 'price' has type int64"),
    ):
        with pytest.raises(NotDecodedError, match=why):
            decode([bad], schema)
    with pytest.raises(NotDecodedError) as refused:
        decode([good, avro(registry, id=300), good], narrow)
    assert refused.value.message == 1
    registered._known.clear()
    monkeypatch.setattr(Registry, "status", 401)
    for settings in (registry, {"url": "http://127.0.0.1:9", "max.retries": 0}):
        with pytest.raises(SparkJoinError, match=f"schema registry at {settings['url']} gives no schema"):
            registered.registered("avro", TOPIC, settings, None)([good], narrow)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"encoding": "avro"}, "pass registry="),
        ({"encoding": "arrow", "registry": {"url": "http://x"}}, "leave registry= out"),
        ({"encoding": "avro", "registry": {}}, "the setting 'url' is missing"),
        ({"encoding": "protobuf", "registry": {"url": "http://x"}}, "need the name of their generated class"),
        ({"protobuf": "shop_pb2:Order"}, "need the name of their generated class"),
        ({"encoding": "protobuf", "registry": {"url": "http://x"}, "protobuf": "json:JSONEncoder"}, "is no class that"),
        ({"encoding": "protobuf", "registry": {"url": "http://x"}, "protobuf": "shop_pb2:Order"}, "is no class that"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], why: str, spark: SparkSession) -> None:
    with pytest.raises(SparkJoinError, match=why):
        stream_topic(spark, TOPIC, AVRO_SCHEMA, servers="broker:9092", **options)


def test_a_topic_of_avro_is_a_stream(spark: SparkSession, registry: dict[str, str], tmp_path: Path) -> None:
    with mock_kafka() as kafka:
        kafka.topic(TOPIC)
        kafka.send(TOPIC, [avro(registry), b"no record", avro(registry, id=8)])
        schema = pa.schema([AVRO_SCHEMA.field("id"), AVRO_SCHEMA.field("price")])
        options: dict[str, Any] = {"encoding": "avro", "registry": registry, "malformed": "skip"}
        frame = stream_topic(spark, TOPIC, schema, servers=kafka.servers, **options)
        writer = frame.writeStream.format("memory").queryName("orders").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        rows = sorted((row.id, row.price) for row in spark.table("orders").collect())
        assert rows == [(7, Decimal("1.50")), (8, Decimal("1.50"))]
        client._clients.clear()


ROW = [{"name": "id", "type": "long"}, {"name": "ref", "type": ["null", "long"], "default": None}]
ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {
                "name": "before",
                "type": ["null", {"type": "record", "name": "Value", "fields": ROW}],
                "default": None,
            },
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
            },
            {"name": "op", "type": "string"},
        ],
    }
)


def test_envelopes_of_avro_are_changes_of_a_table(
    spark: SparkSession, registry: dict[str, str], tmp_path: Path
) -> None:
    """As a connector of Debezium writes them, with a record for each part that may be null."""
    serialize = AvroSerializer(SchemaRegistryClient(dict(registry)), ENVELOPE)
    rows = [{"id": 1, "ref": 5}, {"id": 1, "ref": 6}, {"id": 2, "ref": 5}, {"id": 2, "ref": 5}, {"id": 3, "ref": None}]
    changes: list[dict[str, Any]] = [
        {"before": None, "after": rows[0], "op": "c"},
        {"before": rows[0], "after": rows[1], "op": "u"},
        {"before": None, "after": rows[2], "op": "r"},
        {"before": rows[3], "after": None, "op": "d"},
        {"before": None, "after": rows[4], "op": "c"},
    ]
    messages = [serialize({**change, "source": {"lsn": k}}, CONTEXT) for k, change in enumerate(changes)]
    columns = pa.schema([("id", pa.int64()), ("ref", pa.int64())])
    part = pa.struct(columns)
    form = pa.schema({"before": part, "after": part, "source": pa.struct({"lsn": pa.int64()}), "op": pa.string()})
    table = eddy.Table("R", columns, key="id", version="lsn", ops="debezium")
    query = eddy.Query(
        [table, eddy.Stream("S", pa.schema([("k", pa.int64())]))], ["R.id = S.k"], select=["R.id", "R.ref"]
    )
    (tmp_path / "S").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "S" / "a.parquet")
    with mock_kafka() as kafka:
        kafka.topic(TOPIC)
        kafka.send(TOPIC, [message for message in messages if message is not None])
        frames = {
            "R": stream_topic(spark, TOPIC, form, servers=kafka.servers, encoding="avro", registry=registry),
            "S": spark.readStream.schema("k long").parquet(str(tmp_path / "S")),
        }
        run(query, frames, tmp_path / "state", tmp_path / "out")
        client._clients.clear()
    assert total(tmp_path / "out") == {(1, 6): 1, (3, None): 1}
