"""A push of a query with branches happens in whole or not at all, whatever fails and whenever an exception comes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from tests.eddy.test_interrupts import Seen, pushed

SCHEMA = pa.schema([("a", pa.int64()), ("t", pa.int64()), ("p", pa.string())])


class ValiditySwitch:
    """A filter of results that raises while it is on."""

    on = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Accept all rows."""
        if self.on and len(batch):
            raise ValueError("the switch is on")
        return pc.is_valid(batch.column(0))


def make_query(switch: ValiditySwitch) -> eddy.Query:
    """Return a query with a core of two streams, two branches, a branch of a branch, and a filter that can raise."""
    r, s, t, u, v = (eddy.Stream(name, SCHEMA, window=eddy.Range(6), time="t") for name in "RSTUV")
    inner = eddy.Branch([v], ["V.a = T.a"], "left")
    branches = [eddy.Branch([t], ["T.a = R.a"], "left", [inner]), eddy.Branch([u], ["U.a = S.a"], "anti")]
    return eddy.Query(
        [r, s], ["R.a = S.a"], branches=branches, lateness=2, idle_after=2, where=eddy.Predicate(switch, ["R.a"])
    )


def rows(draw: random.Random, clock: int) -> dict[str, Any]:
    """Return a few rows of each stream."""
    by_stream = {}
    for name in "RSTUV":
        # Few rows of U, so that some rows of S have no partner there.
        n = draw.randrange(8) // 7 if name == "U" else draw.randrange(3)
        times = [clock + draw.randrange(-3, 3) for _ in range(n)]
        by_stream[name] = [{"a": draw.randrange(3), "t": t, "p": f"{name} {t}"} for t in times]
    return by_stream


def contents(runtime: eddy.Runtime) -> tuple[Any, ...]:
    """Return what must be the same before and after a push that did not happen."""
    return runtime.snapshot(), runtime.position, runtime.pushes, runtime.late_counts


@pytest.mark.campaign(0)
@pytest.mark.parametrize("output", ["append", "changelog"])
def test_an_exception_at_each_line(output: str) -> None:
    query, draw, seen = make_query(ValiditySwitch()), random.Random(4), Seen()
    runtime, twin = (eddy.Runtime(query, output=output, strategy="jisc") for _ in range(2))
    quiet = clock = 0
    while quiet < 10:
        clock += 1
        batches = rows(draw, clock)
        expected = twin.push(batches)
        results, tries = pushed(runtime, batches, seen)
        assert sorted(map(str, results.to_pylist())) == sorted(map(str, expected.to_pylist()))
        # Within one arrival, results may come in another order; the numbers of entries follow it.
        assert contents(runtime)[1:] == contents(twin)[1:]
        assert runtime.metrics()["open"] == twin.metrics()["open"]
        quiet = quiet + 1 if tries == 1 else 0
    assert len(seen) > 300


@pytest.mark.parametrize("output", ["append", "changelog"])
def test_a_failed_push_leaves_everything_as_it_was(output: str) -> None:
    switch, draw, failed = ValiditySwitch(), random.Random(5), 0
    query = make_query(switch)
    runtime = eddy.Runtime(query, output=output)
    for clock in range(60):
        before = contents(runtime)
        switch.on = True
        try:
            runtime.push(rows(draw, clock))
        except eddy.InputError:
            failed += 1
        else:
            runtime = eddy.Runtime.restore(before[0], query)
        switch.on = False
        assert contents(runtime)[0] == before[0]
        runtime.push(rows(draw, clock))
        runtime.check()
    assert failed > 10
