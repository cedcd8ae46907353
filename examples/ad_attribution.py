"""Credit purchases to ads: a join of impressions, clicks and conversions, pushed minute by minute.

An ad may claim a conversion if its user saw it at most an hour before the purchase and clicked it at most 30 minutes
before the purchase. These two intervals also tell eddy how long to keep each row. eddy finds all claims; the program
then credits the ad that was clicked last, with Arrow.

Output:

    conversions 240, claims 118, credited 88
    shoes  44 purchases  2147.00
    hats   44 purchases  2440.00
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from eddy import Query, Runtime, Stream

AT = pa.timestamp("s")
IMPRESSIONS = pa.schema([("impression", pa.int64()), ("user", pa.int64()), ("ad", pa.string()), ("at", AT)])
CLICKS = pa.schema([("impression", pa.int64()), ("at", AT)])
CONVERSIONS = pa.schema([("order", pa.int64()), ("user", pa.int64()), ("amount", pa.float64()), ("at", AT)])

QUERY = Query(
    [
        Stream("impressions", IMPRESSIONS, time="at"),
        Stream("clicks", CLICKS, time="at"),
        Stream("conversions", CONVERSIONS, time="at"),
    ],
    [
        "clicks.impression = impressions.impression",
        "conversions.user = impressions.user",
        "conversions.at between impressions.at and impressions.at + 1 hour",
        "conversions.at between clicks.at and clicks.at + 30 minutes",
    ],
    select={
        "order": "conversions.order",
        "ad": "impressions.ad",
        "clicked": "clicks.at",
        "amount": "conversions.amount",
    },
)


def minutes(count: int = 120) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yield the rows of each minute by stream: ten impressions, a click on some of them, two conversions."""
    rng = np.random.default_rng(7)
    for minute in range(count):
        start = 60 * minute
        shown = np.arange(10 * minute, 10 * minute + 10)
        clicked = shown[rng.random(10) < 0.2]
        yield {
            "impressions": pa.record_batch(
                [shown, rng.integers(0, 100, 10), [("shoes", "hats")[i % 2] for i in shown], np.full(10, start)],
                schema=IMPRESSIONS,
            ),
            "clicks": pa.record_batch([clicked, start + rng.integers(1, 30, len(clicked))], schema=CLICKS),
            "conversions": pa.record_batch(
                [
                    np.arange(2 * minute, 2 * minute + 2),
                    rng.integers(0, 100, 2),
                    rng.integers(10, 90, 2).astype(float),
                    start + rng.integers(30, 60, 2),
                ],
                schema=CONVERSIONS,
            ),
        }


def main() -> None:
    """Push all minutes, credit each order to its last click, and print the purchases of each ad."""
    runtime = Runtime(QUERY)
    claims = pa.concat_tables([runtime.push(batches) for batches in minutes()])
    by_click = claims.sort_by([("order", "ascending"), ("clicked", "ascending")])
    credited = by_click.group_by("order", use_threads=False).aggregate([("ad", "last"), ("amount", "last")])
    conversions = runtime.metrics()["states"]["conversions"]["arrivals"]
    print(f"conversions {conversions}, claims {claims.num_rows}, credited {credited.num_rows}")
    totals = credited.group_by("ad_last").aggregate([("order", "count"), ("amount_last", "sum")])
    for row in totals.sort_by([("ad_last", "descending")]).to_pylist():
        print(f"{row['ad_last']:6} {row['order_count']:2} purchases {row['amount_last_sum']:8.2f}")


if __name__ == "__main__":
    main()
