"""An exception at any line of a push of a query with `top`: the push did not happen, or it did, in whole."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy.tops import forest
from tests.eddy.test_interrupts import Seen, traced

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("x", pa.float64()), ("p", pa.string())])
JOIN = frozenset(
    ("join", "kernels", "stairs", "strategies", "plan", "routing", "ingest", "filters", "query", "policies")
)
"""Folders whose lines are interrupted elsewhere."""


def joined() -> eddy.Query:
    streams = [eddy.Stream("R", SCHEMA, window=eddy.Rows(40)), eddy.Table("T", SCHEMA, key="k", ops="column")]
    top = eddy.Top(2, "R.g", ["T.x desc", "R.p nulls first"], "rank")
    return eddy.Query(streams, ["R.k = T.k"], select=["R.p", "T.p"], top=top)


def lasting() -> eddy.Query:
    return eddy.Query([eddy.Stream("R", SCHEMA)], top=eddy.Top(2, "R.g", ["R.x"]))


def grouped() -> eddy.Query:
    stream = eddy.Stream("R", SCHEMA, window=eddy.Rows(9))
    counts = {"n": eddy.agg.count(), "most": eddy.agg.max("R.p")}
    return eddy.Query([stream], group_by=["R.g", "R.k"], aggregates=counts, top=eddy.Top(1, "R.g", "n desc"))


REACHED = {
    joined: (forest.Forest._grow, forest.Forest._compact, forest.Forest._tidy, forest.Forest._rebuild),
    lasting: (forest.Forest._grow,),
    grouped: (forest.Forest._compact, forest.Forest._tidy),
}
"""Methods whose last line each query is interrupted at."""


def kept(runtime: eddy.Runtime) -> Any:
    """Return what a push that does not happen leaves as it is: the snapshot, but the order of groups in it."""
    tops = runtime._pipeline.tops
    assert tops is not None
    return runtime.snapshot() if runtime.query.aggregation is None else tops.to_parts()


def rows(draw: random.Random, name: str, n: int, new: bool) -> list[dict[str, Any]]:
    """Return rows. new: the groups are new, so that others end and texts are dropped; a table is empty afterwards."""
    drawn_rows = []
    for _ in range(n):
        group = draw.choice("abc") if not new else f"a group of many bytes {draw.random()}"
        row: dict[str, Any] = {"k": draw.randrange(4), "g": group, "x": draw.choice([0.5, 1.5, None])}
        row["p"] = draw.choice(["p", "a longer payload", None])
        drawn_rows.append({**row, "op": draw.choice("uud")} if name == "T" else row)
    if name == "T" and new:
        drawn_rows += [{"k": k, "op": "d"} for k in range(4)]
    return drawn_rows


@pytest.mark.campaign(0)
@pytest.mark.parametrize("make", REACHED)
def test_an_exception_at_each_line(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARE_TEXTS", "SPARE_ROWS"):
        monkeypatch.setattr(forest, name, 4)
    query, draw, seen, quiet = make(), random.Random(5), Seen(JOIN), 0
    runtime, twin = (eddy.Runtime(query, strategy="mjoin", output="changelog") for _ in range(2))
    while quiet < 10 or runtime.pushes < 330:
        # A large push makes rooms grow; a full window lets many rows leave.
        n = 60 if runtime.pushes % 5 == 4 else draw.randrange(1, 9)
        pushed = {stream.name: rows(draw, stream.name, n, runtime.pushes % 5 == 0) for stream in query.streams}
        order = [i for i, stream in enumerate(query.streams) for _ in pushed[stream.name]]
        done, tries = runtime.pushes, 0
        while runtime.pushes == done:
            before = None if tries else kept(runtime)
            traced(lambda pushed=pushed, order=order: runtime.push(pushed, order), seen)  # type: ignore[misc]
            tries += 1
            runtime.check()
            assert before is None or runtime.pushes > done or kept(runtime) == before
        quiet = quiet + 1 if tries == 1 else 0
        last = runtime.last_push()
        assert last is not None
        assert Counter(map(str, last.results.to_pylist())) == Counter(map(str, twin.push(pushed, order).to_pylist()))
        assert kept(runtime) == kept(twin)
    lines = {line for name, line in seen if name.endswith("forest.py")}
    for method in REACHED[make]:
        first, *_, last_line = [number for _, _, number in method.__code__.co_lines() if number is not None]
        assert last_line in lines, f"{method.__name__} from line {first} on was not interrupted"
