"""Joins and adaptive filters of Spark DataFrames. pyspark is imported only when it is used.

    from eddy.spark import join, session
    spark = session()
    results = join(query, {"R": spark.read.parquet("r"), "S": spark.read.parquet("s")})

Streaming DataFrames are joined by the same function: see `eddy.spark.streaming`.
"""

from eddy.spark.batch.dataframe import explain
from eddy.spark.batch.engine import PartitionEngine
from eddy.spark.environment.session import session
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.filters import filter
from eddy.spark.joins import join
from eddy.spark.streaming.sinks.transactions import read as read_transactions

__all__ = [
    "PartitionEngine",
    "SparkJoinError",
    "StreamingStateError",
    "explain",
    "filter",
    "join",
    "read_transactions",
    "session",
]
