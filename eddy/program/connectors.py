"""Connectors: how the options of WITH (…) become a streaming DataFrame, or the sink of a join."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddy.program.join_options import check_join, join_options, value_of
from eddy.program.text import PREFIX, Insertion, ProgramTable
from eddy.spark.errors import SparkJoinError, first_line
from eddy.spark.types import spark_schema, struct_type
from eddy.streams.keyed import OP_COLUMN, KeyedInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)
ANY = "…"
"""The end of a name of an option that stands for all that begin with what is before it."""
OF_TABLE = ("connector", "ops", "version")
"""Options that every connector of an input takes."""


@dataclass(frozen=True)
class Connector:
    """A connector in one direction.

    needed   the options without which it does not work
    choices  option -> its values, of which the first is the default
    more     the other options; `kafka.…` stands for all that begin with `kafka.`
    """

    needed: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    more: tuple[str, ...] = ()

    def known(self, option: str) -> bool:
        """Return whether an option has a meaning."""
        if option in (*self.needed, *self.choices, *self.more):
            return True
        return any(name.endswith(ANY) and option.startswith(name.removesuffix(ANY)) for name in self.more)


INPUTS: dict[str, Connector] = {
    "files": Connector(("path",), {"format": ("parquet", "json", "csv", "orc")}, ("max-files", "pattern", "header")),
    "kafka": Connector(
        ("topic", "servers"),
        {
            "format": ("json", "arrow", "avro", "protobuf"),
            "starting": ("earliest", "latest"),
            "malformed": ("fail", "skip"),
        },
        ("max-rows", "dead-letters", "registry", "protobuf", "kafka.…"),
    ),
    "results": Connector(("path",)),
}
OUTPUTS: dict[str, Connector] = {
    "files": Connector(("path",), {"format": ("parquet",)}),
    "results": Connector(("path",)),
    "delta": Connector(("path",), {}, ("partition-by",)),
    "kafka": Connector(("topic", "servers"), {}, ("key", "kafka.…")),
    "print": Connector((), {}, ("rows",)),
}


def options_of(table: ProgramTable, known: Mapping[str, Connector], role: str) -> tuple[str, dict[str, str]]:
    """Return the connector of a table, and its options, defaults included.

    known   `INPUTS` or `OUTPUTS`
    role    what the table is, for errors

    Raises SqlError, at the place of the option, for a connector or an option that is unknown, missing or has a value
    that it cannot have.
    """
    given = {
        name: value_of(name, option.text, partial(table.refused, name))
        for name, option in table.declared.options.items()
        if known is INPUTS or not name.startswith(PREFIX)
    }
    if "connector" not in given:
        names = " or ".join(map(repr, known))
        raise table.refused("connector", f"WITH ('connector' = …) is missing; {role} has {names}")
    kind = given.pop("connector")
    if kind not in known:
        raise table.refused("connector", f"{kind!r} is no connector of {role}; there are {', '.join(known)}")
    connector = known[kind]
    for name in given:
        if not connector.known(name) and not (name in OF_TABLE and known is INPUTS):
            every = ", ".join((*connector.needed, *connector.choices, *connector.more)) or "none"
            raise table.refused(name, f"option {name!r} has no meaning for {role} of {kind!r}; there are {every}")
    for name in connector.needed:
        if not given.get(name):
            raise table.refused("connector", f"{role} of {kind!r} needs the option {name!r}")
    for name, values in connector.choices.items():
        if given.setdefault(name, values[0]) not in values:
            raise table.refused(name, f"{name!r} is one of {', '.join(values)}, not {given[name]!r}")
    for name in ("max-files", "max-rows", "rows"):
        if name in given and not _NUMBER.fullmatch(given[name]):
            raise table.refused(name, f"{name!r} is a number from 1 to 999999999, not {given[name]!r}")
    if "header" in given and (given["format"] != "csv" or given["header"] not in ("true", "false")):
        raise table.refused("header", "'header' is true or false, for the format csv")
    for name in ("kafka.", "kafka.bootstrap.servers"):
        if name in given:
            raise table.refused(name, f"{name!r} is no setting; 'servers' has the addresses of brokers")
    return kind, given


def frame_schema(table: ProgramTable) -> pa.Schema:
    """Return the columns that come from the connector: those of the table, of its changes, or of its envelopes."""
    stream = table.declared.input
    assert stream is not None
    schema = spark_schema(stream.schema)
    ops = stream.ops if isinstance(stream, KeyedInput) else None
    if ops == "column":
        return schema.append(pa.field(OP_COLUMN, pa.string()))
    if ops != "debezium":
        return schema
    row = pa.struct(list(schema))
    version = table.declared.options.get("version")
    source = [] if version is None else [pa.field("source", pa.struct([(version.text, pa.int64())]))]
    return pa.schema([("op", pa.string()), ("before", row), ("after", row), *source])


def input_frame(spark: SparkSession, table: ProgramTable) -> DataFrame:
    """Return the streaming DataFrame of an input. Raises SqlError for its options."""
    from pyspark.errors import PySparkException

    kind, given = options_of(table, INPUTS, "an input")
    try:
        frame: DataFrame = _FRAMES[kind](spark, table, given)
    except PySparkException as problem:
        raise table.refused("path", first_line(problem)) from problem
    except SparkJoinError as problem:
        raise table.refused("connector", str(problem)) from problem
    return frame


def _files(spark: SparkSession, table: ProgramTable, given: Mapping[str, str]) -> DataFrame:
    names = {"max-files": "maxFilesPerTrigger", "pattern": "pathGlobFilter", "header": "header"}
    options = {other: given[name] for name, other in names.items() if name in given}
    if given["format"] in ("json", "csv"):
        # Otherwise Spark reads what does not fit as null, and the columns of CSV by their order in spite of a header.
        options |= {"mode": "FAILFAST"}
    if given.get("header") == "true":
        options |= {"enforceSchema": "false"}
    reader = spark.readStream.schema(struct_type(frame_schema(table))).options(**options)
    return reader.format(given["format"]).load(given["path"])


def _topic(spark: SparkSession, table: ProgramTable, given: Mapping[str, str]) -> DataFrame:
    options: dict[str, Any] = {
        "encoding": given["format"],
        "starting": given["starting"],
        "malformed": given["malformed"],
        "max_rows": int(given["max-rows"]) if "max-rows" in given else None,
        "dead_letters": given.get("dead-letters"),
        "registry": {"url": given["registry"]} if "registry" in given else None,
        "protobuf": given.get("protobuf"),
        "settings": _settings(given),
    }
    from eddy.spark import stream_topic

    return stream_topic(spark, given["topic"], frame_schema(table), servers=given["servers"], **options)


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): text for name, text in given.items() if name.startswith("kafka.")}


def _results(spark: SparkSession, table: ProgramTable, given: Mapping[str, str]) -> DataFrame:
    from eddy.spark import stream_transactions

    return stream_transactions(spark, given["path"])


_FRAMES: dict[str, Callable[[SparkSession, ProgramTable, Mapping[str, str]], DataFrame]] = {
    "files": _files,
    "kafka": _topic,
    "results": _results,
}


def sink_of(table: ProgramTable) -> tuple[str, dict[str, str]]:
    """Return the format of `writeStream` for an output, and its options. Raises SqlError for options of the table."""
    kind, given = options_of(table, OUTPUTS, "an output")
    key = ",".join(table.declared.key)
    if key and kind not in ("delta", "kafka"):
        raise table.refused(None, f"rows replace each other by a PRIMARY KEY in 'delta' and 'kafka', not in {kind!r}")
    if kind in ("files", "results"):
        return {"files": "parquet", "results": "transactions"}[kind], {"path": given["path"]}
    if kind == "print":
        return "console", {"numRows": given["rows"]} if "rows" in given else {}
    if kind == "delta":
        parts = {"partitionBy": given["partition-by"]} if "partition-by" in given else {}
        return "delta", {"path": given["path"], **parts, **({"key": key} if key else {})}
    if key and "key" in given:
        raise table.refused("key", "PRIMARY KEY is the key of the messages; leave 'key' out")
    named = {"key": key, "upsert": "true"} if key else {"key": given["key"]} if "key" in given else {}
    settings = {f"kafka.{name}": text for name, text in _settings(given).items()}
    return "kafka", {**settings, "kafka.bootstrap.servers": given["servers"], "topic": given["topic"], **named}


def check_output(insertion: Insertion) -> None:
    """Raise SqlError for options of an output and of its join, and for those that name no column of its query."""
    table, columns = insertion.target, insertion.query.output_schema.names
    check_join(insertion, join_options(insertion))
    _, given = options_of(table, OUTPUTS, "an output")
    sink_of(table)
    for name in ("key", "partition-by"):
        for column in given[name].split(",") if name in given else []:
            if column.strip() not in columns:
                raise table.refused(name, f"{name!r}: the query gives no column {column.strip()!r}")


def connector_of(table: ProgramTable, known: Mapping[str, Connector], role: str) -> str:
    """Return a text on the connector of a table and its place. Raises SqlError for its options."""
    kind, given = options_of(table, known, role)
    return " ".join([kind, *(given[name] for name in known[kind].needed if name != "servers")])
