"""Raise an alarm for a large transfer soon after a password change, with rows that arrive out of order and late.

A suspicious transfer moves more than 500 at most 10 minutes after a password change, which happened at most 10 minutes
after a login from a new device. The streams come from three systems whose clocks agree and whose delays differ:
rows may be up to two minutes late. Rows that arrive later than that are passed to `review`, for a person to look at.

Output:

    alarm: user 3 moved 900.0 at 690, password changed at 300, new device "tablet"
    alarm: user 5 moved 750.0 at 860, password changed at 760, new device "phone"
    for review: changes [{'user': 8, 'at': 500}]
    late rows: logins 0, changes 1, transfers 0
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from eddy import Query, Range, Runtime, Stream

LOGINS = pa.schema([("user", pa.int64()), ("device", pa.string()), ("new", pa.bool_()), ("at", pa.int64())])
CHANGES = pa.schema([("user", pa.int64()), ("at", pa.int64())])
TRANSFERS = pa.schema([("user", pa.int64()), ("amount", pa.float64()), ("at", pa.int64())])

PUSHES = [
    {
        "logins": [(3, "tablet", True, 100), (5, "laptop", False, 110), (8, "phone", True, 120)],
        "changes": [(3, 300)],
    },
    # The transfer arrives before the password change that it follows, and the login arrives last: no row is late.
    {"transfers": [(5, 750.0, 860), (3, 900.0, 690), (3, 20.0, 695)]},
    {"changes": [(5, 760)], "logins": [(5, "phone", True, 740)]},
    # User 8 changed the password at 500; the slowest stream is at 740, so the watermark is at 740 - 120 by now.
    {"changes": [(8, 500)], "transfers": [(8, 600.0, 800)]},
]


def review(stream: str, rows: pa.Table) -> None:
    """Take late rows; eddy calls this after the push that brought them has committed."""
    print(f"for review: {stream} {rows.to_pylist()}")


QUERY = Query(
    [
        Stream("logins", LOGINS, window=Range(1200), time="at", filter=pc.field("new")),
        Stream("changes", CHANGES, window=Range(600), time="at"),
        Stream("transfers", TRANSFERS, window=Range(0), time="at", filter=pc.field("amount") > 500),
    ],
    ["logins.user = changes.user", "changes.user = transfers.user"],
    # Windows compare with the youngest row of a result; the login and the change are compared here.
    where=(pc.field("logins.at") <= pc.field("changes.at")) & (pc.field("changes.at") - pc.field("logins.at") <= 600),
    lateness=120,
    late=review,
)


def main() -> None:
    """Push the rows as they come and print an alarm for each result."""
    runtime = Runtime(QUERY)
    schemas = {stream.name: stream.schema for stream in QUERY.streams}
    for push in PUSHES:
        batches = {
            name: pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schemas[name])
            for name, rows in push.items()
        }
        for alarm in runtime.push(batches).to_pylist():
            print(
                f"alarm: user {alarm['transfers.user']} moved {alarm['transfers.amount']} at {alarm['transfers.at']},"
                f' password changed at {alarm["changes.at"]}, new device "{alarm["logins.device"]}"'
            )
    print("late rows:", ", ".join(f"{name} {count}" for name, count in runtime.late_counts.items()))


if __name__ == "__main__":
    main()
