"""The settings of `DataFrame.withWatermark` on a DataFrame: the column of event times, and the delay of rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELAY = "spark.watermarkDelayMs"
"""Spark keeps the delay in the metadata of the column."""


def delays(frame: DataFrame) -> dict[str, timedelta]:
    """Return the delay of each column that `withWatermark` named; Spark keeps the delays of several calls."""
    fields = [field for field in frame.schema.fields if _DELAY in (field.metadata or {})]
    return {field.name: timedelta(milliseconds=int(field.metadata[_DELAY])) for field in fields}
