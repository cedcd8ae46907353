"""Joins and adaptive filters of Spark DataFrames. Importing this package does not import pyspark.

    from eddy.spark import join, session
    spark = session()
    results = join(query, {"R": spark.read.parquet("r"), "S": spark.read.parquet("s")})

The same function joins streaming DataFrames: see `eddy.spark.streaming`. `Sink` is the base class of sinks for results.
"""

from eddy.spark.batch.join import explain
from eddy.spark.dataframe_filter import filter
from eddy.spark.dataframe_join import join
from eddy.spark.environment.session import session
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.partitioning.engine import PartitionEngine
from eddy.spark.streaming.sinks import Sink
from eddy.spark.streaming.sinks.transactions import read as read_transactions
from eddy.spark.streaming.sinks.transactions import stream as stream_transactions

__all__ = [
    "PartitionEngine",
    "Sink",
    "SparkJoinError",
    "StreamingStateError",
    "explain",
    "filter",
    "join",
    "read_transactions",
    "session",
    "stream_transactions",
]
