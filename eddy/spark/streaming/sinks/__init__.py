"""Where the results of a batch go.

Tasks write Parquet files into a staging directory; the batch's manifest names those that count, which commits the
batch; then the driver publishes them. It may publish a batch again after a crash: publishing twice is publishing once.

    from eddy.spark.streaming.sinks import ParquetSink
    ParquetSink("results")
"""

from eddy.spark.streaming.sinks.base import Sink
from eddy.spark.streaming.sinks.callback import CallbackSink
from eddy.spark.streaming.sinks.console import ConsoleSink
from eddy.spark.streaming.sinks.nothing import NullSink
from eddy.spark.streaming.sinks.parquet import ParquetSink
from eddy.spark.streaming.sinks.transactions import TransactionSink

__all__ = ["CallbackSink", "ConsoleSink", "NullSink", "ParquetSink", "Sink", "TransactionSink"]
