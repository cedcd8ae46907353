"""The query and the runtime of the tests of snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy import Query, Range, Runtime, Stream

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("ms"))])
FIVE_SECONDS = Range(timedelta(seconds=5))
POSITIVE = pc.field("a") > 0


def make_query(
    names: str = "RS",
    schema: pa.Schema = SCHEMA,
    window: Any = FIVE_SECONDS,
    time: str | None = "t",
    accept: pc.Expression | None = POSITIVE,
    predicates: tuple[str, ...] = ("R.a = S.a", "R.b = S.b"),
    **options: Any,
) -> Query:
    """Return a query of two streams; the arguments apply to the first, the second is always the same."""
    first = Stream(names[0], schema, window=window, time=time, filter=accept)
    second = Stream(names[1], SCHEMA, window=FIVE_SECONDS, time="t")
    given = {"where": pc.field("R.a") < 1000, "lateness": timedelta(seconds=2), **options}
    return Query([first, second], list(predicates), **given)


def filled() -> Runtime:
    """Return a runtime of the usual query with rows in its windows, and a late row."""
    runtime = Runtime(make_query())
    n = 30
    batch = pa.record_batch(
        {"a": [k % 4 for k in range(n)], "b": [f"text {k % 3}" for k in range(n)], "t": [k * 100 for k in range(n)]},
        schema=SCHEMA,
    )
    runtime.push({"R": batch, "S": batch}, [0, 1] * n)
    runtime.push({"R": batch.slice(3, 1)})
    return runtime
