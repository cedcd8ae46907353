"""The limits of the machine: kernels against simple references, and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.harness.turns import Mismatch
from bench.machine_limit import floor, memory, profile
from bench.machine_limit.floor import KEY, counted, counters, engine_traffic, lines_of, loop_traffic
from bench.machine_limit.memory import LINE, costs, cycle, powers_of_two
from bench.machine_limit.memory_kernels import chase, scatter, sweep_over
from bench.machine_limit.profile import CASES, PARTS, Kernel, KernelVariant, Stopwatch, TimedRuntime, split
from bench.ways.runners import EngineRunner, RuntimeRunner
from bench.workloads.sources import ArrivalChunk, RandomSource, chain, one_key
from stairs.descriptors import M_RESULTS

KINDS = ("dependent", "independent", "sequential")
(LATENCY,), (FLOOR,), (PROFILE,) = memory.FIGURES, floor.FIGURES, profile.FIGURES


def quiet(what: str) -> None:
    """Discard a progress message."""


def test_a_chase_comes_by_every_line_once() -> None:
    lines = cycle(64, 1)
    seen, at = set(), 0
    for steps in range(64):
        assert chase(lines, 0, steps) == at
        seen.add(at)
        at = int(lines[at, 0])
    assert (seen, at) == (set(range(64)), 0)
    assert chase(lines, 5, 64) == 5


def test_scattered_lines_are_those_of_splitmix() -> None:
    lines = np.zeros((64, LINE // 4), np.int32)
    lines[:, 0] = np.arange(64)
    mask = (1 << 64) - 1

    def mixed(k: int) -> int:
        x = k * 0x9E3779B97F4A7C15 & mask
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    places = [mixed(100 + k) >> 58 for k in range(1_000)]
    assert scatter(lines, 58, 100, 1_000) == sum(places)
    assert len(set(places)) == 64


def test_a_sweep_adds_up_everything_in_each_pass() -> None:
    words = np.random.default_rng(1).integers(-(10**9), 10**9, 1_000)
    assert sweep_over(words, 3) == sum(int((words ^ p).sum()) for p in range(3))


def test_costs_are_measured_round_by_round() -> None:
    measured = costs(4096, 2, 1_000)
    for kind in KINDS:
        assert len(measured[kind]) == 2
        assert min(measured[kind]) > 0


def test_sizes() -> None:
    assert [powers_of_two(n) for n in (1, 4096, 5_000, 6_000, 1e6)] == [4096, 4096, 4096, 8192, 1 << 20]


@pytest.mark.parametrize("n_bytes", [4, 16, 24, 64, 84, 404])
def test_lines_of_a_row(n_bytes: int) -> None:
    rows = [len({at // LINE for at in range(k * n_bytes, (k + 1) * n_bytes)}) for k in range(1_600)]
    assert lines_of(n_bytes) == pytest.approx(np.mean(rows))


def test_accesses_of_one_key_are_those_counted_one_by_one() -> None:
    query = one_key(3, 20, values=True)
    runner, source = EngineRunner(query), RandomSource(query, 12, 1)
    engine = runner
    rows: list[list[int]] = [[], [], []]
    matches = results = 0
    chunk = source.draw(400, 90)
    for i, key in zip(chunk.order.tolist(), chunk.keys[:, 0].tolist(), strict=True):
        counts = [rows[j][-20:].count(key) for j in range(3) if j != i]
        # The engine walks the chains only if each of them has an entry.
        matches += sum(counts) if all(counts) else 0
        results += int(np.prod(counts))
        rows[i].append(key)
    before = counters(engine.routes)
    runner.take(chunk, None)
    assert int(engine.modules.meta[M_RESULTS]) == results
    seen = counted(query.graph, engine.routes, before, 400, results)
    assert (seen.keys, seen.bindings) == (1, 0)
    assert seen.matches == pytest.approx(matches / 400)
    ids, arrow = engine_traffic(seen, engine.modules), engine_traffic(seen, engine.modules, 4)
    assert ids.random == pytest.approx(1 + lines_of(12) + matches / 400)
    assert arrow.gather == pytest.approx(4 * 2 / 3 * results / 400)
    assert arrow.working_set - ids.working_set == KEY * 4 * 60 // 3
    loop = loop_traffic(seen, query.graph, 60, 4)
    assert (loop.directory, loop.chain) == (0, pytest.approx(2 * matches / 400))
    assert loop.working_set == 12 * 16 + 12 * 60


def test_keys_that_matches_bring_along_are_counted() -> None:
    query = chain(10_000)
    runner = EngineRunner(query)
    engine = runner
    # R(1), S(1, 2), T(2, 3), U(3): the arrival of U matches T, which binds b, then S, which binds a, then R.
    keys = np.array([[1, 0], [1, 2], [2, 3], [3, 0]])
    before = counters(engine.routes)
    assert runner.take(ArrivalChunk(query, np.arange(4, dtype=np.uint8), keys, 4), None)[1] == [1]
    seen = counted(query.graph, engine.routes, before, 4, 1)
    assert (seen.keys, seen.bindings, seen.matches, seen.results) == (1.5, 2 / 4, 3 / 4, 1 / 4)
    assert engine_traffic(seen, engine.modules).heads == pytest.approx(1.5 + 0.5)


def test_latency_has_a_row_for_each_kind() -> None:
    assert [point["bytes"] for point in LATENCY.points(True)][-1] == 1 << 30
    assert [point["bytes"] for point in LATENCY.points(False)][-1] == 1 << 28
    rows = LATENCY.measure({**LATENCY.points(False)[0], "accesses": 2_000}, quiet)
    assert [row["access"] for row in rows] == list(KINDS)
    for row in rows:
        assert float(str(row["gb_per_s"])) == pytest.approx(LINE / float(str(row["ns"])))


def test_floor_has_a_row_for_each_way() -> None:
    small = {**FLOOR.points(False)[0], "window": 60, "arrivals": 500, "push": 200, "rounds": 2}
    rows = [{**small, **row} for row in FLOOR.measure(small, quiet)]
    assert [row["way"] for row in rows] == ["loop", "engine", "arrow"]
    for row in rows:
        ns, best, worst = (float(str(row[name])) for name in ("ns", "best_ns", "worst_ns"))
        assert float(str(row["ratio_best"])) == pytest.approx(ns / best)
        assert float(str(row["ratio_worst"])) == pytest.approx(ns / worst)
        counts = sum(float(str(row[name])) for name in ("directory", "heads", "chain", "gather"))
        assert float(str(row["random"])) == pytest.approx(counts)
        assert row["live"] == 4 * 60
    columns = set(rows[0])
    for plot in FLOOR.plots:
        assert {plot.x, plot.y, str(plot.by), *plot.where} <= columns
    for table in FLOOR.tables:
        assert {*table.rows, *table.value} <= columns


def test_a_stopwatch_counts_calls_by_name() -> None:
    class Worker:
        def work(self, n: int) -> int:
            return sum(range(n))

    worker, watch = Worker(), Stopwatch()
    watch.around(worker, "work", "working")
    assert worker.work(200_000) == sum(range(200_000))
    assert set(watch.seconds) == {"working"}
    assert watch.read()["working"] > 0
    assert watch.read() == {}


def test_parts_sum_to_the_whole() -> None:
    stages = {"whole": 10.0, "admit": 1.0, "load": 1.0, "route": 0.5, "kernel": 5.0, "gather": 2.0}
    full, counting, inserting = Kernel(0.1, 0.9, 4.0, 3), Kernel(0.2, 0.9, 3.0, 3), Kernel(0.2, 0.9, 1.0, 0)
    parts = split(stages, full, counting, inserting)
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(10)
    assert (parts["insert"], parts["probe"], parts["emit"], parts["call"]) == (1, 2, 1, 0.1)
    assert parts["rest"] == pytest.approx(10 - 1 - 1 - 0.5 - 2 - 0.1 - 0.9 - 4)


def test_variants_do_what_they_say() -> None:
    query = one_key(4, 30, values=True)
    source = RandomSource(query, 20, 1)
    chunk = source.draw(600, 150)
    expected = sum(RuntimeRunner(query).take(chunk, None)[1])
    variants = [KernelVariant(query), KernelVariant(query, counting=True), KernelVariant(query, probing=False)]
    assert [variant.take(chunk).results for variant in variants] == [expected, expected, 0]
    rows = [[variant.modules.rows(i) for i in range(4)] for variant in variants]
    assert rows == [[30] * 4] * 3
    for variant in variants:
        variant.modules.check()
    taken, results = TimedRuntime(query).take(chunk)
    assert results == expected
    assert set(taken) == {"whole", "admit", "load", "kernel", "gather", "route"}
    assert taken["whole"] > sum(seconds for name, seconds in taken.items() if name != "whole")


def small_profile() -> dict[str, str | int | float | bool]:
    return {**PROFILE.points(False)[0], "window": 40, "arrivals": 400, "push": 200, "rounds": 2}


def test_profile_has_a_row_for_each_part() -> None:
    assert [point["case"] for point in PROFILE.points(True)] == list(CASES)
    rows = [{**small_profile(), **row} for row in PROFILE.measure(small_profile(), quiet)]
    assert [row["part"] for row in rows] == [*PARTS, "whole"]
    taken = [float(str(row["ns"])) for row in rows]
    assert sum(taken[:-1]) == pytest.approx(taken[-1])
    for plot in PROFILE.plots:
        assert {plot.x, plot.y, *plot.where} <= set(rows[0])


def test_a_profile_of_other_work_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = KernelVariant.take
    monkeypatch.setattr(profile.KernelVariant, "take", lambda self, chunk: honest(self, chunk)._replace(results=1))
    with pytest.raises(Mismatch, match="profile of W1"):
        PROFILE.measure(small_profile(), quiet)
