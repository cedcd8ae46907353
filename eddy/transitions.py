"""Strategies by name, and the figures of transitions as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa

from jisc.plan import Tree
from jisc.strategies import STRATEGIES, Jisc, Strategy, Transition
from stairs.errors import InputError
from stairs.modules import Modules

KINDS = {"int": pa.int64(), "int | None": pa.int64(), "float": pa.float64()}
FIGURES = [(field.name, KINDS[str(field.type)]) for field in fields(Transition) if str(field.type) in KINDS]
SCHEMA = pa.schema([FIGURES[0], *((name, pa.string()) for name in ("strategy", "old", "new")), *FIGURES[1:]])
"""The columns of `Runtime.transitions()`."""


def make_strategy(name: str, modules: Modules, tree: Tree, background: int = 0) -> Strategy:
    """Return the strategy of a name, running a plan. Raises InputError for an unknown one or a wrong `background`."""
    if name not in STRATEGIES:
        raise InputError(f"there is no strategy {name!r}; choose one of {', '.join(sorted(STRATEGIES))}")
    if isinstance(background, bool) or not isinstance(background, int) or background < 0:
        raise InputError(f"background is a number of keys, 0 or more, not {background!r}")
    if STRATEGIES[name] is Jisc:
        return Jisc(modules, tree, background)
    if background:
        raise InputError(f"background={background} is for strategy 'jisc'; {name!r} promotes nothing in the background")
    return STRATEGIES[name](modules, tree)


def transition_table(transitions: Sequence[Transition]) -> pa.Table:
    """Return transitions as a table, one row each, columns named as in `jisc.strategies.Transition`."""
    rows = [{name: getattr(done, name) for name in SCHEMA.names} for done in transitions]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
