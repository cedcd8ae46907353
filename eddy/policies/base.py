"""What a policy is: it looks at a view of the running join and says which plan to go over to, if any.

A policy of one's own is a class with a `name` and `decide`; an object of it is given to `Runtime(policy=…)`. It is
called between two arrivals and may keep whatever it likes from call to call. It cannot make results wrong: any plan
without a cross product gives the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from eddy.policies.view import View
from jisc.plan import Tree
from jisc.states import StateId


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
