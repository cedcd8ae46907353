from .dataframe_filter import filter
from .dataframe_join import explain, join
from .environment.session import session
from .errors import SparkJoinError, StreamingStateError
from .kafka.source import stream_topic
from .partitioning.engine import PartitionEngine
from .streaming.sinks import Sink
from .streaming.sinks.transactions import read_transactions, stream_transactions

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
    "stream_topic",
    "stream_transactions",
]
