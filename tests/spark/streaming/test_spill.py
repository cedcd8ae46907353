"""Engines that a worker spills: equal results, and bytes within its share, whatever it evicts and when."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import eddy
from eddy.queries.sources import POSITION
from eddy.spark.errors import SparkJoinError
from eddy.spark.options import PartitionOptions
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import make_job
from eddy.spark.streaming.driver.memory import by_host, check_bound, fair, shares, too_small
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.engines import Engines, Holding, JoinStart
from eddy.spark.streaming.worker.eviction import Eviction, Uses, evictions
from eddy.spark.streaming.worker.group_queries import GroupQueries
from eddy.spark.streaming.worker.kept_engine import KeptEngine
from eddy.spark.streaming.worker.tasks import LIVE, MAPPED, MemoryReport, VersionTask
from jisc.strategies import STRATEGIES
from tests.cases import assert_same, text_rows
from tests.spark.streaming.hub_jobs import times

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
GROUPS = 4


def query(select: Sequence[str] = ("R.n", "S.n", "T.n")) -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(60), time="t") for name in "RST"]
    return eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], select=list(select))


def start(place: Path, name: str = "one", **options: Any) -> JoinStart:
    job = make_job(query(), options=EngineOptions(**options), partitions=GROUPS)
    return JoinStart(name, pickle.dumps((job, Locations(place, "test", place), (), None)), b"a secret of a test", True)


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)


def drawn(chance: random.Random, batch: int, rows: int) -> dict[str, pa.Table]:
    tables = {}
    for name in "RST":
        new_rows = [{"k": chance.randrange(6), "t": 10 * batch + chance.randrange(10), "n": k} for k in range(rows)]
        tables[name] = pa.Table.from_pylist(sorted(new_rows, key=lambda row: row["t"]), schema=SCHEMA)
    return tables


class SpillingGroups:
    """Key groups that a worker joins, and each in a runtime of its own."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.engines = Engines(start(place, **options))
        self.alone = [eddy.Runtime(query(), **options) for _ in range(GROUPS)]
        self.states: list[str | None] = [None] * GROUPS
        self.batch = 0
        self.chance = random.Random(3)

    def join(self, groups: Sequence[int], share: int | None, rows: int = 12) -> Iterator[str | None]:
        """Join rows of some groups; yield the source of each engine, None for a new one."""
        self.engines.begin(self.batch, share, groups)
        largest = 0
        for group in sorted(groups, key=lambda group: not self.engines.is_live(group)):
            given, before = drawn(self.chance, self.batch, rows), self.states[group]
            after = f"{group} {self.batch}"
            with self.engines.loan(group, before, after, False) as engine:
                source = engine.source if before is not None else None
                if engine.runtime is None:
                    assert before is None, f"group {group} was lost"
                    engine.runtime = self.engines.job.options.runtime(self.engines.job.query)
                assert isinstance(engine.runtime, eddy.Runtime)
                results = engine.runtime.push(given)
                largest = max(largest, engine.runtime.nbytes)
            expected = self.alone[group].push(given)
            assert_same(text_rows(results), text_rows(expected), f"group {group}, batch {self.batch}")
            self.states[group] = after
            if share is not None:
                assert self.engines.nbytes <= share
                assert self.engines.report().peak <= share + largest
            yield source
        self.batch += 1


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_results_are_equal_under_every_strategy(tmp_path: Path, strategy: str) -> None:
    run = SpillingGroups(tmp_path, strategy=strategy)
    for batch in range(7):
        share = (None, 0, 50_000, 200_000)[batch % 4]
        list(run.join([0, 1, 2] if batch % 2 else [1, 3], share))
    assert run.engines.report().spilled


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, GROUPS - 1)), st.none() | st.integers(0, 900_000)), max_size=8))
def test_any_access_under_any_share_gives_equal_results(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[set[int], int | None]]
) -> None:
    run = SpillingGroups(tmp_path_factory.mktemp("spill"), strategy="jisc")
    for groups, share in batches:
        list(run.join(sorted(groups), share))


def test_the_hot_group_stays_and_the_cold_ones_are_mapped(tmp_path: Path) -> None:
    run = SpillingGroups(tmp_path)
    for _ in range(8):
        list(run.join(range(GROUPS), None))
    sources: list[tuple[int, str | None]] = []
    for batch in range(12):
        groups = [0, 1 + batch % (GROUPS - 1)]
        sources += zip(groups, run.join(groups, run.engines.holding().nbytes // 2), strict=True)
    assert [source for group, source in sources if group == 0] == [LIVE] * 12
    assert [source for group, source in sources if group].count(MAPPED) >= 8
    report = run.engines.report()
    assert report.spilled == GROUPS - report.live
    assert report.spilled_bytes > 0


def test_a_worker_finds_the_spilled_engines_of_one_that_died(tmp_path: Path) -> None:
    """Spilled engines survive a kill of the process; live ones are loaded from the log."""
    run = SpillingGroups(tmp_path)
    list(run.join(range(GROUPS), 0))
    begun, run.engines = run.engines, Engines(start(tmp_path, "one"))
    assert list(run.join([0, 1], None)) == [MAPPED, MAPPED]
    run.engines.close()
    with Engines(start(tmp_path)).loan(0, run.states[0], "next", False) as engine:
        assert engine.runtime is None, "a live engine has died with its process"
        engine.runtime = eddy.Runtime(query())
    assert not begun.is_live(0)


def test_a_full_disk_costs_the_engine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SpillingGroups(tmp_path)
    list(run.join([0], None))

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("eddy.live.engine_file.EngineFile.save", full)
    run.engines.begin(1, 0, [])
    assert (run.engines.report().drops, run.engines.holding().engines) == (1, {})


def test_the_joins_of_a_hub_are_spilled_one_by_one(tmp_path: Path) -> None:
    chance, engines = random.Random(5), Engines(start(tmp_path))
    job, alone = engines.job, GroupQueries(engines.sources, engines.job.options, times)
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(30), time="t") for name in "RS"]
    branch = eddy.Branch(streams[1:], ["R.k = S.k"], "left")
    asked = {
        "left": eddy.Query(streams[:1], branches=[branch]),
        "three": query(),
        "two": eddy.Query(streams, ["R.k = S.k"], select=["R.n", "S.n"]),
    }
    after = None
    for batch in range(6):
        keys = list(asked) if batch < 4 else ["left", "two"]
        versions = [(VersionTask(key, 0, 0, False, None, None, False, alone=key == "left"), asked[key]) for key in keys]
        rows = drawn(chance, batch, 15)
        engines.begin(batch, 0, [0])
        before, after = after, f"{batch}"
        parts = {}
        with engines.loan(0, before, after, False) as engine:
            assert (engine.runtime is None) == (before is None)
            assert before is None or engine.source == (MAPPED if batch else LIVE)
            group_queries = engine.runtime = engine.runtime or GroupQueries(engines.sources, job.options, times)
            assert isinstance(group_queries, GroupQueries)
            for place in (group_queries, alone):
                place.adapt(versions, batch, dict, None if batch == 0 else 10 * batch, asked)
                outcomes = place.push(rows, batch, 10 * (batch + 1))
                parts[place] = {outcome.key: text_rows(outcome.results) for outcome in outcomes}
        assert parts[group_queries].keys() == parts[alone].keys()
        for key in parts[group_queries]:
            assert_same(parts[group_queries][key], parts[alone][key], f"{key}, batch {batch}")
        assert POSITION not in streams[0].schema.names


def live(nbytes: int, spare: int = 0) -> KeptEngine:
    engine = KeptEngine("state", None)
    engine.live, engine.nbytes, engine.spare = True, nbytes, spare
    return engine


def test_the_order_of_evictions() -> None:
    kept = {1: live(10**6, 10**5), 2: live(10**6), 3: live(10**8, 10**7), 4: live(10**6)}
    kept[5] = KeptEngine("spilled", None)
    rates = {1: 1.0, 2: 4.0, 3: 1.0, 4: 0.0, 5: 9.0}
    steps = evictions(kept, rates, due={4})
    # Stored states of all cold groups, then the engine with most bytes; the group that is due comes last.
    assert steps == [
        Eviction(1, True),
        Eviction(3, True),
        Eviction(3, False),
        Eviction(1, False),
        Eviction(2, False),
        Eviction(4, False),
    ]


def test_uses_fade() -> None:
    uses = Uses()
    for batch in (0, 16):
        uses.note(1, batch)
    assert (uses.rate(1, 16), uses.rate(1, 32), uses.rate(2, 32)) == (1.5, 0.75, 0)


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_shares_are_max_min_fair(bound: int, needs: list[int]) -> None:
    fair_shares = fair(bound, needs)
    assert bound - len(needs) ** 2 <= sum(fair_shares) <= bound
    for share, need in zip(fair_shares, needs, strict=True):
        # Nobody who lacks memory has less than another worker that has what it lacks.
        assert share >= need or all(share >= other - len(needs) for other in fair_shares)


def test_shares_of_hosts() -> None:
    holdings = [Holding("a", (), {}, nbytes=10), Holding("b", (), {}, nbytes=70), Holding("a", (), {}, nbytes=200)]
    assert shares(100, holdings) == [10, 100, 90]
    reports = [MemoryReport("a", 10, 1, 7, 0, 0, 9), MemoryReport("a", 90, 3, 50, 2, 40, 80)]
    (host,) = by_host(reports).values()
    assert (host.share, host.nbytes, host.peak, host.spilled, host.spilled_bytes) == (10, 57, 89, 2, 40)
    assert too_small(100, reports, (3, 10)) is None
    assert "key group 3 takes 11 bytes, but the share of a worker is 10" in str(too_small(100, reports, (3, 11)))


def test_sizes() -> None:
    assert [PartitionOptions(memory=size).memory_bytes for size in (None, 7, "7 B", "2 GiB", "1.5kB", "3MB")] == [
        None,
        7,
        7,
        2 << 30,
        1500,
        3 * 10**6,
    ]
    for wrong in (0, -1, 1.5, True, "2", "2g", "GiB", "-1 GiB", "0 B", b"1"):
        with pytest.raises(
            SparkJoinError, match=r"memory=.*pass a number of bytes, 1 or more, or text such as '2 GiB'"
        ):
            PartitionOptions(memory=wrong)  # type: ignore[arg-type]
    with pytest.raises(SparkJoinError, match=r"memory=99: an engine without rows takes 100 bytes already"):
        check_bound(99, 100)
