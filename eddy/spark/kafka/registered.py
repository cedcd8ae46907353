"""Messages whose schemas are in a registry, as rows: Avro, Protobuf and JSON, by confluent-kafka's deserializers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from eddy.ingest.values import array_of
from eddy.spark.errors import SparkJoinError
from eddy.spark.kafka.decoding import Decode, NotDecodedError, decode_json

if TYPE_CHECKING:
    from google.protobuf.message import Message

Deserialize = Callable[[bytes], Any]
REGISTERED = ("avro", "protobuf", "json")
"""The encodings whose schemas a registry may have."""
UNKNOWN = 404
"""The status of a schema that the registry does not have: the message names an unknown schema."""
_known: dict[tuple[str, ...], Deserialize] = {}
"""The deserializers of this process. Each has a cache of schemas."""


def check_registered(encoding: str, registry: Mapping[str, str] | None, protobuf: str | None) -> None:
    """Raise SparkJoinError for arguments of `stream_topic` that do not fit together, and without the packages."""
    if registry is None and encoding in ("avro", "protobuf"):
        raise SparkJoinError(
            f"encoding={encoding!r}: pass registry={{'url': …}}, the settings of the registry that has the schemas"
        )
    if registry is not None and encoding not in REGISTERED:
        raise SparkJoinError(f"registry: messages of encoding {encoding!r} have no schema there; leave registry= out")
    if registry is not None and not registry.get("url"):
        raise SparkJoinError("registry: the setting 'url' is missing; pass registry={'url': 'http://registry:8081'}")
    if (protobuf is not None) != (encoding == "protobuf"):
        raise SparkJoinError(
            f"encoding={encoding!r}, protobuf={protobuf!r}: messages of Protobuf, and no others, need the name of their"
            " generated class, protobuf='shop_pb2:Order'"
        )
    if registry is not None and any(find_spec(package) is None for package in ("authlib", "fastavro", "jsonschema")):
        raise SparkJoinError("a schema registry needs further packages: pip install 'eddy-join[registry]'")
    if protobuf is not None:
        message_class(protobuf)


def registered(encoding: str, topic: str, registry: Mapping[str, str], protobuf: str | None) -> Decode:
    """Return the decoder of messages of a topic whose schemas a registry has."""
    return partial(_decoded, encoding, topic, registry, protobuf)


def message_class(place: str) -> type[Message]:
    """Return the class that "module:name" names. Raises SparkJoinError."""
    module, _, name = place.partition(":")
    try:
        generated: type[Message] = getattr(import_module(module), name)
        generated.DESCRIPTOR.fields  # noqa: B018
    except (ImportError, AttributeError, ValueError) as problem:
        raise SparkJoinError(
            f"protobuf={place!r} is no class that protoc generated ({problem}); pass 'module:name' of a module that"
            " driver and workers can import"
        ) from problem
    return generated


def _decoded(
    encoding: str,
    topic: str,
    registry: Mapping[str, str],
    protobuf: str | None,
    messages: Sequence[bytes],
    schema: pa.Schema,
) -> pa.Table:
    """Return a row for each message. Raises NotDecodedError, and SparkJoinError if the registry does not answer."""
    if not messages:
        return schema.empty_table()
    records = list(_records(_deserializer(encoding, topic, registry, protobuf), messages, registry))
    if encoding == "json":
        return decode_json([json.dumps(record).encode() for record in records], schema)
    field = _field if encoding == "protobuf" else _of_record
    columns: list[pa.Array] = []
    for column in schema:
        values = [field(record, column.name, column.type) for record in records]
        try:
            columns.append(array_of(values, column.type))
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            for number, value in enumerate(values):
                try:
                    array_of([value], column.type)
                except (TypeError, ValueError, OverflowError, pa.ArrowException) as why:
                    raise NotDecodedError(number, f"column {column.name!r} has type {column.type}: {why}") from why
            raise
    return pa.table(columns, schema)


def _records(deserialize: Deserialize, messages: Sequence[bytes], registry: Mapping[str, str]) -> Iterator[Any]:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    for number, message in enumerate(messages):
        try:
            record = deserialize(message)
        except SchemaRegistryError as problem:
            if problem.http_status_code == UNKNOWN:
                raise NotDecodedError(
                    number, f"its schema is not in the registry: {problem.error_message}"
                ) from problem
            raise _unanswered(registry, problem) from problem
        except Exception as problem:
            # A deserializer raises the errors of its libraries for HTTP and for the format.
            if isinstance(problem, OSError) or type(problem).__module__.startswith("httpx"):
                raise _unanswered(registry, problem) from problem
            raise NotDecodedError(number, f"{type(problem).__name__}: {problem}") from problem
        if record is None:
            raise NotDecodedError(number, "it is empty")
        yield record


def _unanswered(registry: Mapping[str, str], problem: Exception) -> SparkJoinError:
    return SparkJoinError(
        f"the schema registry at {registry['url']} gives no schema: {problem}; check its address, its settings and the"
        " job's rights"
    )


def _deserializer(encoding: str, topic: str, registry: Mapping[str, str], protobuf: str | None) -> Deserialize:
    """Return the deserializer of this process for a topic."""
    key = (encoding, topic, repr(sorted(registry.items())), protobuf or "")
    if key not in _known:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.serialization import MessageField, SerializationContext
        except ImportError as problem:
            raise SparkJoinError(
                "this Python cannot ask a schema registry; driver and workers need pip install 'eddy-join[registry]'"
            ) from problem
        try:
            client = SchemaRegistryClient(dict(registry))
        except (TypeError, ValueError) as problem:
            raise SparkJoinError(f"confluent-kafka refuses the settings of the schema registry: {problem}") from problem
        deserialize = _made(encoding, client, protobuf)
        context = SerializationContext(topic, MessageField.VALUE)
        _known[key] = lambda message: deserialize(message, context)
    return _known[key]


def _made(encoding: str, client: Any, protobuf: str | None) -> Any:
    conf = {"subject.name.strategy.type": "TOPIC"}
    if encoding == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return AvroDeserializer(client, conf=conf)
    if encoding == "json":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(None, schema_registry_client=client, conf=conf)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    assert protobuf is not None
    return ProtobufDeserializer(message_class(protobuf), conf, client)


def _of_record(record: Any, name: str, kind: pa.DataType) -> Any:
    """Return a field of a record of Avro as a value for a column; None for an absent field."""
    return _fitted(record.get(name), kind) if isinstance(record, Mapping) else None


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """Return a value without the fields that the type lacks."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping) and pa.types.is_struct(kind):
        return {field.name: _of_record(value, field.name, field.type) for field in kind}
    if isinstance(value, Mapping) and pa.types.is_map(kind):
        return [(key, _fitted(element, kind.item_type)) for key, element in value.items()]
    if isinstance(value, list) and kind.num_fields == 1:
        return [_fitted(element, kind.field(0).type) for element in value]
    return value


def _field(message: Any, name: str, kind: pa.DataType) -> Any:
    """Return a field of a message of Protobuf as a value for a column; None for an absent field."""
    known = message.DESCRIPTOR.fields_by_name.get(name)
    if known is None or (known.has_presence and not message.HasField(name)):
        return None
    value = getattr(message, name)
    if known.message_type is not None and known.message_type.GetOptions().map_entry:
        part = known.message_type.fields_by_name["value"]
        return [
            (key, _value(element, part, kind.item_type if pa.types.is_map(kind) else kind))
            for key, element in value.items()
        ]
    if known.is_repeated:
        inside = kind.value_type if pa.types.is_list(kind) else kind
        return [_value(element, known, inside) for element in value]
    return _value(value, known, kind)


def _value(value: Any, known: Any, kind: pa.DataType) -> Any:
    from google.protobuf import duration_pb2, timestamp_pb2

    if known.enum_type is not None and not pa.types.is_integer(kind):
        return known.enum_type.values_by_number[value].name
    if known.message_type is None:
        return value
    match known.message_type.full_name:
        case timestamp_pb2.Timestamp.DESCRIPTOR.full_name:
            return value.ToDatetime(UTC)
        case duration_pb2.Duration.DESCRIPTOR.full_name:
            return value.ToTimedelta()
    if known.message_type.file.name == "google/protobuf/wrappers.proto":
        return value.value
    return {field.name: _field(value, field.name, field.type) for field in kind} if pa.types.is_struct(kind) else value
