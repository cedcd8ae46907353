"""Tolls of Linear Road: two queries over car reports in one engine, and a join of their results that charges tolls.

Cars report their segment (a mile of an expressway) and their speed every 30 seconds. One query has the average speed of
each segment over the last five minutes, once a minute: a sum over a sliding window of one stream. Another one has the
number of cars in the minute before. A third query, in SQL, joins both with the cars that enter a segment: where the
average is below 40 miles per hour and more than 50 cars were there, the toll is 2 · (cars − 50)², as in the benchmark.
At minute 20 the average changes to that of two minutes, while rows arrive; the old version stops at the first result of
the new one.

Source: Arasu and others, "Linear Road: A stream data management benchmark", VLDB 2004. Accidents as a query of their
own, and account balances, are left out.

Output:

    reports 72,000, averages 1,160, slower than 40 mph 28
    entries 32,734, tolls 785, charged 3.1 million
    highest: 18,050 in segment 8, minute 19, 145 cars at 30 mph
    version 0: from 0, ended 52800
    version 1: from 48000, ended None
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from eddy import Engine, Hopping, Query, Range, Runtime, Stream, Tumbling, agg, sql

MINUTE = 60
MINUTES, CARS, SEGMENTS = 30, 1200, 40
REPORT = pa.schema([("car", pa.int64()), ("segment", pa.int64()), ("speed", pa.float64()), ("at", pa.int64())])
SPEED = pa.schema([("segment", pa.int64()), ("minute", pa.int64()), ("mph", pa.float64())])
COUNT = pa.schema([("segment", pa.int64()), ("minute", pa.int64()), ("cars", pa.int64())])
ENTRY = pa.schema([("car", pa.int64()), ("segment", pa.int64()), ("minute", pa.int64())])


def reports() -> Iterator[pa.RecordBatch]:
    """Yield the reports of each half minute; around segment 7 an accident slows cars down from minute 8 to 18."""
    chance = np.random.default_rng(4)
    place = chance.uniform(0, SEGMENTS, CARS)
    usual = chance.uniform(45, 65, CARS)
    for at in range(0, MINUTES * MINUTE, 30):
        near = (np.abs(place - 7.5) < 1) & (8 * MINUTE <= at < 18 * MINUTE)
        speed = np.where(near, chance.uniform(5, 30, CARS), usual + chance.normal(0, 3, CARS))
        place = (place + speed / 120) % SEGMENTS
        yield pa.record_batch([np.arange(CARS), place.astype(np.int64), speed, np.full(CARS, at)], schema=REPORT)


def average(minutes: int) -> Query:
    """Return the average speed of each segment in a sliding window, once a minute."""
    return Query(
        [Stream("report", REPORT, time="at")],
        group_by={"segment": "report.segment"},
        aggregates={"mph": agg.avg("report.speed")},
        group_window=Hopping(minutes * MINUTE, MINUTE, end="ends"),
        select={"segment": "segment", "minute": "ends DIV 60", "mph": "mph"},
    )


def cars() -> Query:
    """Return the number of cars in each segment and minute."""
    return Query(
        [Stream("report", REPORT, time="at")],
        group_by={"segment": "report.segment"},
        aggregates={"cars": agg.count_distinct("report.car")},
        group_window=Tumbling(MINUTE, end="ends"),
        select={"segment": "segment", "minute": "ends DIV 60", "cars": "cars"},
    )


TOLLS = """
SELECT e.car, e.minute, e.segment, s.mph, v.cars, 2 * (v.cars - 50) * (v.cars - 50) AS toll
FROM entry AS e
JOIN speed AS s ON s.segment = e.segment AND s.minute = e.minute
JOIN volume AS v ON v.segment = e.segment AND v.minute = e.minute
WHERE s.mph < 40 AND v.cars > 50
"""


def main() -> None:
    """Push the reports, join what the engine says of them with the entries, and charge tolls."""
    engine = Engine([Stream("report", REPORT, time="at")])
    speeds = engine.start("speed", average(5))
    engine.start("volume", cars())
    schemas = {"speed": SPEED, "volume": COUNT, "entry": ENTRY}
    tolls = Runtime(
        sql(TOLLS, [Stream(name, schema, window=Range(1), time="minute") for name, schema in schemas.items()])
    )
    before = np.full(CARS, -1)
    charged, averages, entries = [], [], 0
    for number, batch in enumerate(reports()):
        if number == 40:
            speeds.change(average(2), how="graceful")  # no minute has two averages
        known = engine.push({"report": batch})
        segments = batch["segment"].to_numpy()
        entered = np.flatnonzero(segments != before)
        before = segments
        minute = np.full(len(entered), number // 2)
        entry = pa.record_batch([entered, segments[entered], minute], schema=ENTRY)
        entries += len(entry)
        averages.append(known["speed"])
        statistics = {name: table.cast(schemas[name]) for name, table in known.items()}
        charged.append(tolls.push({**statistics, "entry": entry}))
    known, paid = pa.concat_tables(averages), pa.concat_tables(charged)
    slow = int((known["mph"].to_numpy() < 40).sum())
    print(f"reports {engine.position:,}, averages {known.num_rows:,}, slower than 40 mph {slow}")
    total = int(paid["toll"].to_numpy().sum())
    print(f"entries {entries:,}, tolls {paid.num_rows:,}, charged {total / 1e6:.1f} million")
    most = paid.sort_by([("toll", "descending"), ("minute", "ascending"), ("car", "ascending")]).slice(0, 1)
    row = most.to_pylist()[0]
    print(
        f"highest: {row['toll']:,} in segment {row['segment']}, minute {row['minute']}, {row['cars']} cars at"
        f" {row['mph']:.0f} mph"
    )
    for version in speeds.versions:
        print(f"version {version.number}: from {version.start}, ended {version.ended}")


if __name__ == "__main__":
    main()
