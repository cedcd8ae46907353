"""Plans, their costs, the greedy algorithm and the invariant, node operator sets: the examples of the paper."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given

from eddy import PlanError
from eddy.placement.costs import NEVER, Model, StreamStatistics, UnitCosts, placements
from eddy.placement.operators import node_operator_sets, sep_operators, texts, windows_at
from eddy.placement.plan import DESTINATION, JEP, SEP, SOURCE, jep
from tests.eddy.placement.models import models

NAMES = ("S1", "S2", "S3")
EXAMPLE = JEP((SEP(0, (1, 2), (1, 1)), SEP(1, (0, 2), (0, 1)), SEP(2, (0, 1), (0, 0))))


def test_example_1_is_what_a_user_writes() -> None:
    given_plan = {
        "S1": [("S2", "ship"), ("S3", "ship")],
        "S2": [("S1", "window"), ("S3", "ship")],
        "S3": [("S1", "window"), ("S2", "window")],
    }
    assert jep(given_plan, NAMES) == EXAMPLE
    assert EXAMPLE.text(NAMES).splitlines()[1] == "S2: window S1, ship S3"


def test_example_2_operator_sets() -> None:
    first, two, three = (texts(operators, NAMES) for operators in node_operator_sets(EXAMPLE))
    assert first == ["ship(S1, N(S2))", "ship(S1, N(S3))"]
    assert two == sorted(
        [
            "join(S1, S2)",
            "update(S2)",
            "ship(S2^S1, N(S3))",
            "update(S1)",
            "join(S2, S1)",
            "ship(S1^S2, N(S3))",
            "ship(S2, N(S3))",
        ]
    )
    assert three == sorted(
        [
            "join(S2^S1, S3)",
            "update(S3)",
            "ship(S3^S1, site)",
            "join(S1^S2, S3)",
            "ship(S3^S2, site)",
            "join(S3, S1)",
            "join(S1^S3, S2)",
            "update(S1)",
            "update(S2)",
            "ship(S2^S3, site)",
        ]
    )
    assert windows_at(node_operator_sets(EXAMPLE)[1]) == {0, 1}


def test_example_3_operators_of_one_plan_before_and_after() -> None:
    before = {node: texts(operators, NAMES) for node, operators in sep_operators(SEP(0, (1, 2), (1, 1))).items()}
    after = {node: texts(operators, NAMES) for node, operators in sep_operators(SEP(0, (2, 1), (0, 1))).items()}
    assert before == {
        0: ["ship(S1, N(S2))"],
        1: ["join(S1, S2)", "ship(S2^S1, N(S3))", "update(S2)"],
        2: ["join(S2^S1, S3)", "ship(S3^S1, site)", "update(S3)"],
    }
    assert after == {
        0: ["join(S1, S3)", "ship(S3^S1, N(S2))", "update(S3)"],
        1: ["join(S3^S1, S2)", "ship(S2^S1, site)", "update(S2)"],
        2: ["ship(S3, N(S1))"],
    }


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"S1": [("S2", "ship")], "S2": [("S1", "ship")]}, "stream S3 has no plan"),
        ({"S1": [("X", "ship")], "S2": [], "S3": []}, "no stream 'X'"),
        ({"S1": [("S2", "fly")], "S2": [], "S3": []}, "no pair"),
        ({"S1": [("S2", "ship")], "S2": [], "S3": []}, "each of the other streams"),
        ({"S1": [("S2", "ship"), ("S2", "ship")]}, "head S1: S2 comes twice; join each of the other streams once"),
        ({"S1": [("S1", "ship"), ("S2", "ship")]}, "head S1: S1 comes twice"),
        ({"S1": None}, "head S1: None is no list of pairs"),
        ({"S1": [("S2", ["ship"])]}, "is no pair"),
        ({"S1": [(["S2"], "ship")]}, "there is no stream .'S2'."),
    ],
)
def test_plans_that_do_not_fit(plan: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        jep(plan, NAMES)


def test_plans_are_validated() -> None:
    with pytest.raises(PlanError, match="placements"):
        SEP(0, (1, 2), (1, 2))
    with pytest.raises(PlanError, match="one plan per stream"):
        JEP((SEP(1, (0,), (1,)), SEP(0, (1,), (1,))))
    with pytest.raises(PlanError, match="c_r"):
        UnitCosts(c_r=0)


def test_equations_1_and_2() -> None:
    """The costs of one join, term by term, with the defaults of the paper's experiments."""
    costs = UnitCosts(c_l=5e-3, c_r=128_000, c_u=3.0, c_p=2.0)
    r, s = (StreamStatistics(rate, rate / 2, size, (0.01,)) for rate, size in ((100.0, 150.0), (40.0, 300.0)))
    model = Model((r, s), costs)
    before, after = model.flows(0, [1])
    source, destination = placements(before, 1, s, costs)
    probing = 100 * 20 * 2.0
    assert source == pytest.approx(5e-3 + 40 * 300 / 128_000 + 40 * 3.0 + probing)
    assert destination == pytest.approx(5e-3 + 100 * 150 / 128_000 + 40 * 3.0 + probing)
    assert (after.rate, after.tuple_bytes, after.selectivity) == (100 * 0.01 * 20, 450.0, (0.01,))


def test_a_stream_without_a_common_class_is_never_next() -> None:
    chain = [StreamStatistics(1.0, 1.0, 1.0, f) for f in ((0.1, None), (0.1, 0.1), (None, 0.1))]
    model = Model(tuple(chain))
    assert placements(model.flows(0, [])[0], 2, chain[2], model.costs) == (NEVER, NEVER)
    assert [sep.order for sep in model.greedy().seps][::2] == [(1, 2), (1, 0)]


@given(models())
def test_the_greedy_plan_keeps_the_invariant(model: Model) -> None:
    assert model.violation(model.greedy()) == 1.0


@given(models(4))
def test_no_other_plan_keeps_it_unless_a_join_costs_the_same(model: Model) -> None:
    """Each head's plan is the least by (cost, stream) at every position; equation 4 with the tie rule."""
    greedy = model.greedy()
    for sep in greedy.seps:
        for order, placement in product(permutations(sep.order), product((SOURCE, DESTINATION), repeat=len(sep.order))):
            other = greedy.replaced(SEP(sep.head, order, placement))
            if model.violation(other) > 1.0:
                continue
            flows = zip(model.flows(sep.head, sep.order), sep.order, order, strict=False)
            k = next((k for k, (_, a, b) in enumerate(flows) if a != b), None)
            if k is not None:
                flow = model.flows(sep.head, sep.order)[k]
                costs = [min(placements(flow, j, model.streams[j], model.costs)) for j in (sep.order[k], order[k])]
                assert costs[0] == pytest.approx(costs[1])


@given(models(5))
def test_a_shared_copy_is_charged_once(model: Model) -> None:
    shared = Model(model.streams, model.costs, shared=True)
    plan = shared.greedy()
    assert shared.violation(plan) == 1.0
    assert shared.cost(plan) <= model.cost(plan) + 1e-12
