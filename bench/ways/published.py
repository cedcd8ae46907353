"""Strategies as their papers published them: each state of a plan stores its entries, in joins on one key as well.

The library does not store entries there (`jisc.strategies.stored`), so a strategy of the library does none of the work
that the papers measure. The benchmarks of the papers, and those that compare strategies, take the published forms by
the names of the papers. WORDS is what the library runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from jisc.strategies import STRATEGIES, Strategy, StrategyName
from jisc.strategies.eddy_stairs import EddyJisc
from jisc.strategies.jisc import Jisc
from jisc.strategies.moving_state import MovingState
from jisc.strategies.stored import StoredStrategy
from jisc.strategies.symmetric_hash import SymmetricHash

WORDS = "jisc, words"
"""The strategy "jisc" of the library, for which presence words stand for the states of a join on one key."""


def _with_entries(kind: type[StoredStrategy]) -> type[StoredStrategy]:
    return cast(type[StoredStrategy], type(kind.__name__, (kind,), {"has_entries": True, "__doc__": kind.__doc__}))


KINDS: dict[str, type[Strategy]] = {
    **STRATEGIES,
    **{kind.name: _with_entries(kind) for kind in (Jisc, EddyJisc, MovingState, SymmetricHash)},
    WORDS: Jisc,
}
"""The strategies by the names in the reports of benchmarks."""


@contextmanager
def published(name: str) -> Iterator[StrategyName]:
    """Give the name by which a Runtime that is made within the context finds a strategy of `KINDS`."""
    known, kind = cast(StrategyName, "jisc" if name == WORDS else name), KINDS[name]
    usual = STRATEGIES[known]
    STRATEGIES[known] = kind
    try:
        yield known
    finally:
        STRATEGIES[known] = usual
