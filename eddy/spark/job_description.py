"""Descriptions of jobs in Spark's UI."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the Spark jobs that this thread starts in the body; restore the previous description afterwards.

    Spark keeps descriptions per thread of the JVM, and pyspark gives each Python thread its own thread there.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        # None removes the description, which pyspark's annotation does not allow.
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]
