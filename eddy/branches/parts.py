"""An engine with branches as plain parts (`stairs.storage.parts`), and back: how it moves to another process."""

from __future__ import annotations

from eddy.branches.engine import BranchedEngine
from eddy.branches.options import policy_copy
from eddy.branches.records import Clock
from eddy.branches.runtime import BranchedRuntime
from eddy.engine import Engine, Options
from eddy.live.engine_parts import load_engine, options_from
from eddy.query.branches import BranchedQuery
from eddy.results.late_rows import LateRows
from eddy.routing.policies import Policy
from stairs.graph import FOREVER
from stairs.storage.parts import Parts


def runtime_from(parts: Parts, query: BranchedQuery, policy: str | Policy | None) -> BranchedRuntime:
    """Return the runtime that returned these parts (`BranchedRuntime.to_parts`); see `Runtime.from_parts`."""
    runtime = BranchedRuntime(
        query,
        output=parts.text("output"),
        count_only=parts.flag("count_only"),
        ids_only=parts.flag("ids_only"),
        bounded=parts.flag("bounded"),
    )
    _fill(runtime._engine, parts, policy)
    return runtime


def _fill(engine: BranchedEngine, parts: Parts, policy: str | Policy | None) -> None:
    query = engine.query
    joins = parts.items("joins", len(query.joins))
    for own, (path, join) in zip(joins, query.joins.items(), strict=True):
        engine.joins[path] = one = Engine(join, Options(**options_from(own, policy_copy(policy))))
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
    engine.position, engine.n_results, engine.n_deleted = parts.integers("counts", 3)
    given = parts.integers("given", low=-FOREVER, high=FOREVER)
    newest = parts.integer("newest", -FOREVER, FOREVER)
    engine.clock = Clock(newest, given[0] if given else None)
    engine.live, engine.finished = parts.integers("live", n), parts.flag("finished")
    engine.max_bytes = parts.optional("max_bytes")
    kept = parts.part("filters")
    for place, own_filter in engine.filters().items():
        own_filter.load_parts(kept.part(place))
