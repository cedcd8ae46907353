"""The check of a sink that replaces rows by key: its key has to identify the results of the query."""

from __future__ import annotations

from eddy.query.query import Query
from eddy.query.result_key import key_lacks
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks.base import Sink


def check_sink_key(sink: Sink, query: Query) -> None:
    """Raise SparkJoinError if results of a query would replace each other in a sink, because they can have one key.

    The rows of a stream have no key, so any column of a stream is taken to identify them.
    """
    key = sink.replaces_by(query.output_schema)
    lacking = [] if key is None else key_lacks(query, key.columns)
    if key is not None and lacking:
        raise SparkJoinError(
            f"{key.place}: several results can have one key {', '.join(key.columns)}, and would replace each other; add"
            f" to it {', and '.join(lacking)}"
        )
