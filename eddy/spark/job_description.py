"""What Spark's UI says a job is for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Give the Spark jobs that this thread starts in the body a description; restore the one before afterwards.

    Spark keeps it per thread of the JVM, and pyspark gives each Python thread one of its own.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        # Taken away if there was none; pyspark's annotation does not know of that.
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]
