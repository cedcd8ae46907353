"""The time zone of a Spark session under a name that Arrow knows.

In Spark a `timestamp` is an instant, and the zone of the session determines its date, its hour and its text.
Expressions of Arrow take the zone from the type of the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.session.timeZone"


def session_zone(spark: SparkSession) -> str:
    """Return the zone of a session: a region such as "Asia/Tokyo", or an offset such as "+09:00".

    Spark also takes names that Arrow lacks, such as "GMT+9" and "PST". Raises SparkJoinError for a zone that has no
    name in Arrow.
    """
    given = spark.conf.get(SETTING) or "UTC"
    jvm: Any = getattr(spark, "_jvm", None)  # None in Spark Connect
    dates = None if jvm is None else jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
    name = given if dates is None else str(dates.getZoneId(given).normalized().getId())
    name = "UTC" if name == "Z" else name
    try:
        pc.hour(pa.array([0], pa.timestamp("us", name)))
    except pa.ArrowInvalid as problem:
        raise SparkJoinError(
            f"{SETTING}={given!r}: Arrow has no such time zone; set a region such as 'Europe/Paris', or an offset such"
            " as '+09:00'"
        ) from problem
    return name
