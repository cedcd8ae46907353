"""Strategies by name, and the figures of transitions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import NamedTuple

import pyarrow as pa

from eddy.query.numbers import at_least
from jisc.plan.states import Masks, StateId, states_of
from jisc.plan.tree import Tree, names_in, quoted
from jisc.strategies import STRATEGIES, Eddy, Jisc, Strategy, Transition
from stairs.errors import InputError, PlanError
from stairs.graph import JoinGraph
from stairs.modules import Modules

KINDS = {"int": pa.int64(), "int | None": pa.int64(), "float": pa.float64()}
FIGURES = [(field.name, KINDS[str(field.type)]) for field in fields(Transition) if str(field.type) in KINDS]
TEXTS = ("reason", "strategy", "old", "new", "stored")
SCHEMA = pa.schema([FIGURES[0], *((name, pa.string()) for name in TEXTS), *FIGURES[1:]])
"""The columns of `Runtime.history()`."""


class Scheduled(NamedTuple):
    """A transition to come, when arrival number `at` is next: the plan, and the states stored (None = as now)."""

    at: int
    tree: Tree
    store: frozenset[StateId] | None = None


def make_strategy(
    name: str, modules: Modules, tree: Tree, background: int = 0, store: Iterable[StateId | str] | None = None
) -> Strategy:
    """Return the strategy of a name, running a plan.

    store   the states that "eddy" stores. Raises InputError for an unknown name or a wrong `background`, PlanError for
            states that the plan has not got
    """
    if name not in STRATEGIES:
        raise InputError(f"there is no strategy {name!r}; choose one of {', '.join(sorted(STRATEGIES))}")
    kind = STRATEGIES[name]
    keys = check_background(kind, background)
    stored = check_store(kind, tree, modules.graph, store)
    if kind is Eddy:
        return Eddy(modules, tree, keys, stored)
    if issubclass(kind, Jisc):
        return kind(modules, tree, keys)
    return kind(modules, tree)


def check_background(kind: type[Strategy], background: int) -> int:
    """Return how many keys a strategy promotes after each push. Raises InputError for what is no such number."""
    keys = at_least(0, background)
    if keys is None:
        raise InputError(f"background is a number of keys, 0 or more, not {background!r}")
    if keys and not issubclass(kind, Eddy | Jisc):
        raise InputError(
            f"background={background} is for strategies 'jisc' and 'eddy'; {kind.name!r} promotes nothing in the"
            " background"
        )
    return keys


def check_store(
    kind: type[Strategy], tree: Tree, graph: JoinGraph, store: Iterable[StateId | str] | None
) -> frozenset[StateId]:
    """Return the states that a strategy is to store.

    Raises PlanError for one that the plan has not got, and for any when the strategy has a rule of its own.
    """
    if store is not None and kind is not Eddy:
        raise no_choice(kind.name)
    return resolve(tree, graph, store or ())


def no_choice(name: str) -> PlanError:
    """Return the error of a strategy that has a rule for what is stored."""
    return PlanError(f"strategy {name!r} has a rule of its own for what is stored; states are chosen under 'eddy'")


def resolve(tree: Tree, graph: JoinGraph, store: Iterable[StateId | str]) -> frozenset[StateId]:
    """Return states of a plan given as ids or by their streams, "R S". Raises PlanError for one that it has not got."""
    if isinstance(store, str):
        raise PlanError(f"store is a list of states such as ['R S'], not the text {store!r}")
    by_mask = {state.mask: state for state in states_of(tree, Masks(graph))}
    found = set[StateId]()
    for one in store:
        if isinstance(one, StateId):
            state = one if by_mask.get(one.mask) == one else None
        else:
            wanted = set(names_in(str(one)))
            mask = sum(1 << j for j, name in enumerate(graph.names) if name in wanted)
            state = by_mask.get(mask) if wanted <= set(graph.names) else None
        if state is None:
            known = ", ".join(repr(streams_text(state, graph)) for state in by_mask.values()) or "none"
            raise PlanError(f"plan {tree.text(graph.names)!r} has no inner state {one!r} to store; it has {known}")
        found.add(state)
    return frozenset(found)


def streams_text(state: StateId, graph: JoinGraph) -> str:
    """Return the streams of a state, as `store` takes them."""
    return " ".join(quoted(graph.names[j]) for j in state.streams)


def history_table(transitions: Sequence[Transition]) -> pa.Table:
    """Return transitions as a table, one row each, columns named as in `jisc.strategies.Transition`."""
    rows = [{name: getattr(done, name) for name in SCHEMA.names} for done in transitions]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
