"""A policy: it gets a view of the running join and returns the plan to change to, if any.

Your own policy is a class with a `name` and `decide`; pass an object of it to `Runtime(policy=…)`. The policy is called
between two arrivals and may keep any state between calls. A policy cannot make results wrong, because all plans without
a cross product have the same results.

A policy may also have `learnt()`, which returns its state as JSON values (None, booleans, numbers, strings, lists,
dictionaries with string keys), and `resume(learnt)`, which restores the state. Both are called when an engine moves to
another process (`eddy.live.engine_file`), as in streaming jobs between two micro-batches. A policy without these
methods starts there without learnt state.
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
    """A plan to change to.

    plan     the plan as text or as a tree
    store    inner states of the plan to store, as ids (`View.benefits`) or by their streams ("R S"); None = the stored
             states that the plan also has
    reason   the reason, for `Runtime.history`
    """

    plan: str | Tree
    store: Iterable[StateId | str] | None = None
    reason: str = ""


class Policy(Protocol):
    """Chooses plans (see the module)."""

    @property
    def name(self) -> str:
        """The name of the policy."""

    def decide(self, view: View) -> Decision | None:
        """Return the plan to change to, None = no change."""


@runtime_checkable
class Learning(Protocol):
    """A policy that resumes in another process (see the module)."""

    def learnt(self) -> Any:
        """Return the state of the policy as JSON values."""

    def resume(self, learnt: Any) -> None:
        """Resume from a state that `learnt` returned."""


def plan_texts(trees: Iterable[Tree]) -> list[str]:
    """Return plans as text, with numbers of streams as names."""
    return [tree.text([str(stream) for stream in range(len(tree.streams))]) for tree in trees]


def plans_of(texts: Sequence[str], streams: int) -> list[Tree]:
    """Return the plans that `plan_texts` wrote. Raises PlanError for other texts."""
    names = tuple(map(str, range(streams)))
    return [parse(text, names) for text in texts]
