"""The topic of Kafka behind a streaming DataFrame, if workers can read it in place of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.kafka.topic import topic_of
from eddy.spark.transports.inputs import StreamInput, TopicPart
from eddy.spark.transports.parquet_source import DECLARATIONS, logical_plan, stored_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAF = "StreamingRelationV2"


class TopicInput(StreamInput):
    """A stream of messages of a `Topic`."""

    def read(self, part: TopicPart, stream: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema(self.types)
        try:
            for batch in self.place.read(part.partition, part.start, part.end, schema):
                yield pa.RecordBatch.from_arrays([batch.column(stored) for stored in self.columns], names=list(names))
        except SparkJoinError as problem:
            raise type(problem)(f"stream {stream!r}: {problem}") from problem


def topic_input(frame: DataFrame, names: Sequence[str]) -> TopicInput | None:
    """Return the topic behind a streaming DataFrame that only selects and renames columns; None for another source.

    Raises UnsuitableError if a column is computed.
    """
    from eddy.spark.kafka.source import NAME, TOPIC

    plan = logical_plan(frame, "analyzed")
    leaf = plan
    while leaf.getClass().getSimpleName() in ("Project", *DECLARATIONS):
        leaf = leaf.child()
    if leaf.getClass().getSimpleName() != LEAF or leaf.sourceName() != NAME:
        return None
    columns, types, relation = stored_columns(frame, plan, LEAF, names)
    return TopicInput(topic_of(json.loads(relation.extraOptions().get(TOPIC))), columns, types)
