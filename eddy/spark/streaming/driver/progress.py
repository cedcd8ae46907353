"""Spark's progress of a micro-batch, completed with the figures of the join.

Spark's progress covers the first part of a micro-batch: the rows that Spark carries. It does not cover the rows of
files that the workers read, the state, and the event times of the join.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddy.query.query import Query
from eddy.spark.streaming.driver.metrics import Metrics
from eddy.spark.streaming.worker.log_stage import LogReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED = "eddy"


def observed(query: Query, logged: DataFrame) -> DataFrame:
    """Return the plan that logs rows with Spark metrics, which each progress has as `observedMetrics["eddy"]`.

    logged                          the plan: it yields a report for each task and stream
    rows, bytes                     metrics over all streams: rows and bytes logged
    rows of <name>, last of <name>  metrics per stream: rows logged, greatest event time in ticks (null without rows or
                                    event times)
    """
    from pyspark.sql import functions as F

    metrics = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("rows", "bytes")]
    for i, stream in enumerate(query.streams):
        of_stream = F.col("stream") == i
        metrics.append(F.coalesce(F.sum(F.when(of_stream, F.col("rows"))), F.lit(0)).alias(f"rows of {stream.name}"))
        metrics.append(F.max(F.when(of_stream, F.col("last"))).alias(f"last of {stream.name}"))
    return logged.observe(OBSERVED, *metrics)


def _observed(query: Query, logged: LogReport) -> dict[str, Any]:
    """Return the same metrics of rows that the workers read."""
    metrics: dict[str, Any] = {"rows": sum(logged.rows), "bytes": logged.bytes}
    for stream, rows, last in zip(query.streams, logged.rows, logged.greatest, strict=True):
        metrics |= {f"rows of {stream.name}": rows, f"last of {stream.name}": last}
    return metrics


def completed(progress: Mapping[str, Any], query: Query, metrics: Metrics) -> dict[str, Any]:
    """Return Spark's progress as a dict, with the metrics of its micro-batch.

        Adds the figures that Spark lacks: `observedMetrics["eddy"]`, `numInputRows` and the rates, `stateOperators`
    with the one state of the join, and `eventTime`, in ticks of the query's common time type. "eddy" is the row of
    `batches()`, None for a batch that is not in memory.
    """
    extended = dict(progress)
    row, logged = metrics.row(extended["batchId"]), metrics.logged(extended["batchId"])
    extended["eddy"] = row
    if row is None or logged is None:
        return extended
    # Spark has rows here; the progress has plain dicts.
    seen = {name: spark_row.asDict() for name, spark_row in (extended.get("observedMetrics") or {}).items()}
    extended["observedMetrics"] = {OBSERVED: _observed(query, logged), **seen}
    if not extended.get("numInputRows"):
        extended["numInputRows"] = row["rows"]
        took = extended["durationMs"].get("triggerExecution", 0) / 1000
        extended["processedRowsPerSecond"] = row["rows"] / took if took else 0.0
    times = [last for last in logged.greatest if last is not None]
    if times:
        extended["eventTime"] = {"max": str(max(times))}
        if row["watermark"] is not None:
            extended["eventTime"]["watermark"] = str(row["watermark"])
    extended["stateOperators"] = [
        {
            "operatorName": "eddyJoin",
            "numRowsTotal": row["state_rows"],
            "numRowsUpdated": row["rows"] - row["late"],
            "numRowsDroppedByWatermark": row["late"],
            "memoryUsedBytes": row["state_bytes"],
            "commitTimeMs": round(row["commit_seconds"] * 1000),
            "customMetrics": {
                name: row[name] for name in ("groups", "mapped", "loaded", "moved", "transitions", "results")
            },
        }
    ]
    return extended
