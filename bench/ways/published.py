"""Strategies as their papers published them: each state of a plan stores its entries, in joins on one key as well.

The library does not store entries there (`jisc.strategies.stored`), so a strategy of the library does none of the work
that the papers measure. The benchmarks of the papers, and those that compare strategies, take the published forms by
the names of the papers. WORDS is what the library runs.
"""

from __future__ import annotations

from typing import cast

from eddy.routing.strategies import strategy_name
from jisc.strategies import STRATEGIES, StrategyName
from jisc.strategies.eddy_stairs import EddyJisc
from jisc.strategies.jisc import Jisc
from jisc.strategies.moving_state import MovingState
from jisc.strategies.symmetric_hash import SymmetricHash

NAMES = tuple(STRATEGIES)
"""The names of the strategies of the library, which are those of the papers."""
WORDS = "jisc, words"
"""The strategy "jisc" of the library, for which presence words stand for the states of a join on one key."""
_KINDS = (Jisc, EddyJisc, MovingState, SymmetricHash)
_PUBLISHED = {kind.name: f"{kind.name}, entries" for kind in _KINDS}
STRATEGIES.update(
    (name, type(kind.__name__, (kind,), {"name": name, "has_entries": True, "__doc__": kind.__doc__}))
    for kind, name in zip(_KINDS, _PUBLISHED.values(), strict=True)
)


def published(name: str) -> StrategyName:
    """Return the name by which a runtime finds a strategy in its published form, and for WORDS that of the library."""
    return cast(StrategyName, _PUBLISHED.get(name, "jisc" if name == WORDS else strategy_name(name)))
