"""Results in the order of their timestamps (`Runtime(ordered=True)`)."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

import pyarrow as pa
import pytest

import eddy
from eddy import Branch, Query, Range, Rows, Runtime, Stream, agg
from jisc.strategies import STRATEGIES

KEYS = pa.schema([("k", pa.int64())])
TIMED = pa.schema([("k", pa.int64()), ("t", pa.int64())])
JOIN = ["R.k = S.k", "S.k = T.k"]
STEPS, PLANS = 12, ("(R S) T", "(S T) R", "(R T) S")


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": keys}, schema=KEYS)


def ids(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(table[name].to_pylist() for name in "RST"), strict=True))


def emitted(strategy: str, *, ordered: bool, output: str = "append") -> list[list[tuple[int, ...]]]:
    """Return the results of random pushes of few keys by push, with changes of plan between and within pushes."""
    random = Random(4)
    query = Query([Stream(name, KEYS, window=Rows(6)) for name in "RST"], JOIN)
    runtime = Runtime(query, PLANS[0], strategy=strategy, policy="fixed", ids_only=True, ordered=ordered, output=output)  # type: ignore[arg-type]
    results = []
    for step in range(STEPS):
        at = runtime.position + random.randrange(8)
        if STRATEGIES[strategy].changes and step % 3 == 1:
            runtime.transition(PLANS[step % len(PLANS)], at)
        order = [random.randrange(3) for _ in range(15)]
        rows = {name: batch(*(random.randrange(2) for _ in range(order.count(i)))) for i, name in enumerate("RST")}
        results.append(ids(runtime.push(rows, order)))
    return results


def breaks(results: list[tuple[int, ...]]) -> int:
    """Return how many pairs of results break Lemma 2.1: no timestamp of the later one is greater."""
    return sum(not any(x < y for x, y in zip(a, b, strict=True)) for a, b in combinations(results, 2))


def test_all_strategies_give_one_order_in_which_the_timestamp_order_lemma_holds() -> None:
    orders = [emitted(strategy, ordered=True) for strategy in STRATEGIES]
    assert all(order == orders[0] for order in orders)
    results = list(chain.from_iterable(orders[0]))
    assert len(results) > 200
    assert breaks(results) == 0
    # Lists are walked from the newest tuple on, so without the option it does not hold.
    assert breaks(list(chain.from_iterable(emitted("jisc", ordered=False)))) > 0


def test_a_changelog_is_the_same_under_all_strategies() -> None:
    changelogs = [emitted(strategy, ordered=True, output="changelog") for strategy in STRATEGIES]
    assert all(changelog == changelogs[0] for changelog in changelogs)


def stacked(strategy: str) -> list[tuple[int, ...]]:
    """Return the results of a join of T with the few newest results of R with S, whose plan runs under a strategy."""
    random = Random(5)
    streams = [Stream(name, TIMED, window=Range(30), time="t") for name in "RST"]
    below = Runtime(Query(streams, JOIN, select=["R.k", "R.t", "S.t", "T.t"]), strategy=strategy, ordered=True)  # type: ignore[arg-type]
    made = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("s", pa.int64()), ("t", pa.int64())])
    pair = [Stream("P", made, window=Rows(7)), Stream("U", KEYS, window=Rows(7))]
    above = Runtime(Query(pair, ["P.k = U.k"], select=["P.r", "P.s", "P.t"]), ordered=True)
    joined: list[tuple[int, ...]] = []
    for time in range(150):
        row = pa.record_batch({"k": [random.randrange(2)], "t": [time]}, schema=TIMED)
        if time == 60 and STRATEGIES[strategy].changes:
            below.transition(PLANS[1])
        results = below.push({random.choice("RST"): row}).rename_columns(made.names)
        above.push({"P": results}, [0] * len(results))
        joined += [
            tuple(joined_row.values()) for joined_row in above.push({"U": batch(random.randrange(2))}, [1]).to_pylist()
        ]
    return joined


def test_windows_of_rows_over_the_results_are_the_same_under_all_strategies() -> None:
    """Which results are the newest seven depends on their order within an arrival."""
    orders = [stacked(strategy) for strategy in STRATEGIES]
    assert len(orders[0]) > 100
    assert all(order == orders[0] for order in orders)


WIDE = pa.schema([*KEYS, ("n", pa.int64())])
KINDS = ["own SteMs", "shared SteMs", "changelog"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("restored", [False, True])
def test_a_query_of_an_engine_has_the_order_of_a_runtime(kind: str, restored: bool) -> None:
    """Two queries of one join name its streams in different orders; plans change, and the engine is restored."""
    random = Random(6)
    streams = [Stream(name, WIDE, window=Rows(6)) for name in "RST"]
    output = "changelog" if kind == "changelog" else "append"
    queries = {
        "RST": Query(streams, JOIN, select=["R.n", "S.n", "T.n"]),
        "TRS": Query([streams[i] for i in (2, 0, 1)], JOIN, select=["R.n", "S.n", "T.n"]),
        **({"RS": Query(streams[:2], JOIN[:1], select=["R.n", "S.n"])} if kind == "shared SteMs" else {}),
    }
    engine = eddy.Engine([Stream(name, WIDE) for name in "RST"])
    runtimes = {name: Runtime(query, ordered=True, output=output) for name, query in queries.items()}  # type: ignore[arg-type]
    for name, query in queries.items():
        assert engine.start(name, query, output=output, ordered=True).ordered  # type: ignore[arg-type]
    n, seen = 0, 0
    for step in range(STEPS):
        rows: dict[str, list[dict[str, int]]] = {name: [] for name in "RST"}
        order = [random.randrange(3) for _ in range(15)]
        for i in order:
            rows["RST"[i]].append({"k": random.randrange(2), "n": n})
            n += 1
        results = engine.push(rows, order)
        for name, runtime in runtimes.items():
            streams_of = [stream.name for stream in queries[name].streams]
            mine = [streams_of.index("RST"[i]) for i in order if "RST"[i] in streams_of]
            assert runtime.push({stream: rows[stream] for stream in streams_of}, mine) == results[name]
        seen += sum(table.num_rows for table in results.values())
        engine["RST"].transition(PLANS[step % len(PLANS)])
        if restored and step % 4 == 1:
            engine = eddy.Engine.restore(engine.snapshot(), [Stream(name, WIDE) for name in "RST"], queries)
    assert seen > 500


def test_changes_keep_the_order() -> None:
    random = Random(7)
    queries = [Query([Stream(name, WIDE, window=Rows(n)) for name in "RST"], JOIN) for n in (6, 5, 6)]
    engine = eddy.Engine([Stream(name, WIDE, window=Rows(9)) for name in "RST"])
    started = engine.start("q", queries[0], ordered=True)

    def timestamp(row: dict[str, int]) -> tuple[int, ...]:
        pushed = [divmod(row[f"{name}.n"], 10) for name in "RST"]
        numbers = [15 * push + 3 * place + i for i, (push, place) in enumerate(pushed)]
        return max(numbers), *numbers

    for step in range(9):
        rows = {name: [{"k": random.randrange(2), "n": 10 * step + i} for i in range(5)] for name in "RST"}
        results = engine.push(rows, [i % 3 for i in range(15)])["q"].to_pylist()
        assert results == sorted(results, key=timestamp)
        if step % 3 == 2:
            started.change(queries[step // 3])


def test_the_option_survives_a_snapshot() -> None:
    query = Query([Stream(name, KEYS, window=Rows(50)) for name in "RST"], JOIN)
    runtime = Runtime(query, strategy="jisc", ids_only=True, ordered=True)
    runtime.push({"R": batch(1, 1), "S": batch(1, 1)}, [0, 0, 1, 1])
    runtime = Runtime.restore(runtime.snapshot(), query)
    assert ids(runtime.push({"T": batch(1)})) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    assert runtime.finish().num_rows == 0


def test_what_has_no_such_order_is_refused() -> None:
    streams = [Stream(name, TIMED, window=Range(9), time="t") for name in "RS"]
    join = Query(streams, ["R.k = S.k"])
    with pytest.raises(eddy.InputError, match="count_only and ordered exclude each other: a count has no order"):
        Runtime(join, count_only=True, ordered=True)
    left = Query(streams[:1], branches=[Branch(streams[1:], ["R.k = S.k"], "left")])
    with pytest.raises(eddy.InputError, match="ordered is for queries without branches"):
        Runtime(left, ordered=True)
    groups = Query(streams, ["R.k = S.k"], group_by=["R.k"], aggregates={"n": agg.count()})
    with pytest.raises(eddy.InputError, match="this query has aggregates"):
        Runtime(groups, output="changelog", ordered=True)
    engine = eddy.Engine([Stream(name, TIMED, time="t") for name in "RS"])
    timed = Query(
        streams, ["R.k = S.k"], group_by=["R.k"], aggregates={"n": agg.count()}, group_window=eddy.Tumbling(5)
    )
    for query, message in ((left, "branches"), (groups, "aggregates"), (timed, "aggregates")):
        with pytest.raises(eddy.InputError, match=f"ordered .*{message}"):
            engine.start("q", query, ordered=True)
    with pytest.raises(eddy.InputError, match="ordered is True or False, not 'no'"):
        engine.start("q", join, ordered="no")  # type: ignore[arg-type]
    with pytest.raises(eddy.InputError, match="bounded is True or False, not 1"):
        eddy.Engine([Stream("R", TIMED, time="t")], bounded=1)
    assert not engine.queries
