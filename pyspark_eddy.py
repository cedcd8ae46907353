"""Spark's way to a source of another package: `spark.readStream.format("eddy")` works without registration.

Spark imports all modules whose names begin with `pyspark_`, and registers the class `DefaultSource` of each.
"""

from eddy.spark.streaming.sinks.results_source import ResultsSource as DefaultSource

__all__ = ["DefaultSource"]
