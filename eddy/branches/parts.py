"""An engine with branches as plain parts (`stairs.storage.parts`), and back: how it moves to another process."""

from __future__ import annotations

from typing import Any

from eddy.aggregates.storage import groups_to_parts, load_groups
from eddy.branches.engine import BranchedEngine
from eddy.branches.options import policy_copy
from eddy.join_engine import JoinEngine, Options
from eddy.live.engine_parts import load_engine, options_from, to_parts
from eddy.results.failed_rows import FAILED
from eddy.results.late_rows import LateRows
from eddy.routing.policies import Policy
from stairs.storage.parts import Parts, Plain


def branched_parts(engine: BranchedEngine) -> Plain:
    """Return all that another process needs to resume."""
    options = engine.options
    (first, *_) = engine.joins.values()
    return {
        "policy": first.router.policy.name,
        "output": options.output,
        "count_only": options.count_only,
        "ids_only": options.ids_only,
        "bounded": engine.bounded,
        "max_bytes": engine.max_bytes,
        "joins": [to_parts(one) for one in engine.joins.values()],
        "shelf": engine.shelf.to_parts(),
        "nodes": [one.to_parts() for one in engine.nodes],
        "late": engine.late.rows.to_parts(),
        "failed": engine.failed.rows.to_parts(),
        "counts": [engine.position, engine.n_results, engine.n_deleted],
        "clock": None if engine.clock is None else engine.clock.to_parts(),
        "live": engine.live,
        "finished": engine.finished,
        "filters": {place: one.to_parts() for place, one in engine.filters().items()},
        "groups": None if engine.groups is None else groups_to_parts(engine.groups),
    }


def branched_options(parts: Parts) -> dict[str, Any]:
    """Return the options of the runtime to make, without a bound; `load_branched` sets it."""
    flags = {name: parts.flag(name) for name in ("count_only", "ids_only", "bounded")}
    return {"output": parts.text("output"), **flags}


def load_branched(engine: BranchedEngine, parts: Parts, policy: str | Policy | None) -> None:
    """Fill an engine that was made with `branched_options`; see `Runtime.from_parts`."""
    query = engine.query
    joins = parts.items("joins", len(query.joins))
    for own, (path, join) in zip(joins, query.joins.items(), strict=True):
        engine.joins[path] = one = JoinEngine(join, Options(**options_from(own, policy_copy(policy))))
        load_engine(one, own)
    engine.shelf.load_parts(parts.part("shelf"))
    nodes = engine.nodes
    for own, node in zip(parts.items("nodes", len(nodes)), nodes, strict=True):
        assert node.ledger is not None
        node.ledger.load_parts(own.part("ledger"))
        queues = own.items("deadlines", len(node.deadlines))
        for queue, deadlines in zip(queues, node.deadlines.values(), strict=True):
            deadlines.load_parts(queue)
    n = len(query.streams)
    engine.late.rows = LateRows.from_parts(parts.part("late"), [stream.schema for stream in query.streams])
    engine.failed.rows = LateRows.from_parts(parts.part("failed"), [FAILED])
    engine.position, engine.n_results, engine.n_deleted = parts.integers("counts", 3)
    if engine.clock is not None:
        engine.clock.load_parts(parts)
    engine.live, engine.finished = parts.integers("live", n), parts.flag("finished")
    engine.max_bytes = parts.optional("max_bytes")
    if engine.groups is not None:
        load_groups(engine.groups, parts.part("groups"), engine.watermark)
    kept = parts.part("filters")
    for place, own_filter in engine.filters().items():
        own_filter.load_parts(kept.part(place))
