"""Decisions of each policy on windows for which the right answer is known.

Policies are given views of a runtime that leaves its plan alone, with nothing measured: nothing depends on time.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.routing import policies
from eddy.routing.policies import POLICIES, Decision, Policy, View
from eddy.routing.policies.a_greedy import AGreedy
from eddy.routing.policies.bandit import Bandit
from eddy.routing.policies.cost import Cost
from eddy.routing.policies.fixed import Fixed
from eddy.routing.policies.greedy import Greedy, centre
from eddy.routing.policies.lottery import Lottery
from eddy.routing.policies.rank import Rank
from jisc.plan.routes import route
from jisc.plan.states import states_of
from jisc.plan.tree import Tree, check_connected, left_deep
from jisc.strategies import StrategyName
from tests.eddy.queries import make_query
from tests.jisc.graphs import connected_orders

Columns = dict[str, Sequence[int]]
SNOWFLAKE = {"F": "abc", "A": "ax", "A2": "x", "B": "by", "B2": "y", "C": "cz", "C2": "z"}
"""A centre with three arms of two streams each."""
KILLER_LAST = "F A A2 B B2 C C2"


class World:
    """A runtime that never asks its policy, and views of it."""

    def __init__(
        self, columns: dict[str, str], plan: str | None = None, rows: int = 1000, strategy: StrategyName = "eddy"
    ) -> None:
        self.query = make_query(columns, eddy.Rows(rows))
        # Never due: samples are taken when the tests ask for them.
        self.runtime = eddy.Runtime(
            self.query, plan, strategy=strategy, policy="fixed", decide_every=1 << 40, count_only=True
        )
        self.rng = np.random.default_rng(5)

    def push(self, **batches: Columns) -> World:
        """Push rows, streams in turn, and take samples of them."""
        made = {
            name: pa.record_batch({c: pa.array(v, pa.int64()) for c, v in columns.items()})
            for name, columns in batches.items()
        }
        names = [stream.name for stream in self.query.streams]
        order = np.concatenate([[names.index(name)] * len(batch) for name, batch in made.items()])
        self.runtime.push(made, order=self.rng.permutation(order))
        self.runtime._pipeline.join.router.look()
        return self

    @property
    def view(self) -> View:
        return self.runtime._pipeline.join.router.view_now()

    def draw(self, keys: int, rows: int) -> np.ndarray:
        return self.rng.integers(0, keys, rows)

    def order(self, decision: Decision | None) -> list[str]:
        """Return the streams of a decided left-deep plan, in order."""
        assert decision is not None
        assert isinstance(decision.plan, Tree)
        return [self.query.streams[i].name for i in decision.plan.leaves()]

    def first_hop(self, tree: Tree, stream: str) -> str:
        """Return the first stream that tuples of a stream probe."""
        names = [query_stream.name for query_stream in self.query.streams]
        return names[route(tree, names.index(stream), self.query.graph)[0].stream]


def snowflake() -> World:
    """Return a world in which tuples of F have five partners in A and in B, and one in C on average."""
    world = World(SNOWFLAKE, KILLER_LAST)
    n = 300
    world.push(
        A={"a": world.draw(60, n), "x": world.draw(60, n)},
        A2={"x": world.draw(60, n)},
        B={"b": world.draw(60, n), "y": world.draw(60, n)},
        B2={"y": world.draw(60, n)},
        C={"c": world.draw(n, n), "z": world.draw(60, n)},
        C2={"z": world.draw(60, n)},
    )
    for _ in range(4):
        world.push(F={"a": world.draw(60, n), "b": world.draw(60, n), "c": world.draw(n, n)})
    return world


def test_every_policy_is_registered_by_its_name() -> None:
    classes = set[type]()
    for module in pkgutil.iter_modules(policies.__path__, f"{policies.__name__}."):
        kinds = [kind for kind in vars(importlib.import_module(module.name)).values() if inspect.isclass(kind)]
        classes |= {kind for kind in kinds if hasattr(kind, "decide") and kind is not Policy}
    assert classes == set(POLICIES.values())
    assert all(make().name == name for name, make in POLICIES.items())


@pytest.mark.parametrize("policy", [Rank(), AGreedy(), Cost()], ids=lambda policy: policy.name)
def test_the_arm_with_fewest_partners_comes_first(policy: Policy) -> None:
    world = snowflake()
    decision = policy.decide(world.view)
    assert decision is not None
    assert isinstance(decision.plan, Tree)
    assert world.first_hop(decision.plan, "F") == "C"
    assert "ns per arrival" in decision.reason
    # Afterwards the plan stays.
    world.runtime.transition(decision.plan.text(world.query.graph.names), store=())
    again = policy.decide(world.view)
    assert again is None or world.first_hop(world.view.tree_of(again.plan), "F") == "C"


@pytest.mark.parametrize("policy", [Rank(), AGreedy(), Cost()], ids=lambda policy: policy.name)
def test_a_long_chain_is_cut_where_it_breaks(policy: Policy) -> None:
    """A tuple of the middle of a chain first probes the side with one match, then the one with ten."""
    columns = {"P": "a", "Q": "ab", "M": "bc", "S": "cd", "T": "d"}
    world = World(columns, "M Q P S T", rows=60)
    for _ in range(4):
        n = 60
        world.push(
            P={"a": world.draw(60, n)},
            Q={"a": world.draw(60, n), "b": world.draw(6, n)},
            M={"b": world.draw(6, 9 * n), "c": world.draw(n, 9 * n)},
            S={"c": np.arange(n), "d": world.draw(20, n)},
            T={"d": world.draw(20, n)},
        )
    decision = policy.decide(world.view)
    assert decision is not None
    assert world.first_hop(world.view.tree_of(decision.plan), "M") == "S"


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_decided_about_empty_windows_that_would_matter(name: str) -> None:
    world = World(SNOWFLAKE)
    decision = POLICIES[name]().decide(world.view)
    if decision is not None:
        check_connected(world.view.tree_of(decision.plan), world.query.graph)
    if name in ("fixed", "cost", "rank", "a-greedy"):
        assert decision is None


def test_greed_by_condition_sees_that_two_arms_kill_the_same_tuples() -> None:
    world = World(SNOWFLAKE, "C2 C F A A2 B B2")
    half, more = list(range(50)), list(range(60))
    world.push(
        A={"a": half, "x": half},
        A2={"x": half},
        B={"b": half, "y": half},
        B2={"y": half},
        C={"c": more, "z": more},
        C2={"z": more},
    )
    for _ in range(4):
        keys = world.draw(100, 300)
        # a and b pass together, half of the time; c passes six times of ten, independently.
        world.push(F={"a": keys, "b": keys, "c": world.draw(100, 300)})
    alone = world.order(Rank(margin=-9.0).decide(world.view))
    together = world.order(AGreedy(margin=-9.0).decide(world.view))
    arms = [[name for name in order if name in "ABC"] for order in (alone, together)]
    assert set(arms[0][:2]) == {"A", "B"}
    assert arms[0][2] == "C"
    assert arms[1][0] in "AB"
    assert arms[1][1] == "C"
    # Heads looked up ahead of their turn show the correlation to any order: the two cost nearly the same.
    view = world.view
    known = view.cost(left_deep([[s.name for s in world.query.streams].index(name) for name in together]))
    other = view.cost(left_deep([[s.name for s in world.query.streams].index(name) for name in alone]))
    assert known == pytest.approx(other, rel=0.02)


def test_a_margin_keeps_what_is_nearly_as_good() -> None:
    world = World(SNOWFLAKE, "F A A2 B B2 C C2")
    for _ in range(4):
        n = 200
        world.push(
            F={"a": world.draw(60, n), "b": world.draw(60, n), "c": world.draw(60, n)},
            A={"a": world.draw(60, n), "x": world.draw(60, n)},
            A2={"x": world.draw(60, n)},
            B={"b": world.draw(60, n), "y": world.draw(60, n)},
            B2={"y": world.draw(60, n)},
            C={"c": world.draw(60, n), "z": world.draw(60, n)},
            C2={"z": world.draw(60, n)},
        )
    # All arms are alike, so no order is worth a change.
    for policy in (Rank(margin=0.5), AGreedy(margin=0.5), Cost(margin=0.5, storing=0.99)):
        assert policy.decide(world.view) is None


@pytest.mark.parametrize("columns", [SNOWFLAKE, {"R": "ab", "S": "bc", "T": "ca"}, {"R": "a", "S": "a", "T": "a"}])
def test_greedy_orders_are_connected_whatever_they_start_with(columns: dict[str, str]) -> None:
    world = World(columns)
    for _ in range(2):
        world.push(**{name: {c: world.draw(9, 60) for c in letters} for name, letters in columns.items()})
    view = world.view
    orders = set(connected_orders(view.masks))
    for conditional in (False, True):
        greedy = Greedy(view, conditional)
        assert {greedy.order(i) for i in range(len(columns))} <= orders
    assert 0 <= centre(view) < len(columns)


def test_lottery_draws_connected_orders_and_favours_what_takes_and_keeps() -> None:
    world = World(SNOWFLAKE)
    view = world.view
    names = [stream.name for stream in world.query.streams]
    probed = np.ones((7, 2))
    # C takes thousands of tuples and returns none; A returns all it takes.
    probed[names.index("C")] = 4000, 0
    probed[names.index("A")] = 4000, 4000
    policy, firsts = Lottery(), Counter[str]()
    for _ in range(200):
        decision = policy.decide(replace(view, probed=probed))
        if decision is not None:
            order = tuple(view.tree_of(decision.plan).leaves())
            assert sorted(order) == list(range(7))
            check_connected(left_deep(order), world.query.graph)
            firsts[names[order[0]]] += 1
    assert firsts["C"] > 150
    # Tickets decay: a stream that is no longer probed has no tickets left.
    for _ in range(100):
        policy.decide(replace(view, probed=np.ones((7, 2))))
    later = Counter(names[next(iter(decision.plan.leaves()))] for decision in (  # type: ignore[union-attr]
        policy.decide(replace(view, probed=np.ones((7, 2)))) for _ in range(300)
    ) if decision is not None)  # fmt: skip
    assert later["C"] < 100


def test_bandit_ends_on_the_plan_that_costs_least_and_finds_the_next_one() -> None:
    world = snowflake()
    view, policy, noise = world.view, Bandit(), np.random.default_rng(2)
    tree = view.tree

    def play(cheapest: int, times: int) -> Counter[Tree]:
        nonlocal tree
        played = Counter[Tree]()
        for _ in range(times):
            known = policy._plans
            loss = 100.0 if known and tree == known[cheapest] else 250.0
            decision = policy.decide(replace(view, tree=tree, settled=True, measured=loss * noise.uniform(0.9, 1.1)))
            if decision is not None:
                tree = view.tree_of(decision.plan)
            played[tree] += 1
        return played

    play(2, 200)
    assert len(policy._plans) > 3
    assert play(2, 200)[policy._plans[2]] > 150
    play(1, 400)
    assert play(1, 200)[policy._plans[1]] > 150


def test_bandit_counts_only_what_ran_unchanged() -> None:
    world = snowflake()
    policy = Bandit()
    for settled, measured in ((False, 100.0), (True, float("nan"))):
        policy.decide(replace(world.view, settled=settled, measured=measured))
        assert not any(policy._played)
    policy.decide(replace(world.view, settled=True, measured=100.0))
    assert sum(policy._played) == 1


def test_bandit_has_no_arms_where_plans_are_alike() -> None:
    world = World({"R": "a", "S": "a", "T": "a"})
    assert Bandit().decide(replace(world.view, settled=True, measured=100.0)) is None


# --- stored states ---------------------------------------------------------------------------------------------------

RATES = {"R": "a", "S": "ab", "T": "bc", "U": "c"}


def rates(world: World, busy: Sequence[str], times: int = 8, keys: int = 1500) -> World:
    """Push rows mostly of the busy streams; S and T match often, and of their combinations the more match U, the fewer
    keys T and U have.
    """
    for _ in range(times):
        count = {name: 400 if name in busy else 15 for name in RATES}
        world.push(
            R={"a": world.draw(15, count["R"])},
            S={"a": world.draw(15, count["S"]), "b": world.draw(15, count["S"])},
            T={"b": world.draw(15, count["T"]), "c": world.draw(keys, count["T"])},
            U={"c": world.draw(keys, count["U"])},
        )
    return world


def test_cost_stores_what_a_busy_stream_probes_and_gives_it_up_when_rates_turn() -> None:
    world = rates(World(RATES, rows=120), ["R"])
    decision = Cost().decide(world.view)
    assert decision is not None
    assert decision.store
    tree = world.view.tree_of(decision.plan)
    names = world.query.graph.names
    stored = [{names[j] for j in state.streams} for state in decision.store]  # type: ignore[union-attr]
    # States that R probes are stored; states with R are not, because each arrival would add entries to them.
    assert any({"S", "T"} <= streams for streams in stored)
    assert all("R" not in streams for streams in stored)
    texts = [" ".join(sorted(streams)) for streams in stored]
    world.runtime.transition(tree.text(names), store=texts)
    assert world.view.stored == frozenset(decision.store)
    again = Cost().decide(world.view)
    assert again is None or again.store
    rates(world, ["S", "T"], keys=60)
    turned = Cost().decide(world.view)
    assert turned is not None
    kept = [{names[j] for j in state.streams} for state in turned.store or ()]  # type: ignore[union-attr]
    assert not any({"S", "T"} <= streams for streams in kept)


def test_cost_stores_nothing_where_nothing_can_be_stored() -> None:
    world = rates(World(RATES, rows=120), ["R"])
    decision = Cost().decide(replace(world.view, storing=False))
    assert decision is None or not decision.store


def test_what_is_worth_storing_fits_and_pays() -> None:
    world = rates(World(RATES, "R (S (T U))", rows=120), ["R"])
    view = world.view
    cost, benefits = view.benefits(view.tree)
    states = view.worth_storing(view.tree)
    assert states == {benefit.state for benefit in benefits if benefit.net > 0}
    assert view.stored_cost(view.tree, states) == pytest.approx(
        cost - sum(benefit.net for benefit in benefits if benefit.state in states)
    )
    assert view.considered[view.tree, states] == view.stored_cost(view.tree, states)
    paying = sorted((benefit for benefit in benefits if benefit.net > 0), key=lambda benefit: benefit.n_bytes)
    room = paying[0].n_bytes
    tight = replace(view, room=room, considered={}).worth_storing(view.tree)
    assert sum(benefit.n_bytes for benefit in benefits if benefit.state in tight) <= room


# --- plans that store all their states -------------------------------------------------------------------------------

PIPELINED: tuple[StrategyName, ...] = ("jisc", "moving-state", "stairs", "eddy-jisc", "eddy-stairs", "parallel-track")
FANS: dict[str, dict[str, int]] = {
    "R": {"a": 12},
    "S": {"a": 12, "b": 12},
    "T": {"b": 12, "c": 2000},
    "U": {"c": 2000},
}
"""Key ranges: R S and R S T are large, and T U and S T U are small."""


def fans(world: World, times: int = 8) -> World:
    for _ in range(times):
        world.push(
            **{name: {c: world.draw(keys, 60) for c, keys in key_ranges.items()} for name, key_ranges in FANS.items()}
        )
    return world


def all_plans(view: View) -> list[Tree]:
    """Return the plans of a query of four streams in a chain, without mirror images."""
    texts = ["((R S) T) U", "((S T) R) U", "((S T) U) R", "((T U) S) R", "(R S) (T U)"]
    return [view.tree_of(text) for text in texts]


@pytest.mark.parametrize("strategy", PIPELINED)
def test_cost_finds_the_plan_whose_states_cost_least(strategy: StrategyName) -> None:
    """The strategy stores all states, equal rates or not: the policy weighs each plan with the states that it has."""
    world = fans(
        World(
            {name: "".join(key_ranges) for name, key_ranges in FANS.items()}, "((R S) T) U", rows=120, strategy=strategy
        )
    )
    view = world.view
    assert view.pipelined
    assert view.kept(view.tree) == frozenset(states_of(view.tree, view.masks))
    decision = Cost().decide(view)
    assert decision is not None
    assert not decision.store
    least = min(view.cost(tree) for tree in all_plans(view))
    assert view.cost(decision.plan) <= 1.05 * least < 0.5 * view.present
    world.runtime.transition(view.tree_of(decision.plan).text(world.query.graph.names))
    assert Cost().decide(world.view) is None


def test_a_bushy_plan_is_found_at_equal_rates() -> None:
    """A chain of five that breaks in the middle has two small halves, which no left-deep plan has."""
    columns = {"P": "a", "Q": "ab", "M": "bc", "S": "cd", "T": "de", "U": "e"}
    keys = {"a": 500, "b": 500, "c": 4, "d": 500, "e": 500}
    world = World(columns, "((((P Q) M) S) T) U", rows=120, strategy="jisc")
    for _ in range(8):
        world.push(**{name: {c: world.draw(keys[c], 60) for c in letters} for name, letters in columns.items()})
    decision = Cost().decide(world.view)
    assert decision is not None
    halves = {frozenset(side.streams) for side in world.view.tree_of(decision.plan).children}
    assert halves == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}


def test_a_plan_whose_states_do_not_fit_is_not_chosen() -> None:
    world = fans(
        World(
            {name: "".join(key_ranges) for name, key_ranges in FANS.items()}, "((R S) T) U", rows=120, strategy="jisc"
        )
    )
    view = world.view
    sizes = {
        tree: sum(benefit.n_bytes for benefit in view.benefits(tree)[1] if benefit.state in view.kept(tree))
        for tree in all_plans(view)
    }
    tight = replace(view, room=min(sizes.values()) - 1, considered={})
    assert all(np.isinf(tight.cost(tree)) for tree in all_plans(view) if tree != view.tree)
    assert Cost().decide(tight) is None


# --- the view --------------------------------------------------------------------------------------------------------


def test_what_a_view_tells() -> None:
    world = World({"R": "a", "S": "ab", "T": "b"}, "(R S) T")
    world.push(R={"a": [1, 1, 2]}, S={"a": [1, 2, 3, 9], "b": [5, 5, 6, 6]}, T={"b": [6, 6, 6]})
    view = world.view
    assert view.plan == "(R S) T"
    assert view.position == 10
    assert view.rows.tolist() == [3, 4, 3]
    assert view.shares.sum() == pytest.approx(1)
    assert view.fanout(1, 0) == 0.75
    assert view.hit(1, 0) == 0.5
    assert view.fanout(1, 2) == 1.5
    assert view.fanout(0, 1, by=0) == 1
    assert [tuple(near) for near in view.neighbours(1)] == [(0, 0), (1, 2)]
    assert view.profile(1).shape == (4, 2)
    with pytest.raises(ValueError, match="R and T share no such class"):
        view.fanout(0, 2)
    assert view.cost("R (S T)") == view.cost("R (S T)") > 0
    assert view.kind("(S R) T") == view.kind("(R S) T") != view.kind("(S T) R")
    with pytest.raises(eddy.PlanError, match="no predicate connects"):
        view.cost("(R T) S")


def test_a_view_of_nothing() -> None:
    view = World({"R": "a", "S": "ab", "T": "b"}).view
    assert np.isnan(view.fanout(0, 1))
    assert np.isnan(view.hit(0, 1))
    assert np.isnan(view.cost(view.plan))
    assert len(view.picks) == 0


def test_predictions_rank_plans_as_the_work_they_do() -> None:
    """Predicted costs of plans rank as the tuples met when the same arrivals run under each plan."""
    world = snowflake()
    view = world.view
    orders = list(connected_orders(view.masks))[::37][:12]
    pushed, met = np.random.default_rng(3), []
    rows = {"a": pushed.integers(0, 60, 200), "b": pushed.integers(0, 60, 200), "c": pushed.integers(0, 5000, 200)}
    saved = world.runtime.snapshot()
    for order in orders:
        plan = left_deep(order).text(world.query.graph.names)
        again = eddy.Runtime.restore(saved, world.query, plan)
        again.push({"F": pa.record_batch(rows)}, order=[0] * 200)
        met.append(again.metrics()["matches"] + again.metrics()["probes"])
    predicted = [view.cost(left_deep(order)) for order in orders]
    ranked = [met[k] for k in np.argsort(predicted, kind="stable")]
    # Plans of similar cost may swap places; no clearly more expensive plan comes earlier.
    assert all(b > 0.8 * a for a, b in pairwise(ranked))
    assert Fixed().decide(view) is None
