"""Queries whose scans search bands give what they give with blocks alone, through all that happens to a runtime.

Small windows are scanned in blocks, so bands are made to be used in windows of any size. `tests.stairs.test_bands`
compares bands with numpy, and the fuzzer compares both ways with its oracle.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from jisc.plan.orders import random_order
from jisc.plan.states import Masks
from jisc.plan.tree import left_deep
from jisc.strategies import StrategyName
from stairs.bands import Sizes
from stairs.descriptors import B_COUNT, B_UPTO, V_MATCHES
from stairs.kernels.bands import RUNS
from tests.cases import raising

SCHEMA = pa.schema([(name, pa.int64()) for name in ("k", "x", "y", "t", "v", "n")])
NEVER, ALWAYS = Sizes(least=1 << 60), Sizes(0, 3, 20)
QUERIES = {
    "a band": (["R.x between S.x - 3 and S.x + 3"], eddy.Rows(150)),
    "one bound": (["R.x < S.x + 2"], eddy.Rows(20)),
    "another comparison": (["R.x <= S.x + 1", "R.y <> S.y"], eddy.Rows(100)),
    "hash joins and scans": (["R.x between S.x and S.x + 1", "S.k = T.k", "T.x < U.x - 90"], eddy.Rows(40)),
    "a key of a cycle": (["R.x between S.x and S.x + 9", "S.y > T.y + 90", "R.k = T.k"], eddy.Rows(60)),
    "times": (["S.t between R.t - 6 and R.t + 9"], None),
    "a range": (["R.x between S.x - 5 and S.x + 5"], eddy.Range(60)),
}


ONE_BY_ONE: tuple[StrategyName, ...] = ("jisc", "cacq", "stairs", "eddy-jisc")
"""Strategies whose walks take one candidate at a time."""
RUNS_OF_CASES: list[tuple[str, str, StrategyName]] = [
    *((case, output, "mjoin") for case in QUERIES for output in ("append", "changelog")),
    # Each strategy meets most queries in one of the outputs.
    *((case, ("append", "changelog")[n % 2], ONE_BY_ONE[n % 4]) for n, case in enumerate([*QUERIES, *QUERIES])),
    ("hash joins and scans", "append", "parallel-track"),
]


def runtime_of(
    case: str, sizes: Sizes, lateness: int, strategy: StrategyName = "mjoin", **options: Any
) -> eddy.Runtime:
    """Return a runtime that fails a push with a v of 0 in R."""
    on, window = QUERIES[case]
    names = [name for name in "RSTU" if any(f"{name}." in predicate for predicate in on)]
    timed = window is None or isinstance(window, eddy.Range)
    streams = [eddy.Stream(name, SCHEMA, window, "t" if timed else None) for name in names]
    query = eddy.Query(
        streams, on, select=[f"{name}.n" for name in names], where=raising("R.v"), lateness=lateness if timed else 0
    )
    return fitted(eddy.Runtime(query, strategy=strategy, **options), sizes)


def fitted(runtime: eddy.Runtime, sizes: Sizes) -> eddy.Runtime:
    runtime._pipeline.join.modules.bands.sizes = sizes
    return runtime


@pytest.mark.campaign(8)
@pytest.mark.parametrize(("case", "output", "strategy"), RUNS_OF_CASES)
def test_scans_with_bands_give_what_blocks_give(case: str, output: Any, strategy: StrategyName) -> None:
    chance, numbers = random.Random(case + output), itertools.count()
    lateness = chance.choice((0, 4))
    twins = [runtime_of(case, sizes, lateness, strategy, output=output, renumber_at=700) for sizes in (ALWAYS, NEVER)]
    names, entries, rng = [stream.name for stream in twins[0].query.streams], 0, np.random.default_rng(7)
    for turn in range(30):
        if turn % 7 == 5:
            plan = left_deep(random_order(Masks(twins[0].query.graph), rng)).text(names)
            for runtime in twins:
                runtime.transition(plan)
        # The rings grow, and single rows wait to be sorted in.
        size = 500 if turn == 11 else chance.choice((0, 1, 5, 40, 90))
        order = [chance.randrange(len(names)) for _ in range(size)]
        rows: dict[str, list[dict[str, int | None]]] = {name: [] for name in names}
        fails = turn % 4 == 3
        for at, i in enumerate(order):
            n, (x, y) = next(numbers), chance.choices(range(100), k=2)
            row = {"k": x % 3, "x": x if n % 9 else None, "y": y, "t": n // 3 - chance.choice((0, 0, 3)), "n": n}
            rows[names[i]].append(row | {"v": int(not fails or at < size // 2)})
        pushed = {name: pa.RecordBatch.from_pylist(stream_rows, schema=SCHEMA) for name, stream_rows in rows.items()}
        answers = []
        for runtime in twins:
            try:
                answers.append(Counter(tuple(row.values()) for row in runtime.push(pushed, order).to_pylist()))
            except eddy.InputError:
                answers.append(None)
            runtime.check()
        assert answers[0] == answers[1]
        if turn % 10 == 9:
            sizes = [runtime._pipeline.join.modules.bands.sizes for runtime in twins]
            twins = [eddy.Runtime.restore(twin.snapshot(), twin.query) for twin in twins]
            twins = [fitted(twin, twin_sizes) for twin, twin_sizes in zip(twins, sizes, strict=True)]
        entries += int(twins[0]._pipeline.join.modules.bands.table[:, B_COUNT : B_COUNT + RUNS].sum())
    assert entries > 500
    assert not twins[1]._pipeline.join.modules.bands.nbytes


@pytest.mark.parametrize("count_only", [False, True])
@pytest.mark.parametrize("also", [[], ["R.y <> S.y"]])
def test_matches_of_a_band_are_counted(also: list[str], count_only: bool) -> None:
    """Under `count_only`, matches of a last hop without further comparisons are not written one by one."""
    window, values = 150, np.random.default_rng(1).integers(0, [[200], [2]], (2, 300))
    on = ["R.x between S.x - 2 and S.x + 1", *also]
    query = eddy.Query([eddy.Stream(name, SCHEMA, eddy.Rows(window)) for name in "RS"], on)
    runtime = fitted(eddy.Runtime(query, strategy="mjoin", count_only=count_only), ALWAYS)
    columns = [values[0] * 0, *values, *(values[0] * 0,) * 3]
    batches = {name: pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=SCHEMA) for name in "RS"}
    # R and S arrive by turns, R first.
    table = runtime.push(batches, [0, 1] * len(values[0]))
    (x, y), places = values, np.arange(len(values[0]))
    pairs = (x[:, None] >= x - 2) & (x[:, None] <= x + 1) & ((y[:, None] != y) | (not also))
    later = places[:, None] - places  # of R, compared with S
    wanted = int((pairs & (later <= window) & (later > -window)).sum())
    assert runtime.metrics()["results"] == wanted > 500
    assert table.num_rows == (1 if count_only else wanted)
    assert runtime._pipeline.join.strategy.routes.counts[V_MATCHES].sum() == wanted


def test_a_band_is_made_when_a_scan_asks_and_freed_when_memory_is_short() -> None:
    runtime = runtime_of("a band", Sizes(), 0, count_only=True)
    modules = runtime._pipeline.join.modules

    def push(n: int) -> int:
        rows = [{"x": x % 500, "k": 0, "y": 0, "t": 0, "v": 1, "n": x} for x in range(n)]
        runtime.push({name: pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for name in "RS"}, [0, 1] * n)
        return int(modules.bands.table[:, B_UPTO].sum())

    assert push(100) == modules.bands.nbytes == 0
    modules.bands.sizes = Sizes(least=150)
    assert push(200) > 0
    before = runtime.nbytes
    made = modules.bands.nbytes
    assert made > 0
    # With exactly what the rest takes, the next push fits after the bands were given up.
    runtime.max_bytes = runtime._pipeline.join.bound.used - made
    assert push(200) == 0
    assert runtime.nbytes < before
    runtime.max_bytes = None
    for _ in range(64):
        push(1)
    assert push(200) > 0
    runtime.check()


@pytest.mark.parametrize("strategy", ["mjoin", "jisc", "cacq"])
def test_versions_that_ended_stay_in_a_band_and_are_no_matches(strategy: StrategyName) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    inputs = [eddy.Table("T", schema, key="k"), eddy.Stream("R", schema, eddy.Rows(40))]
    query = eddy.Query(inputs, ["R.x between T.x - 4 and T.x + 4"], select=["T.k", "R.k"])
    twins = [fitted(eddy.Runtime(query, strategy=strategy, output="changelog"), sizes) for sizes in (ALWAYS, NEVER)]
    rng, results = np.random.default_rng(3), 0
    for _ in range(12):
        changes = {name: pa.record_batch(list(rng.integers(0, [[20], [100]], (2, 30))), schema=schema) for name in "TR"}
        answers = []
        for runtime in twins:
            answers.append(Counter(tuple(row.values()) for row in runtime.push(changes, [0, 1] * 30).to_pylist()))
            runtime.check()
        assert answers[0] == answers[1]
        results += answers[0].total()
    assert results > 500
    assert twins[0]._pipeline.join.modules.bands.nbytes
