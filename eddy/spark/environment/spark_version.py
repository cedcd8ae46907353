"""The versions of Spark that the package runs on, and all that differs between them.

  - Types of Arrow take the zone of instants as an argument since 4.2, and were of UTC before.
  - The class that writes Spark's own logs moved in 4.1.
  - A DataFrame can be dealt by the number of a partition since 4.1 (`dealt`).
  - Since 4.2 a source in Python gets the offset at which a micro-batch starts, with a limit, and may prepare for the
    trigger `availableNow`. Before, Spark asks it for its latest offset only (`stream_reader.py`).

Only this module and `stream_reader.py` know versions; others ask what a version can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

FIRST, LAST = (4, 0), (4, 3)
"""The first and the last minor version that were tested."""


def version() -> tuple[int, int]:
    """Return the minor version of pyspark here, such as (4, 1)."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def check_version(spark: SparkSession | None = None) -> None:
    """Raise SparkJoinError for a version of Spark on which nothing here was tested.

    spark   a session, whose JVM must have the version of pyspark
    """
    import pyspark

    if spark is not None and not str(spark.version).startswith(".".join(map(str, version()))):
        raise SparkJoinError(
            f"the session runs Spark {spark.version}, and pyspark is {pyspark.__version__}: install the pyspark of that"
            " version, or unset SPARK_HOME"
        )

    if not FIRST <= version() <= LAST:
        first, last = (".".join(map(str, release)) for release in (FIRST, LAST))
        raise SparkJoinError(
            f"pyspark {pyspark.__version__} is installed, and eddy runs on Spark {first} to {last}:"
            f" pip install 'pyspark>={first},<{LAST[0]}.{LAST[1] + 1}', of the version of the cluster"
        )


def limits_reads() -> bool:
    """Return whether Spark gives a source in Python the start of a micro-batch and a limit of its rows."""
    return version() >= (4, 2)


def has_local_sockets() -> bool:
    """Return whether Spark can talk to its Python workers over sockets of the machine."""
    return version() >= (4, 1)


def checkpoint_manager() -> str:
    """Return the class with which Spark writes a file of its own logs at once, without a checksum beside it."""
    package = "org.apache.spark.sql.execution.streaming"
    return f"{package}.{'checkpointing.' if version() >= (4, 1) else ''}FileSystemBasedCheckpointFileManager"


def dealt(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return a DataFrame of as many partitions; a row is in the partition whose number is in an integer column."""
    if version() >= (4, 1):
        return frame.repartitionById(partitions, column)
    from pyspark.sql import functions as F

    numbers = F.lit(hashed_to(partitions)).cast("array<long>")
    return frame.repartition(partitions, F.element_at(numbers, F.col(column) + 1))


def hashed_to(partitions: int) -> list[int]:
    """Return for each partition a number that Spark's hash partitioning deals to it. O(n log n) time expected.

    This is the 32-bit MurmurHash3 of Spark with the seed 42 of a long, modulo the number of partitions.
    """
    chosen = np.full(partitions, -1)
    first, many = 0, 4 * partitions
    while (chosen < 0).any():
        numbers = np.arange(first, first + many)
        parts = _murmur3(numbers).astype(np.int32) % partitions
        chosen[parts[::-1]] = np.where(chosen[parts[::-1]] < 0, numbers[::-1], chosen[parts[::-1]])
        first += many
    return [int(number) for number in chosen]


def _murmur3(numbers: np.ndarray) -> np.ndarray:
    """Return the hashes, uint32, of numbers from 0 to 2^32 - 1, as Spark hashes a long."""

    def turned(value: np.ndarray, bits: int) -> np.ndarray:
        return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))

    hashes = np.full(len(numbers), 42, np.uint32)
    for word in (numbers.astype(np.uint32), np.zeros(len(numbers), np.uint32)):
        mixed = turned(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = turned(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes ^= np.uint32(8)
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(bits))) * np.uint32(factor)
    return hashes ^ (hashes >> np.uint32(16))


def arrow_type(kind: DataType, zone: str = "UTC") -> pa.DataType:
    """Return the Arrow type of a type of Spark, with instants in a zone. Raises PySparkException without one."""
    from pyspark.sql.pandas import types

    if version() >= (4, 2):
        return types.to_arrow_type(kind, timezone=zone)
    return _in_zone(types.to_arrow_type(kind), zone)


def arrow_schema(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema of a schema of Spark, with instants in a zone. Raises PySparkException without one."""
    fields = [pa.field(field.name, arrow_type(field.dataType, zone), field.nullable) for field in schema.fields]
    return pa.schema(fields)


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_zone(kind.value_type, zone)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in kind])
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_in_zone(kind.item_type, zone))
        return pa.map_(_in_zone(kind.key_type, zone), item)
    return kind
