"""Transitions that are scheduled for an arrival to come."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from jisc.plan.states import StateId
from jisc.plan.tree import Tree


class Scheduled(NamedTuple):
    """A transition that happens when arrival number `at` is next; `store` as in `Runtime.transition`, resolved."""

    at: int
    tree: Tree
    store: frozenset[StateId] | None = None


def schedule_of(transitions: Iterable[Scheduled]) -> SortedKeyList:
    """Return a schedule: transitions by position, and in the given order at one position."""
    return SortedKeyList(transitions, key=attrgetter("at"))
