"""An engine as plain parts (`stairs.storage.parts`), and back: how it moves to another process."""

from __future__ import annotations

from typing import Any

from eddy.aggregates.storage import groups_to_parts, load_groups
from eddy.join_engine import JoinEngine
from eddy.push.grouped import turn
from eddy.results.failed_rows import FAILED
from eddy.results.late_rows import LateRows
from eddy.routing.policies import Policy
from eddy.routing.schedule import Scheduled, schedule_of
from jisc.plan.states import read_states
from jisc.plan.tree import read_plan
from stairs.storage.parts import Parts, Plain


def to_parts(engine: JoinEngine) -> Plain:
    """Return all that another process needs to resume. Ring values do not go along, nor do states that slept."""
    if engine.rings is not None and engine.rings.choice.on:
        turn(engine, on=False)
    names, options = engine.query.graph.names, engine.present_options()
    # The stored states are among the parts of the strategy.
    del options["store"]
    return {
        **options,
        "modules": engine.modules.to_parts(),
        "payload": engine.payload.to_parts(),
        "running": engine.strategy.to_parts(),
        "router": engine.router.to_parts(),
        "late": engine.late.rows.to_parts(),
        "failed": engine.failed.rows.to_parts(),
        "counts": [engine.n_results, engine.n_deleted],
        "finished": engine.finished,
        "schedule": [
            {"at": one.at, "plan": one.tree.text(names), "store": one.store and list(one.store)}
            for one in engine.schedule
        ],
        "filters": {place: one.to_parts() for place, one in engine.filters().items()},
        "clock": None if engine.clock is None else engine.clock.to_parts(),
        "groups": None if engine.groups is None else groups_to_parts(engine.groups),
    }


def options_from(parts: Parts, policy: str | Policy | None) -> dict[str, Any]:
    """Return the options of the engine to make, without a bound; `load_engine` sets it.

    policy   the policy that the engine had, if it is one of the caller's own
    """
    return {
        "plan": parts.text("plan"),
        "policy": parts.text("policy") if policy is None else policy,
        "strategy": parts.text("strategy"),
        "statistics": parts.flag("statistics"),
        "background": parts.integer("background"),
        "decide_every": parts.optional("decide_every"),
        "output": parts.text("output"),
        "count_only": parts.flag("count_only"),
        "ids_only": parts.flag("ids_only"),
        "renumber_at": parts.integer("renumber_at"),
        "bounded": parts.flag("bounded"),
        "ordered": parts.flag("ordered"),
        "purge": parts.text("purge"),
    }


def load_engine(engine: JoinEngine, parts: Parts) -> None:
    """Fill an engine that was made with `options_from` these parts.

    Raises StateError, PlanError, QueryError or InputError for parts that do not fit together.
    """
    graph, strategy, router = engine.query.graph, engine.strategy, engine.router
    own, wanted = router.policy.name, parts.text("policy")
    parts.require(own == wanted, f"policy {own!r} in place of {wanted!r}")
    strategy.masks = router.tables.masks
    engine.modules.load_parts(parts.part("modules"))
    engine.payload.load_parts(parts.part("payload"), engine.modules.capacity)
    strategy.load_parts(parts.part("running"))
    router.load_parts(parts.part("router"))
    engine.late.rows = LateRows.from_parts(parts.part("late"), [stream.schema for stream in engine.query.streams])
    engine.failed.rows = LateRows.from_parts(parts.part("failed"), [FAILED])
    engine.n_results, engine.n_deleted = parts.integers("counts", 2)
    engine.finished = parts.flag("finished")
    schedule = []
    for one in parts.items("schedule"):
        tree = read_plan(one.text("plan"), graph)
        store = None if one.plain("store") is None else frozenset(read_states(one, "store", graph))
        schedule.append(Scheduled(one.integer("at", engine.position), tree, store))
    engine.schedule = schedule_of(schedule)
    filters, kept = engine.filters(), parts.part("filters")
    for place, one_filter in filters.items():
        one_filter.load_parts(kept.part(place))
    if engine.clock is not None:
        engine.clock.load_parts(parts)
    if engine.groups is not None:
        load_groups(engine.groups, parts.part("groups"), engine.watermark)
    engine.set_bound(parts.optional("max_bytes"))
