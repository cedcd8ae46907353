"""`Runtime(max_bytes=…)` of queries with branches: the state never exceeds the bound, and a push may not fit."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy import agg
from eddy.fuzz.chaos import Chaos
from eddy.queries.alone import Output

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("text", pa.string())])
LONG = 10**6
MAX_BYTES = 3 << 20


def stream(name: str) -> eddy.Stream:
    return eddy.Stream(name, SCHEMA, window=eddy.Range(LONG), time="t")


def branch(name: str, how: Any, on: str = "R.k = {}.k", *below: eddy.Branch) -> eddy.Branch:
    return eddy.Branch([stream(name)], [on.format(name)], how, below)


R, S, T = map(stream, "RST")
GROUPS: dict[str, Any] = {"group_by": ["R.text"], "aggregates": {"n": agg.count()}, "group_window": eddy.Tumbling(LONG)}
TABLE = eddy.Table("S", SCHEMA, key="k")
KINDS: dict[str, tuple[eddy.Query, Output]] = {
    "left": (eddy.Query([R], branches=[branch("S", "left")]), "append"),
    "two left": (eddy.Query([R], branches=[branch("S", "left"), branch("T", "left")]), "append"),
    "nested": (
        eddy.Query([R], branches=[branch("S", "left", "R.k = S.k", branch("T", "left", "S.j = T.j"))]),
        "append",
    ),
    "anti": (eddy.Query([R], branches=[branch("S", "anti", "R.j = S.k")]), "append"),
    "of a join": (eddy.Query([R, T], ["R.k = T.k"], branches=[branch("S", "semi", "R.j = S.k")]), "append"),
    "taken back": (eddy.Query([R], branches=[branch("S", "left")]), "changelog"),
    "groups": (eddy.Query([R], branches=[branch("S", "left")], **GROUPS), "append"),
    "table": (eddy.Query([R], branches=[eddy.Branch([TABLE], ["R.k = S.k"], "left")]), "changelog"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_never_exceeds_the_bound(kind: str) -> None:
    query, output = KINDS[kind]
    runtime, chance = eddy.Runtime(query, output=output, max_bytes=MAX_BYTES), random.Random(1)
    twin, refused = eddy.Runtime(query, output=output), 0
    names = [table.name for table in query.streams]
    for clock in range(90):
        n = chance.choice((10, 100, 1500))
        keys = [chance.randrange(1 << 40) for _ in range(n)]
        table = {"k": keys, "j": keys[::-1], "t": [clock] * n, "text": [f"{key:030}" for key in keys]}
        batches = {name: pa.RecordBatch.from_pydict(table, schema=SCHEMA) for name in names}
        before = runtime.snapshot() if refused < 2 and runtime.nbytes > MAX_BYTES // 2 else None
        try:
            given = runtime.push(batches)
        except eddy.CapacityError:
            refused += 1
            assert before is None or runtime.snapshot() == before
            runtime.check()
        else:
            assert given.num_rows == twin.push(batches).num_rows
        assert runtime.nbytes <= MAX_BYTES
    assert refused > 3
    assert runtime.nbytes > MAX_BYTES // 3


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_each_bound_holds_where_a_ledger_grows(depth: int) -> None:
    """Whatever the bound, from the bytes before a push on: the push does not fit, or its state is within the bound."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    below: list[eddy.Branch] = []
    for name in reversed("STUVW"[:depth]):
        below = [eddy.Branch([eddy.Stream(name, schema)], [f"R.k = {name}.k"], "left", below)]
    query = eddy.Query([eddy.Stream("R", schema)], branches=below, select=["R.n"])
    rows = [{"k": 0, "n": n} for n in range(12)]

    def before() -> eddy.Runtime:
        runtime = eddy.Runtime(query, policy="fixed", bounded=True)
        runtime.push({"S": rows})
        return runtime

    def push(runtime: eddy.Runtime) -> None:
        runtime.push({"R": rows, "S": rows}, [0, 1] * 12)

    runtime = before()
    least = runtime.nbytes
    push(runtime)
    fits = 0
    for max_bytes in range(least, runtime.nbytes + 20_000, (runtime.nbytes - least) // 20):
        runtime = before()
        runtime.max_bytes = max_bytes
        try:
            push(runtime)
        except eddy.CapacityError:
            continue
        finally:
            assert runtime.nbytes <= max_bytes
        fits += 1
    assert fits


@pytest.mark.parametrize("room", [10_000, 40_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_that_a_policy_wants_refuses_no_push(seed: int, room: int) -> None:
    """Two versions of a plan do not fit beside each other, so the plan stays. What else does not fit is refused."""
    on = ["R.k = S.k", "S.k = T.k", "T.k = U.k"]
    query = eddy.Query([R, S, T, stream("U")], on, branches=[branch("V", "left")])
    chance, options = random.Random(seed), {"strategy": "parallel-track", "bounded": True}
    runtime, twin = (eddy.Runtime(query, policy="fixed", **options) for _ in range(2))  # type: ignore[arg-type]
    pushes = [{name: [{"k": chance.randrange(4), "j": 0, "t": t, "text": ""}] for name in "RSTUV"} for t in range(12)]
    most = max((runtime.push(rows, range(5)), runtime.nbytes)[1] for rows in pushes)
    runtime = eddy.Runtime(query, policy=Chaos(seed), decide_every=1, max_bytes=most + room, **options)  # type: ignore[arg-type]
    refusals = []
    for rows in pushes:
        try:
            given = runtime.push(rows, range(5))
        except eddy.CapacityError as problem:
            refusals.append(str(problem))
            runtime.check()
        else:
            assert rows_of(given) == rows_of(twin.push(rows, range(5)))
    assert [text for text in refusals if "a second version" in text] == []


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def test_the_end_of_the_input_needs_no_room() -> None:
    """A plan that is due then does not change; the results are those of a runtime without a bound."""
    schema = pa.schema([("x", pa.int64()), ("n", pa.int64())])
    r, s, t = (eddy.Stream(name, schema, window=eddy.Rows(size)) for name, size in (("R", 12), ("S", 1), ("T", 3)))
    below = eddy.Branch([t], ["R.x <= T.x"], "left")
    query = eddy.Query([r], branches=[eddy.Branch([s], ["R.x <= S.x"], "left", [below])], select=["R.n", "S.n", "T.n"])
    ends = []
    for max_bytes in (None, 1):
        runtime = eddy.Runtime(query, strategy="jisc", decide_every=1, bounded=True, output="changelog")
        rows = {name: pa.table({"x": [1] * 7, "n": [*range(7)]}, schema=schema) for name in "RST"}
        runtime.push(rows, [0, 1, 2] * 7)
        runtime.max_bytes = max_bytes
        ends.append(runtime.finish())
    assert ends[0].equals(ends[1])
