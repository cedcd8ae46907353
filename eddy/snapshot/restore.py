"""Restoring a snapshot into a new engine, under the same plan or another one."""

from __future__ import annotations

from typing import Any, NamedTuple

from eddy.join_engine import JoinEngine
from eddy.routing.policies import POLICIES, Policy
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import make_strategy, resolve
from eddy.snapshot.snapshot import Snapshot
from jisc.plan.tree import read_plan
from stairs.errors import PlanError, SnapshotError


class Choices(NamedTuple):
    """The optional arguments of `Runtime.restore`, which documents them; None = as in the snapshot."""

    plan: str | None = None
    strategy: str | None = None
    background: int | None = None
    policy: str | Policy | None = None


def restored_options(snapshot: Snapshot, choices: Choices) -> dict[str, Any]:
    """Return the options of the runtime to restore: those of the snapshot, unless the caller chose others.

    Raises SnapshotError if the policy was one of the caller's own and is not given.
    """
    options = snapshot.options
    if choices.strategy is not None and choices.strategy != options["strategy"]:
        # Another strategy has its own defaults.
        options.update(strategy=choices.strategy, background=0, store=None, policy=None)
    if choices.plan is not None:
        options["plan"] = choices.plan
        options["store"] = None if options["store"] is None else ()
    if choices.policy is not None:
        options["policy"] = choices.policy
    elif options["policy"] is not None and options["policy"] not in POLICIES:
        raise SnapshotError(
            f"the snapshot was taken under policy {options['policy']!r}, which is none of {', '.join(POLICIES)}:"
            " give that policy, or another one, to restore (policy=…)"
        )
    if choices.background is not None:
        options["background"] = choices.background
    return options


def fill_engine(engine: JoinEngine, snapshot: Snapshot, max_bytes: int | None) -> None:
    """Fill an engine that was made with `restored_options`, without a bound, from the snapshot. O(live tuples).

    max_bytes   the bound to set when all is in place: until then, memory that fitted once is not asked for again
    """
    options, graph = engine.options, engine.query.graph
    schedule = []
    same = options.strategy == snapshot.options["strategy"]
    for at, text, store in snapshot.schedule:
        tree = read_plan(text, graph)
        # Another strategy has its own defaults, also for transitions to come.
        schedule.append(Scheduled(at, tree, resolve(tree, graph, store) if same and store is not None else None))
    if schedule and not engine.strategy.changes:
        raise PlanError(
            f"the snapshot has {len(schedule)} scheduled transitions, the first at arrival {schedule[0].at}, but"
            f" strategy {engine.strategy.name!r} keeps its plan; restore with another strategy"
        )
    snapshot.fill(engine)
    # The strategy is made again: states that are complete for empty windows are not for these.
    engine.modules.caches.clear()
    if engine.rings is not None:
        engine.modules.caches.add(engine.rings)
    engine.strategy = make_strategy(
        options.strategy, engine.modules, engine.strategy.tree, options.background, options.store
    )
    engine.set_bound(max_bytes)
    engine.strategy.refill()
    engine.router = engine.router.with_strategy(engine.strategy)
    engine.schedule = schedule_of(schedule)
