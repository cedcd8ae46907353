from .changes import delta_changes
from .dataframe_filter import filter
from .dataframe_join import explain, join
from .environment.session import session
from .errors import SparkJoinError, StreamingStateError
from .kafka.source import stream_topic
from .partitioning.engine import PartitionEngine
from .statement import sql
from .streaming.hub.hub import Hub, HubQuery
from .streaming.hub.sources import Source
from .streaming.sinks import Sink
from .streaming.sinks.results_source import stream_transactions
from .streaming.sinks.transactions import read_transactions

__all__ = [
    "Hub",
    "HubQuery",
    "PartitionEngine",
    "Sink",
    "Source",
    "SparkJoinError",
    "StreamingStateError",
    "delta_changes",
    "explain",
    "filter",
    "join",
    "read_transactions",
    "session",
    "sql",
    "stream_topic",
    "stream_transactions",
]
