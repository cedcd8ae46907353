"""Sinks: destinations for the results of a streaming join.

Tasks write Parquet files to a staging directory. The batch's manifest names the files that count, which commits the
batch. Then the driver publishes these files; after a crash the driver may publish a batch again. `Sink` states the
contract.

    join(query, frames, checkpoint="state").writeStream.sink(ParquetSink("results")).start()

To add a sink with a name for `writeStream.format(…)`, write a subclass of `Sink` in a file of this folder and add it to
`FORMATS`.
"""

from eddy.spark.streaming.sinks.base import ReplacingKey, Sink
from eddy.spark.streaming.sinks.callback import CallbackSink
from eddy.spark.streaming.sinks.console import ConsoleSink
from eddy.spark.streaming.sinks.delta import DeltaSink
from eddy.spark.streaming.sinks.kafka import KafkaSink
from eddy.spark.streaming.sinks.nothing import NullSink
from eddy.spark.streaming.sinks.parquet import ParquetSink
from eddy.spark.streaming.sinks.transactions import TransactionSink

FORMATS: dict[str, type[Sink]] = {
    sink.name: sink for sink in (ParquetSink, TransactionSink, DeltaSink, KafkaSink, ConsoleSink, NullSink)
}
"""Sinks by the name that `writeStream.format(…)` takes."""

__all__ = [
    "FORMATS",
    "CallbackSink",
    "ConsoleSink",
    "DeltaSink",
    "KafkaSink",
    "NullSink",
    "ParquetSink",
    "ReplacingKey",
    "Sink",
    "TransactionSink",
]
