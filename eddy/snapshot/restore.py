"""Restoring a snapshot into a new pipeline, under the same plans or other ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from eddy.join.join import Join
from eddy.join.options import RuntimeOptions
from eddy.pipeline.by_join import own_policy, plans_in
from eddy.pipeline.pipeline import Pipeline, derived_inputs
from eddy.query.query import Query
from eddy.routing.policies import POLICIES, Policy
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import make_strategy, resolve
from eddy.snapshot.header import read_header
from eddy.snapshot.snapshot import fill_pipeline
from jisc.plan.tree import read_plan
from jisc.strategies import STRATEGIES
from stairs.errors import PlanError, SnapshotError
from stairs.memory.spill import SpillDirectory
from stairs.storage.parts import Parts

Schedule = list[tuple[int, str, list[str] | None]]


class Choices(NamedTuple):
    """The optional arguments of `Runtime.restore`, which documents them; None = as in the snapshot."""

    plan: str | None = None
    strategy: str | None = None
    background: int | None = None
    policy: str | Policy | None = None
    spill: SpillDirectory | None = None


def restored(parts: Parts, query: Query, choices: Choices) -> Pipeline:
    """Return a pipeline that resumes where a snapshot of these parts was taken; see `Runtime.restore`. O(live tuples).

    Raises SnapshotError for parts that are none of a snapshot of this query.
    """
    header, paths = read_header(parts, query), list(query.inner_joins())
    options = dict(header["options"])
    max_bytes = options.pop("max_bytes")
    plans = plans_in(query, choices.plan) if query.tree is not None else dict.fromkeys(paths, choices.plan)
    saved = dict(zip(paths, header["joins"], strict=True))
    by_join = {}
    for path, saved_join in saved.items():
        policy = own_policy(query, choices.policy)
        by_join[path] = _chosen(saved_join["options"], choices._replace(plan=plans.get(path), policy=policy))
    pipeline = Pipeline(query, RuntimeOptions(**options, spill=choices.spill), by_join)
    joins = zip(pipeline.joins.values(), saved.values(), strict=True)
    schedules = [
        _schedule(join, saved_join["options"]["strategy"], saved_join["schedule"]) for join, saved_join in joins
    ]
    sources = derived_inputs(query)
    for part, (table, source) in zip(parts.items("derived", len(sources)) if sources else [], sources, strict=True):
        pipeline.adopt(table.name, restored(part, source, choices._replace(plan=None)))
    fill_pipeline(pipeline, header, parts)
    for join in pipeline.joins.values():
        # The strategy is made again: states that are complete for empty windows are not for these.
        join.modules.caches.clear()
        if join.rings is not None:
            join.modules.caches.add(join.rings)
        how = join.options
        join.strategy = make_strategy(
            how.strategy, join.modules, join.strategy.tree, how.background, how.store, how.purge
        )
    # Not before: until here, memory that fitted once is not asked for again.
    pipeline.set_bound(max_bytes)
    for join, schedule in zip(pipeline.joins.values(), schedules, strict=True):
        join.strategy.refill()
        join.router = join.router.with_strategy(join.strategy)
        join.schedule = schedule_of(schedule)
    return pipeline


def _chosen(options: dict[str, Any], choices: Choices) -> dict[str, Any]:
    """Return the options of a join to restore: those of the snapshot, unless the caller chose others.

    Raises SnapshotError if the policy was one of the caller's own and is not given.
    """
    if choices.strategy is not None and choices.strategy != options["strategy"]:
        # Another strategy has its own defaults.
        options = {**options, "strategy": choices.strategy, "background": 0, "store": None, "policy": None}
        options["purge"] = "exact"
    if choices.plan is not None:
        choosing = options["store"] is not None and STRATEGIES[options["strategy"]].can_store
        options = {**options, "plan": choices.plan, "store": () if choosing else None}
    if choices.policy is not None:
        options = {**options, "policy": choices.policy}
    elif options["policy"] is not None and options["policy"] not in POLICIES:
        raise SnapshotError(
            f"the snapshot was taken under policy {options['policy']!r}, which is none of {', '.join(POLICIES)}:"
            " give that policy, or another one, to restore (policy=…)"
        )
    if choices.background is not None:
        options = {**options, "background": choices.background}
    return options


def _schedule(join: Join, strategy: str, saved: Schedule) -> list[Scheduled]:
    """Return the scheduled transitions of a join, which the snapshot has under `strategy`. Raises PlanError."""
    graph, schedule = join.query.graph, []
    same = join.options.strategy == strategy
    for at, text, store in saved:
        tree = read_plan(text, graph)
        # Another strategy has its own defaults, also for transitions to come.
        schedule.append(Scheduled(at, tree, resolve(tree, graph, store) if same and store is not None else None))
    if schedule and not join.strategy.changes:
        raise PlanError(
            f"the snapshot has {len(schedule)} scheduled transitions, the first at arrival {schedule[0].at}, but"
            f" strategy {join.strategy.name!r} keeps its plan; restore with another strategy"
        )
    return schedule
