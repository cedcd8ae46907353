"""The registry of strategies, and what strategies refuse."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import jisc.strategies
from jisc.plan.states import Masks, states_of
from jisc.plan.tree import default_plan, left_deep
from jisc.strategies import STRATEGIES, Strategy
from stairs.errors import PlanError
from stairs.modules import Modules
from tests.jisc.graphs import chain


def test_every_strategy_is_registered_by_its_name() -> None:
    classes = set[type[Strategy]]()
    for module in pkgutil.iter_modules(jisc.strategies.__path__, "jisc.strategies."):
        kinds = [kind for kind in vars(importlib.import_module(module.name)).values() if inspect.isclass(kind)]
        classes |= {
            kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, Strategy) and "name" in vars(kind)
        }
    assert classes == set(STRATEGIES.values())
    assert all(kind.name == name for name, kind in STRATEGIES.items())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_does_what_it_says_it_can(name: str) -> None:
    graph, kind = chain(4), STRATEGIES[name]
    tree, other = default_plan(graph), left_deep([3, 2, 1, 0])
    strategy = kind(Modules(graph), tree)
    states = states_of(other, Masks(graph))
    if not kind.changes:
        with pytest.raises(PlanError, match="keeps the plan it began with"):
            strategy.change(other)
        assert strategy.tree == tree
        return
    if kind.can_store:
        assert strategy.change(other, store=states).states == tuple(states)
        assert strategy.stored == set(states)
    elif kind.joins_many:
        assert strategy.change(other, store=states[:1]).states == tuple(states[:1])
        assert strategy.choice == set(states[:1])
    else:
        with pytest.raises(PlanError, match="decides by its own rule"):
            strategy.change(other, store=states)
        assert (strategy.tree, strategy.history.count, strategy.stored) == (tree, 0, frozenset())
        strategy.change(other)
    assert strategy.tree == other
    assert strategy.history.count == 1
