"""What a policy is: it looks at a view of the running join and says which plan to go over to, if any.

A policy of one's own is a class with a `name` and `decide`; an object of it is given to `Runtime(policy=…)`. It is
called between two arrivals and may keep whatever it likes from call to call. It cannot make results wrong: any plan
without a cross product gives the same ones.

A policy may also have `learnt()`, which returns what it has learnt as JSON values (None, booleans, numbers, strings,
lists, dictionaries by strings), and `resume(learnt)`, which takes that back. They are called where an engine is kept
for another process (`eddy.live.engine_file`), as streaming jobs do between two micro-batches. A policy without them
begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from eddy.routing.view import View
from jisc.plan.states import StateId
from jisc.plan.tree import Tree, parse


@dataclass(frozen=True)
class Decision:
    """A plan to go over to.

    plan     as text, or a tree
    store    the inner states of it to store: None = those stored now that it has as well; ids as `View.benefits` gives
             them, or names of streams such as "R S"
    reason   why, for `Runtime.history`
    """

    plan: str | Tree
    store: Iterable[StateId | str] | None = None
    reason: str = ""


class Policy(Protocol):
    """Chooses plans (see the module)."""

    @property
    def name(self) -> str:
        """What it is called."""

    def decide(self, view: View) -> Decision | None:
        """Return the plan to go over to, None to go on as it is."""


@runtime_checkable
class Learning(Protocol):
    """A policy whose learning goes on in another process (see the module)."""

    def learnt(self) -> Any:
        """Return what was learnt so far, as JSON values."""

    def resume(self, learnt: Any) -> None:
        """Go on from what was learnt."""


def plan_texts(trees: Iterable[Tree]) -> list[str]:
    """Return plans as text, with the numbers of streams for names."""
    return [tree.text([str(stream) for stream in range(len(tree.streams))]) for tree in trees]


def plans_of(texts: Sequence[str], streams: int) -> list[Tree]:
    """Return the plans that `plan_texts` gave. Raises PlanError for other texts."""
    names = tuple(map(str, range(streams)))
    return [parse(text, names) for text in texts]
