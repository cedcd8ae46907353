"""Atomic pushes of streams in windows: the rows are the difference between the answers after a push and before it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy import Query, Range, Rows, Runtime, Stream
from jisc.strategies import STRATEGIES, StrategyName

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
SIZES = (1, 3, 40, 200)


def streams(kind: str) -> list[Stream]:
    window = Rows(7) if kind == "rows" else Range(25)
    return [Stream(name, SCHEMA, window, "t" if kind != "rows" else None) for name in "RST"]


def queries(kind: str) -> Query:
    r, s, t = streams(kind)
    if kind == "branches":
        branches = [eddy.Branch([s], ["R.k = S.k"], "left"), eddy.Branch([t], ["R.k = T.k"], "anti")]
        return Query([r], branches=branches)
    return Query([r, s, t], ["R.k = S.k", "S.k = T.k"])


def pushes(seed: int, named: bool) -> list[tuple[dict[str, pa.RecordBatch], Any]]:
    """Return pushes and, if the order is not that of event time, their orders."""
    chance, now, drawn = np.random.default_rng(seed), 0, []
    for rows in chance.choice(SIZES, 12):
        order, times = chance.integers(0, 3, rows), now + np.sort(chance.integers(0, 40, rows))
        now = int(times[-1])
        made = {
            name: pa.record_batch({"k": chance.integers(0, 6, n), "t": times[order == i]}, schema=SCHEMA)
            for i, name in enumerate("RST")
            if (n := int(np.count_nonzero(order == i)))
        }
        drawn.append((made, order if named else None))
    return drawn


def signed(table: pa.Table) -> tuple[Counter[Any], Counter[Any]]:
    """Return the rows that begin, and those that end."""
    begun, ended = Counter[Any](), Counter[Any]()
    for op, *row in (tuple(change.values()) for change in table.to_pylist()):
        (ended if op in ("-D", "-U") else begun)[tuple(row)] += 1
    return begun, ended


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["rows", "range", "branches"])
def test_what_comes_and_goes_within_a_push_has_no_row(kind: str, strategy: StrategyName) -> None:
    query = queries(kind)
    atomic, plain = (
        Runtime(query, strategy=strategy, output="changelog", ids_only=True, decide_every=50) for _ in range(2)
    )
    netted = 0
    for rows, order in pushes(1, kind == "rows"):
        begun, ended = signed(plain.push(rows, order))
        net = atomic.push(rows, order, atomic=True)
        assert signed(net) == (begun - ended, ended - begun)
        ops = net["op"].to_pylist()
        assert ops == sorted(ops, reverse=True), "those that end come first"
        netted += sum((begun & ended).values())
        atomic.check()
    # The changelog of branches is net in any case.
    assert (netted > 20) == (kind != "branches")
    assert atomic.position == plain.position


def test_an_atomic_push_counts_net_results_and_is_undone_as_a_whole() -> None:
    query = queries("range")
    counts, rows = (Runtime(query, output="changelog", count_only=counted) for counted in (True, False))
    for made, order in pushes(3, False):
        net = counts.push(made, order, atomic=True)
        begun, ended = signed(rows.push(made, order, atomic=True))
        assert dict(zip(net["op"].to_pylist(), net["count"].to_pylist(), strict=True)) == {
            "+I": sum(begun.values()),
            "-D": sum(ended.values()),
        }
    before = rows.snapshot()
    with pytest.raises(eddy.InputError):
        rows.push({"R": [{"k": 1, "t": 10**6}], "S": [{"k": "x", "t": 10**6}]}, atomic=True)
    assert rows.snapshot() == before


def test_atomic_needs_a_changelog() -> None:
    for output in ("append", "changelog"):
        runtime = Runtime(queries("range"), output=output)  # type: ignore[arg-type]
        if output == "append":
            with pytest.raises(eddy.InputError, match="atomic is for a changelog"):
                runtime.push({}, atomic=True)
        else:
            assert runtime.push({}, atomic=True).num_rows == 0
