"""Strategies by name, and the states that a caller names for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from eddy.streams.numbers import at_least
from jisc.plan.states import Masks, StateId, states_of
from jisc.plan.tree import Tree, names_in, quoted
from jisc.strategies import STRATEGIES, Strategy, StrategyName
from jisc.strategies.base import PURGES
from stairs.errors import InputError, PlanError
from stairs.graph import JoinGraph
from stairs.modules import Modules
from stairs.nearest import nearest


def strategy_name(text: str) -> StrategyName:
    """Return the name of a strategy with its literal type. Raises InputError for an unknown name."""
    if text not in STRATEGIES:
        near, names = nearest(text, STRATEGIES), ", ".join(sorted(STRATEGIES))
        raise InputError(f"there is no strategy {text!r}{near}; choose one of {names}")
    return cast(StrategyName, text)


def make_strategy(
    name: str,
    modules: Modules,
    tree: Tree,
    background: int = 0,
    store: Iterable[StateId | str] | None = None,
    purge: str = "exact",
) -> Strategy:
    """Return a new strategy that runs a plan.

    background, store, purge   see `eddy.Runtime`

    Raises InputError for an unknown name or a wrong `background` or `purge`, PlanError for states that the plan does
    not have or that the strategy does not let the caller choose.
    """
    kind = STRATEGIES[strategy_name(name)]
    states: frozenset[StateId] | None
    keys, states = check_background(kind, background), check_store(kind, tree, modules.graph, store)
    if store is None and not kind.can_store:
        states = None
    return kind(modules, tree, keys, states, check_purge(kind, purge))


def check_purge(kind: type[Strategy], purge: str) -> str:
    """Return when old plans end. Raises InputError for an unknown word, or if the strategy has no old plan to end."""
    if purge not in PURGES:
        raise InputError(f"purge={purge!r}: choose one of {', '.join(map(repr, PURGES))}")
    if purge != PURGES[0] and not kind.purges:
        raise InputError(
            f"purge={purge!r} is for strategy 'parallel-track'; strategy {kind.name!r} runs no old plan beside the new"
            " one"
        )
    return purge


def check_background(kind: type[Strategy], background: int) -> int:
    """Return the number of keys to promote after each push. Raises InputError if the strategy cannot do it."""
    keys = at_least(0, background)
    if keys is None:
        raise InputError(f"background is a number of keys, 0 or more, not {background!r}")
    if keys and not kind.can_promote:
        able = " and ".join(repr(strategy.name) for strategy in STRATEGIES.values() if strategy.can_promote)
        raise InputError(
            f"background={background} is for strategies {able}; strategy {kind.name!r} does not promote keys in the"
            " background"
        )
    return keys


def check_store(
    kind: type[Strategy], tree: Tree, graph: JoinGraph, store: Iterable[StateId | str] | None
) -> frozenset[StateId]:
    """Return the states to store from the start.

    Raises PlanError for a state that the plan does not have, and if the strategy does not let the caller choose.
    """
    if store is not None:
        kind.require_choice()
    return resolve(tree, graph, store or ())


def resolve(tree: Tree, graph: JoinGraph, store: Iterable[StateId | str]) -> frozenset[StateId]:
    """Return states of a plan, given as ids or by their streams ("R S"). Raises PlanError for an unknown state."""
    if isinstance(store, str) or not isinstance(store, Iterable):
        raise PlanError(f"store is a list of states such as ['R S'], not {store!r}")
    by_mask = {state.mask: state for state in states_of(tree, Masks(graph))}
    states = set[StateId]()
    for asked in store:
        if isinstance(asked, StateId):
            state = asked if by_mask.get(asked.mask) == asked else None
        else:
            wanted = set(names_in(str(asked)))
            mask = sum(1 << j for j, name in enumerate(graph.names) if name in wanted)
            state = by_mask.get(mask) if wanted <= set(graph.names) else None
        if state is None:
            known = ", ".join(repr(streams_text(state, graph)) for state in by_mask.values()) or "none"
            raise PlanError(f"plan {tree.text(graph.names)!r} has no inner state {asked!r}; its inner states: {known}")
        states.add(state)
    return frozenset(states)


def streams_text(state: StateId, graph: JoinGraph) -> str:
    """Return the streams of a state as `resolve` reads them."""
    return " ".join(quoted(graph.names[j]) for j in state.streams)
