"""The statement set of a program: its INSERT are the queries of one hub, which reads each input once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from eddy.program.connectors import input_frame, sink_of
from eddy.program.join_options import hub_options, join_options
from eddy.program.text import Insertion, ProgramTable, as_spark_has_it
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.hub.checks import check_query
from eddy.spark.streaming.hub.hub import Hub
from eddy.spark.streaming.hub.keys import Choice, key_choices, merged
from eddy.spark.streaming.hub.sources import HubStreams, Source
from eddy.spark.streaming.sinks import FORMATS
from eddy.streams.stream import Stream
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

DIRECTORY = "statement.set"
"""Name of the checkpoint; no table can have this name."""
TRIED = 1000
"""Choices of keys that are looked at; each INSERT multiplies them by the keys of its query."""


def check_set(program: Sequence[Insertion]) -> None:
    """Raise SqlError for a statement set that no hub runs. Starts nothing."""
    hub_options(program[0])
    for insertion in program:
        twice = [name for name, table in insertion.query.tables.items() if name != table]
        if twice:
            raise insertion.refused(
                f"it reads {insertion.query.tables[twice[0]]!r} twice, and a statement set reads each table once; put"
                " this INSERT outside of the set"
            )
    keys = common_keys(program)
    inputs = {name: _input(table) for insertion in program for name, table in insertion.inputs.items()}
    if any(getattr(stream, "ops", None) == "debezium" for stream in inputs.values()):
        return  # the columns of envelopes are known when Spark reads them
    try:
        streams = HubStreams([Source(stream, None, keys[name]) for name, stream in inputs.items()])  # type: ignore[arg-type]
    except EddyError as problem:
        raise program[0].refused(f"the statement set: {problem}") from problem
    for insertion in program:
        output = join_options(insertion).get("output", "append")
        try:
            check_query(streams, insertion.target.name, insertion.query, output)
        except EddyError as problem:
            raise insertion.refused(str(problem)) from problem


def common_keys(program: Sequence[Insertion]) -> dict[str, str]:
    """Return by input a column by which all queries join their inputs. Raises SqlError if there are none."""
    choices: list[Choice] = [{}]
    for insertion in program:
        choices = list(islice(merged(choices, key_choices(insertion.query)), TRIED))
        if not choices:
            raise insertion.refused(
                "all INSERT of a statement set join their tables by the same columns, because their rows are dealt by"
                " one key; this one joins by others than those before it: put it outside of the set"
            )
    inputs = {name: _input(table) for insertion in program for name, table in insertion.inputs.items()}
    return {
        name: next(column for column in stream.schema.names if column in choices[0].get(name, stream.schema.names))
        for name, stream in inputs.items()
    }


def _input(table: ProgramTable) -> Stream:
    assert table.declared.input is not None  # `read_program` has refused a table without columns
    return as_spark_has_it(table.declared.input)


def start_set(
    spark: SparkSession, program: Sequence[Insertion], checkpoint: str, trigger: Mapping[str, Any]
) -> tuple[Hub, StreamingJoinQuery]:
    """Start the hub of a statement set, or resume it. A query of the checkpoint that the program lacks is dropped.

    Raises what `Hub`, `Hub.start` and `Hub.run` raise.
    """
    if trigger.get("finish"):
        raise SparkJoinError(
            "--finish is for INSERT outside of a statement set, whose queries come and go, so its input does not end;"
            " use --once"
        )
    keys = common_keys(program)
    inputs = {name: table for insertion in program for name, table in insertion.inputs.items()}
    sources = [Source(_input(table), input_frame(spark, table), keys[name]) for name, table in inputs.items()]
    hub = Hub(spark, sources, f"{checkpoint}/{DIRECTORY}", **hub_options(program[0]))
    hub.drop()
    for insertion in program:
        form, given = sink_of(insertion.target)
        how = join_options(insertion)
        hub.start(
            insertion.target.name,
            insertion.query,
            FORMATS[form].from_options(given),
            how=how.get("change"),
            output=how.get("output", "append"),
        )
    return hub, hub.run("statement_set", **{name: given for name, given in trigger.items() if name != "finish"})
