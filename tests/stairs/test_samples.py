"""Samples of live state: the picks, their partners, and routes tried on them, compared with counts by hand."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.routes import compile_routes
from jisc.plan.states import Masks
from jisc.plan.tree import left_deep
from stairs.descriptors import R_END, R_LEAF, R_TRUNK, S_BASE, S_LO, S_NEXT, S_WALKED, V_MATCHES, V_PROBES
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels.sample import LONGEST, W_PROBES, W_RESULTS, W_TUPLES, W_VISITS
from stairs.memory.arena import Int64s
from stairs.samples import EACH, NEWEST, PICKS, ROWS, Samples
from tests.jisc.graphs import connected_orders
from tests.stairs.driver import DriverRow, Key, PlanDriver, chain, one_class, rows_window

UNBOUNDED = Window(WindowKind.UNBOUNDED)
RANGE = Window(WindowKind.RANGE, 40)
GRAPHS: dict[str, JoinGraph] = {
    "one class": one_class([rows_window(20), rows_window(7), rows_window(12)]),
    "chain": chain([rows_window(16), rows_window(20), rows_window(11), rows_window(9), rows_window(16)]),
    "chain in time": chain([RANGE] * 4, timed=True),
    "late": chain([RANGE, rows_window(9), RANGE, UNBOUNDED], timed=True, lateness=5),
}


def made(graph: JoinGraph, seed: int, count: int, kinds: int = 3, slow: int | None = None) -> list[DriverRow]:
    """Draw arrivals, some without keys; stream `slow` gets one arrival of 20."""
    rng, rows = random.Random(seed), []
    for n in range(count):
        i = rng.randrange(graph.n_streams)
        if i == slow and rng.random() < 0.9:
            i = (i + 1) % graph.n_streams
        keys: tuple[Key, ...] = tuple((rng.randrange(kinds),) * graph.widths[c] for c in graph.attributes[i])
        rows.append(DriverRow(i, None if rng.random() < 0.1 else keys, n if graph.timed else 0))
    return rows


def live(driver: PlanDriver, history: list[DriverRow], i: int) -> list[DriverRow]:
    """Return the live tuples of a stream according to the modules, oldest first."""
    row = driver.modules.streams[i]
    arrived = [arrival for arrival in history if arrival.stream == i]
    return arrived[int(row[S_LO] + row[S_BASE]) : int(row[S_NEXT] + row[S_BASE])]


def partners(driver: PlanDriver, history: list[DriverRow], i: int, row: DriverRow) -> list[int]:
    """Count the live partners of a tuple with a loop, in the order of its neighbours."""
    graph = driver.graph
    counts = []
    for place, c in enumerate(graph.attributes[i]):
        for j in graph.members[c]:
            if j != i:
                at = graph.attributes[j].index(c)
                others = [arrival.keys[at] for arrival in live(driver, history, j) if arrival.keys is not None]
                counts.append(0 if row.keys is None else others.count(row.keys[place]))
    return counts


def numbered(driver: PlanDriver, pick: Int64s, history: list[DriverRow]) -> DriverRow:
    """Return the tuple of a pick."""
    i, s = (int(x) for x in pick)
    return [arrival for arrival in history if arrival.stream == i][s + int(driver.modules.streams[i, S_BASE])]


@given(name=st.sampled_from(sorted(GRAPHS)), seed=st.integers(0, 10**6), renumber=st.booleans())
def test_profiles_count_what_is_there(name: str, seed: int, renumber: bool) -> None:
    graph = GRAPHS[name]
    driver = PlanDriver(graph, renumber_at=32 if renumber else None)
    samples = Samples(driver.modules)
    history: list[DriverRow] = []
    for part in range(4):
        rows = made(graph, seed + part, 30)
        if graph.timed:
            rows = [DriverRow(row.stream, row.keys, row.time + 30 * part) for row in rows]
        history += rows
        driver.push(rows)
        before = samples.progress[:-1, 2].copy()
        fresh = samples.take()
        assert fresh.tolist() == [sum(row.stream == i for row in rows) for i in range(graph.n_streams)]
        for i in range(graph.n_streams):
            # The sample has all tuples, newest first: there are fewer than one sample takes.
            wanted = live(driver, history, i)[::-1][: int(fresh[i])]
            assert samples.progress[i, 2] - before[i] == len(wanted)
            slots = np.arange(before[i], before[i] + len(wanted)) % ROWS
            counted = samples.profiles[i, slots, : len(samples.neighbours[i])]
            assert counted.tolist() == [partners(driver, history, i, row) for row in wanted]
            drawn = samples.of_window(i, 1000, np.random.default_rng(0))
            assert drawn.tolist() == [partners(driver, history, i, row) for row in live(driver, history, i)]
        # Picks refer to the same tuples after a renumbering, and only live picks are returned.
        picks = samples.picks()
        for pick in picks:
            assert numbered(driver, pick, history) in live(driver, history, int(pick[0]))
    driver.modules.check()


def test_picks_are_spread_and_in_proportion_to_arrivals() -> None:
    graph = one_class([rows_window(2000)] * 3)
    driver = PlanDriver(graph)
    samples = Samples(driver.modules)
    counts: Counter[int] = Counter()
    arrived: Counter[int] = Counter()
    for part in range(30):
        rows = made(graph, part, 200, kinds=50, slow=2)
        arrived.update(row.stream for row in rows)
        driver.push(rows)
        before = samples.progress[:-1, 2].copy()
        low = driver.modules.streams[:, S_NEXT] - samples.take()
        gained = samples.progress[:-1, 2] - before
        counts.update(dict(enumerate(gained.tolist())))
        total = int(samples.progress[-1, 2])
        picks = samples.picked[np.arange(total - int(gained.sum()), total) % PICKS]
        for i in range(2):
            s = np.sort(picks[picks[:, 0] == i, 1]) - low[i]
            n = int(driver.modules.streams[i, S_NEXT] - low[i])
            # One pick in each stretch.
            assert s[0] <= n / len(s)
            assert s[-1] >= n - 1 - n / len(s)
            assert min(b - a for a, b in pairwise(s.tolist())) > 0
            assert max(b - a for a, b in pairwise(s.tolist())) <= 2 * n / len(s) + 1
    assert sum(counts.values()) == pytest.approx(30 * EACH, rel=0.02)
    for i in range(3):
        # Fractions carry over, so that a slow stream gets its picks.
        assert counts[i] / sum(counts.values()) == pytest.approx(arrived[i] / sum(arrived.values()), abs=0.02)
    assert counts[2] > 10


@pytest.mark.parametrize("period", [16, 60, 64, 100])
def test_keys_that_come_round_and_round_are_all_met(period: int) -> None:
    driver = PlanDriver(one_class([UNBOUNDED, UNBOUNDED]))
    samples = Samples(driver.modules)
    driver.push([DriverRow(1, ((k,),)) for k in range(period // 2)])
    samples.take()
    driver.push([DriverRow(0, ((k % period,),)) for k in range(4096)])
    samples.take()
    # Half of the keys have a partner.
    assert samples.profile(0)[:, 0].mean() == pytest.approx(0.5, abs=0.15)


def test_a_stream_that_expired_in_between_gives_live_tuples_only() -> None:
    driver = PlanDriver(one_class([rows_window(5), rows_window(500)]))
    samples = Samples(driver.modules)
    driver.push([DriverRow(0, ((1,),))] * 60 + [DriverRow(1, ((1,),))] * 60)
    samples.take()
    assert samples.progress[0, 2] == 5
    assert samples.profile(0).tolist() == [[60.0]] * 5
    # Picks that a stream could not supply stay due, but at most one.
    driver.push([DriverRow(1, ((1,),))] * 10)
    samples.take()
    assert samples.progress[0, 2] == 5


def test_nothing_new_nothing_picked() -> None:
    driver = PlanDriver(one_class([rows_window(50)] * 2))
    samples = Samples(driver.modules)
    assert samples.take().tolist() == [0, 0]
    assert len(samples.picks()) == len(samples.profile(0)) == 0
    assert samples.of_window(0, 10, np.random.default_rng(0)).shape == (0, 1)
    driver.push([DriverRow(0, ((1,),))])
    assert samples.take().tolist() == [1, 0]
    assert samples.take().tolist() == [0, 0]
    assert len(samples.picks()) == 1


@pytest.mark.parametrize("beside", [0, 300])
def test_long_chains_are_estimated(beside: int) -> None:
    """Beyond LONGEST tuples the estimate assumes the same density for the rest of a chain."""
    driver = PlanDriver(one_class([UNBOUNDED, UNBOUNDED]))
    rng = random.Random(1)
    keys = [1] * 700 + [2] * beside
    rng.shuffle(keys)
    driver.push([DriverRow(1, ((key,),)) for key in keys] + [DriverRow(0, ((1,),))])
    samples = Samples(driver.modules)
    counted = samples.of_window(0, 1, np.random.default_rng(0))
    assert counted[0, 0] == pytest.approx(700, rel=0.2 if beside else 0.001)
    assert LONGEST < 700


def test_draws_from_a_window_do_not_repeat() -> None:
    driver = PlanDriver(one_class([rows_window(300), UNBOUNDED]))
    # Tuple k of R has k partners, so the counts identify the tuples drawn.
    driver.push([DriverRow(1, ((k,),)) for k in range(60) for _ in range(k)])
    driver.push([DriverRow(0, ((k % 60,),)) for k in range(60)])
    samples = Samples(driver.modules)
    drawn = samples.of_window(0, 30, np.random.default_rng(3))[:, 0].tolist()
    assert len(set(drawn)) == 30
    assert set(drawn) <= set(range(60))
    every = [samples.of_window(0, 30, np.random.default_rng(seed)).mean() for seed in range(200)]
    assert np.mean(every) == pytest.approx(29.5, abs=0.5)


def test_the_newest_have_every_stream_by_its_share() -> None:
    """A stream whose window was replaced completely since the last sample has its share as well."""
    driver = PlanDriver(one_class([rows_window(20), rows_window(3000), rows_window(5)]))
    samples = Samples(driver.modules)
    assert samples.newest(np.array([0.5, 0.5, 0.0])).shape == (0, 2)
    driver.push([DriverRow(1, ((k,),)) for k in range(2000)] + [DriverRow(0, ((k,),)) for k in range(500)])
    samples.take()
    driver.push([DriverRow(0, ((k,),)) for k in range(500)])
    assert 0 not in samples.picks()[:, 0]
    picks = samples.newest(np.array([0.75, 0.25, 0.0]))
    assert Counter(picks[:, 0].tolist()) == {0: PICKS * 3 // 4, 1: PICKS // 4}
    low, following = driver.modules.streams[:, S_LO], driver.modules.streams[:, S_NEXT]
    assert set(picks[picks[:, 0] == 0, 1].tolist()) == set(range(low[0], following[0]))
    assert picks[picks[:, 0] == 1, 1].min() >= following[1] - NEWEST
    assert (np.diff(picks[:, 0]) != 0).sum() > 20


def test_a_push_taken_back_is_forgotten() -> None:
    driver = PlanDriver(one_class([rows_window(50)] * 2))
    samples = Samples(driver.modules)
    driver.push([DriverRow(0, ((1,),)), DriverRow(1, ((1,),))])
    samples.take()
    assert len(samples.picks()) == 2
    driver.walk([DriverRow(0, ((1,),))] * 5)
    # As the router does within a long push.
    assert samples.take().tolist() == [5, 0]
    driver.modules.undo()
    assert len(samples.picks()) == 0
    assert samples.progress[:-1, 0].tolist() == [1, 1]
    driver.push([DriverRow(0, ((2,),))] * 3)
    assert samples.take().tolist() == [3, 0]
    assert sorted(samples.picks().tolist()) == [[0, 1], [0, 2], [0, 3]]


# Routes tried on samples


def filled(graph: JoinGraph, seed: int, late: int) -> tuple[PlanDriver, list[DriverRow]]:
    """Push tuples of all streams but one, then `late` of that stream, which meet the same state before and after."""
    driver = PlanDriver(graph)
    rows = [row for row in made(graph, seed, 150) if row.stream != late]
    driver.push([DriverRow(row.stream, row.keys, 0) for row in rows])
    return driver, [row for row in made(graph, seed + 1, 200) if row.stream == late][:9]


@given(
    name=st.sampled_from(("one class", "chain")),
    seed=st.integers(0, 10**6),
    late=st.integers(0, 4),
    order=st.integers(0, 10**6),
)
def test_a_trace_does_what_the_kernel_does(name: str, seed: int, late: int, order: int) -> None:
    graph = GRAPHS[name]
    late %= graph.n_streams
    driver, rows = filled(graph, seed, late)
    orders = list(connected_orders(Masks(graph)))
    driver.routes = compile_routes(left_deep(orders[order % len(orders)]), graph)
    results = driver.push(rows)
    walked = int(driver.modules.streams[late, S_WALKED])
    samples = Samples(driver.modules)
    following = int(driver.modules.streams[late, S_NEXT])
    picks = np.array([(late, s) for s in range(following - len(rows), following)], np.int64).reshape(-1, 2)
    counters = driver.routes.counts.copy()
    trace = samples.trace(driver.routes, picks, 10**9)
    assert trace.whole
    assert (driver.routes.counts == counters).all()
    trunk, leaf, end = (int(driver.routes.span[late, column]) for column in (R_TRUNK, R_LEAF, R_END))
    assert trace.visits[trunk:leaf, 0].tolist() == counters[V_PROBES, trunk:leaf].tolist()
    assert trace.visits[trunk:leaf, 2].tolist() == counters[V_MATCHES, trunk:leaf].tolist()
    assert (trace.visits[trunk:leaf, 1] >= trace.visits[trunk:leaf, 2]).all()
    # Hops of other streams were not taken, and leaf hops are counted only in total.
    assert trace.visits.sum() == trace.visits[trunk:leaf].sum()
    assert end > trunk
    assert trace.work[W_TUPLES] == len(rows)
    assert trace.work[W_RESULTS] == len(results)
    assert trace.work[W_PROBES] == counters[V_PROBES, trunk:leaf].sum()
    assert trace.work[W_VISITS] == trace.visits[trunk:leaf, 1].sum()
    assert walked <= len(rows)


def test_a_trace_stops_at_its_budget() -> None:
    graph = chain([UNBOUNDED] * 5)
    driver = PlanDriver(graph)
    rows = [
        DriverRow(i, tuple((1,) * graph.widths[c] for c in graph.attributes[i])) for i in range(5) for _ in range(6)
    ]
    driver.push(rows)
    samples = Samples(driver.modules)
    samples.take()
    picks = samples.picks()
    assert len(picks) == 30
    whole = samples.trace(driver.routes, picks, 10**9)
    steps = whole.work[W_TUPLES] + whole.work[W_VISITS]
    assert steps > 1000
    for budget in (1, 10, 100, 1000):
        some = samples.trace(driver.routes, picks, budget)
        assert not some.whole
        assert some.work[W_TUPLES] + some.work[W_VISITS] == budget
        assert some.work[W_TUPLES] <= whole.work[W_TUPLES]
    enough = samples.trace(driver.routes, picks, int(steps) + 1)
    assert enough.whole
    assert (enough.work == whole.work).all()
    assert not samples.trace(driver.routes, picks, 0).work.any()


def test_tuples_that_join_nothing_end_at_once() -> None:
    graph = chain([UNBOUNDED] * 5)
    driver = PlanDriver(graph)
    driver.push([DriverRow(2, None), DriverRow(2, None)])
    samples = Samples(driver.modules)
    samples.take()
    trace = samples.trace(driver.routes, samples.picks(), 100)
    assert trace.whole
    assert trace.work[W_TUPLES] == 2
    assert trace.work.sum() == 2


def test_picks_are_dropped_when_a_renumbering_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renumbering did not reach every cache, so picks may have sequence numbers of future tuples."""
    graph = one_class([rows_window(20)] * 2)
    driver = PlanDriver(graph)
    samples = Samples(driver.modules)
    for part in range(20):
        driver.push(made(graph, part, 30))
        samples.take()
    with monkeypatch.context() as patch:
        patch.setattr(samples, "renumbered", lambda shifts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            driver.modules.renumber()
    driver.modules.undo()
    assert not len(samples.picks())
    assert (driver.modules.streams[:, S_NEXT] < 100).all()
