"""All three-leg itineraries in a sample of US flights.

One file of flights is read as three streams, one for each leg. A passenger changes planes where a leg ends, and the
next leg departs half an hour to four hours after the departure before:

    leg1.destination = leg2.origin      leg2.destination = leg3.origin

The windows contain two upper bounds: the third leg departs at most 8 h after the first and 4 h after the second. A
filter on the results contains the lower bounds, and the 4 h between the first two.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from eddy import Query, Range, Stream
from eddy.demo.job import FILES, DemoJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import RenderableType

SHORTEST = timedelta(minutes=30)
LONGEST = timedelta(hours=4)
LEGS = ("leg1", "leg2", "leg3")
FLIGHTS = pa.schema(
    [
        ("departed", pa.timestamp("us")),
        ("delay_min", pa.int64()),
        ("distance_mi", pa.int64()),
        ("origin", pa.string()),
        ("destination", pa.string()),
    ]
)


def connects(before: str, after: str) -> pc.Expression:
    """Return the condition that a leg departs within the bounds after the leg before."""
    departure, next_departure = pc.field(f"{before}.departed"), pc.field(f"{after}.departed")
    earliest = departure + pa.scalar(SHORTEST, pa.duration("us"))
    latest = departure + pa.scalar(LONGEST, pa.duration("us"))
    return (next_departure >= earliest) & (next_departure <= latest)


def query() -> Query:
    """Return the query. The third leg is the last one, so its window needs no older flights."""
    windows = (2 * LONGEST, LONGEST, timedelta(0))
    return Query(
        streams=[
            Stream(leg, FLIGHTS, window=Range(window), time="departed")
            for leg, window in zip(LEGS, windows, strict=True)
        ],
        on=["leg1.destination = leg2.origin", "leg2.destination = leg3.origin"],
        where=connects("leg1", "leg2") & connects("leg2", "leg3"),
        select={
            "origin": "leg1.origin",
            "departed_1": "leg1.departed",
            "stop_1": "leg2.origin",
            "departed_2": "leg2.departed",
            "stop_2": "leg3.origin",
            "departed_3": "leg3.departed",
            "destination": "leg3.destination",
            "miles_1": "leg1.distance_mi",
            "miles_2": "leg2.distance_mi",
            "miles_3": "leg3.distance_mi",
        },
    )


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """Return a DataFrame of the flights for each leg."""
    return {leg: spark.read.parquet((FILES / "flights.parquet").as_uri()) for leg in LEGS}


def findings(results: pa.Table) -> list[RenderableType]:
    """Return the longest itineraries, the busiest pairs of stops, and the number of round trips, for printing."""
    miles = pc.add(pc.add(results["miles_1"], results["miles_2"]), results["miles_3"])
    results = results.append_column("miles", miles)
    longest = Table(title="The longest itineraries", title_justify="left")
    for heading in ("from", "leaves", "stop", "leaves", "stop", "leaves", "to", "miles"):
        longest.add_column(heading, justify="right" if heading == "miles" else "left")
    order = [
        ("miles", "descending"),
        ("departed_1", "ascending"),
        ("departed_2", "ascending"),
        ("departed_3", "ascending"),
    ]
    for row in results.sort_by(order).slice(0, 6).to_pylist():
        longest.add_row(
            row["origin"],
            f"{row['departed_1']:%d %b %H:%M}",
            row["stop_1"],
            f"{row['departed_2']:%H:%M}",
            row["stop_2"],
            f"{row['departed_3']:%H:%M}",
            row["destination"],
            f"{row['miles']:,}",
        )
    busiest = Table("stops", title="The busiest pairs of stops", title_justify="left")
    busiest.add_column("itineraries", justify="right")
    counts = results.group_by(["stop_1", "stop_2"]).aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("stop_1", "ascending"), ("stop_2", "ascending")]
    for row in counts.sort_by(order).slice(0, 5).to_pylist():
        busiest.add_row(f"{row['stop_1']} - {row['stop_2']}", f"{row['count_all']:,}")
    round_trips = pc.sum(pc.equal(results["origin"], results["destination"])).as_py() or 0
    return [longest, busiest, f"{round_trips:,} itineraries end where they began."]


def job() -> DemoJob:
    """Return the job."""
    return DemoJob(
        "itineraries",
        "Three-leg flight itineraries",
        "20 000 flights, read as three streams; every leg departs 30 minutes to 4 hours after the one before",
        query(),
        "(leg1 leg2) leg3",
        frames,
        findings,
    )
