"""Options of a runtime that concern its inner joins: their plans, stored states and policies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from eddy.query.branch_nodes import Path
from eddy.query.query import Query
from jisc.plan.tree import names_in, read_plan
from stairs.errors import InputError, PlanError


def plans_in(query: Query, text: Any) -> dict[Path, str]:
    """Return the plans in a text by the streams of their join. Raises PlanError for one that is of no join."""
    plans: dict[Path, str] = {}
    if text is not None and not isinstance(text, str):
        raise PlanError(f"plan is text such as 'R S; (R S) T', not {text!r}")
    if query.tree is None and text is not None:
        # The one plan, in which a semicolon is part of a name.
        return {join_of(query, text): text.strip()}
    # A semicolon may be part of a name in quotes.
    for plan in [] if text is None else re.split(r';(?=(?:[^"]*"[^"]*")*[^"]*$)', text):
        if not plan.strip():
            raise PlanError(f"plan {text!r}: a plan is missing beside a ';'; leave out plans that you do not choose")
        path = join_of(query, plan)
        if path in plans:
            raise PlanError(f"plan {text!r} has two plans of one join: {plans[path]!r} and {plan.strip()!r}")
        plans[path] = plan.strip()
    return plans


def stores_in(query: Query, store: Any) -> dict[Path, list[str] | None]:
    """Return the states to store by their join: the smallest one that has their streams. Raises PlanError."""
    joins = query.inner_joins()
    if store is None:
        return dict.fromkeys(joins)
    if isinstance(store, str) or not isinstance(store, Iterable):
        raise PlanError(f"store is a list of states such as ['R S'], not {store!r}")
    stores: dict[Path, list[str] | None] = {path: [] for path in joins}
    for text in store:
        wanted = set(names_in(str(text)))
        paths = [path for path in joins if wanted < {query.graph.names[i] for i in path}]
        if not paths:
            raise PlanError(f"store: {text!r} is a state of no join in this query: each has some of the streams of one")
        states = stores[min(paths, key=len)]
        assert states is not None
        states.append(text)
    return stores


def own_policy(query: Query, policy: Any, copied: bool = False) -> Any:
    """Return a policy for one inner join: each of several has its own. Raises InputError for one that has no copy.

    copied   whether another query has this policy
    """
    if query.tree is None and not copied:
        return policy
    try:
        return deepcopy(policy)
    except TypeError as problem:
        raise InputError(
            f"policy {policy!r} cannot be copied ({problem}); in a query with branches each inner join needs its own"
        ) from problem


def join_of(query: Query, plan: str) -> Path:
    """Return the path whose inner join a plan is of. Raises PlanError."""
    problems, joins = [], query.inner_joins()
    for path, join in joins.items():
        try:
            read_plan(plan, join.graph)
        except PlanError as problem:
            problems.append(problem)
        else:
            return path
    if len(problems) == 1:
        raise problems[0]
    known = "; ".join(" ".join(query.graph.names[i] for i in streams) for streams in joins)
    raise PlanError(
        f"{plan!r} is a plan of none of the joins of this query. It has one join for its core and one for each branch;"
        f" their streams are {known}"
    )
