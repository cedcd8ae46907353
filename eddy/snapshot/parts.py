"""A pipeline as plain parts (`stairs.storage.parts`), and back: how it moves to another process."""

from __future__ import annotations

from typing import Any

from eddy.aggregates.storage import groups_to_parts, load_groups
from eddy.join.join import Join
from eddy.join.options import Options
from eddy.partners.partners import Partners
from eddy.pipeline.by_join import own_policy
from eddy.pipeline.grouped import turn
from eddy.pipeline.pipeline import Pipeline
from eddy.query.query import Query
from eddy.results.failed_rows import FAILED
from eddy.results.late_rows import LateRows
from eddy.routing.policies import Policy
from eddy.routing.schedule import Scheduled, schedule_of
from jisc.plan.states import read_states
from jisc.plan.tree import read_plan
from stairs.storage.parts import Parts, Plain


def to_parts(pipeline: Pipeline) -> Plain:
    """Return all that another process needs to resume. Ring values do not go along, nor do states that slept."""
    clock, groups, partners = pipeline.clock, pipeline.groups, pipeline.partners
    return {
        **pipeline.present_options(),
        "policy": pipeline.join.router.policy.name,
        "joins": [_join_to_parts(one) for one in pipeline.joins.values()],
        "partners": None if partners is None else _partners_to_parts(partners),
        "late": pipeline.late.rows.to_parts(),
        "failed": pipeline.failed.rows.to_parts(),
        "counts": [pipeline.position, pipeline.n_results, pipeline.n_deleted],
        "finished": pipeline.finished,
        "filters": {place: one.to_parts() for place, one in pipeline.filters.items()},
        "clock": None if clock is None else clock.to_parts(),
        "groups": None if groups is None else groups_to_parts(groups),
    }


def from_parts(parts: Parts, query: Query, policy: str | Policy | None) -> Pipeline:
    """Return the pipeline that had these parts; see `Runtime.from_parts`.

    Raises StateError, PlanError, QueryError or InputError for parts that do not fit together.
    """
    options = Options(
        output=parts.text("output"),
        count_only=parts.flag("count_only"),
        ids_only=parts.flag("ids_only"),
        bounded=parts.flag("bounded"),
        ordered=parts.flag("ordered"),
    )
    inner = query.inner_joins()
    joins = parts.items("joins", len(inner))
    by_join = {path: _join_options(one, own_policy(query, policy)) for path, one in zip(inner, joins, strict=True)}
    pipeline = Pipeline(query, options, by_join)
    for join, own in zip(pipeline.joins.values(), joins, strict=True):
        _load_join(join, own)
    if pipeline.partners is not None:
        _load_partners(pipeline.partners, parts.part("partners"))
    pipeline.late.rows = LateRows.from_parts(parts.part("late"), [stream.schema for stream in query.streams])
    pipeline.failed.rows = LateRows.from_parts(parts.part("failed"), [FAILED])
    pipeline.position, pipeline.n_results, pipeline.n_deleted = parts.integers("counts", 3)
    pipeline.finished = parts.flag("finished")
    kept = parts.part("filters")
    for place, one in pipeline.filters.items():
        one.load_parts(kept.part(place))
    if pipeline.clock is not None:
        pipeline.clock.load_parts(parts)
    if pipeline.groups is not None:
        load_groups(pipeline.groups, parts.part("groups"), pipeline.watermark)
    pipeline.set_bound(parts.optional("max_bytes"))
    return pipeline


def _join_to_parts(join: Join) -> Plain:
    if join.asleep:
        turn(join, on=False)
    names, options = join.query.graph.names, join.present_options()
    # The stored states are among the parts of the strategy.
    del options["store"]
    return {
        **options,
        "modules": join.modules.to_parts(),
        "payload": join.payload.to_parts(),
        "running": join.strategy.to_parts(),
        "router": join.router.to_parts(),
        "counts": [join.n_results, join.n_deleted],
        "schedule": [
            {"at": one.at, "plan": one.tree.text(names), "store": one.store and list(one.store)}
            for one in join.schedule
        ],
    }


def _join_options(parts: Parts, policy: str | Policy | None) -> dict[str, Any]:
    """Return the options of a join; `policy` is the one that it had, if it is one of the caller's own."""
    return {
        "plan": parts.text("plan"),
        "policy": parts.text("policy") if policy is None else policy,
        "strategy": parts.text("strategy"),
        "decide_every": parts.optional("decide_every"),
        "statistics": parts.flag("statistics"),
        "background": parts.integer("background"),
        "renumber_at": parts.integer("renumber_at"),
        "purge": parts.text("purge"),
    }


def _load_join(join: Join, parts: Parts) -> None:
    graph, strategy, router = join.query.graph, join.strategy, join.router
    own, wanted = router.policy.name, parts.text("policy")
    parts.require(own == wanted, f"policy {own!r} in place of {wanted!r}")
    strategy.masks = router.tables.masks
    join.modules.load_parts(parts.part("modules"))
    join.payload.load_parts(parts.part("payload"), join.modules.capacity)
    strategy.load_parts(parts.part("running"))
    router.load_parts(parts.part("router"))
    join.n_results, join.n_deleted = parts.integers("counts", 2)
    schedule = []
    for one in parts.items("schedule"):
        tree = read_plan(one.text("plan"), graph)
        store = None if one.plain("store") is None else frozenset(read_states(one, "store", graph))
        schedule.append(Scheduled(one.integer("at", join.position), tree, store))
    join.schedule = schedule_of(schedule)


def _partners_to_parts(partners: Partners) -> Plain:
    return {
        "shelf": partners.shelf.to_parts(),
        "nodes": [one.to_parts() for one in partners.nodes],
        "live": partners.live,
    }


def _load_partners(partners: Partners, parts: Parts) -> None:
    partners.shelf.load_parts(parts.part("shelf"))
    nodes = partners.nodes
    for own, node in zip(parts.items("nodes", len(nodes)), nodes, strict=True):
        assert node.ledger is not None
        node.ledger.load_parts(own.part("ledger"))
        queues = own.items("deadlines", len(node.deadlines))
        for queue, deadlines in zip(queues, node.deadlines.values(), strict=True):
            deadlines.load_parts(queue)
    partners.live = parts.integers("live", len(partners.live))
