"""A pipeline as plain parts (`stairs.storage.parts`), and back: how it moves to another process."""

from __future__ import annotations

from typing import Any

from eddy.join.options import RuntimeOptions
from eddy.pipeline.by_join import own_policy
from eddy.pipeline.pipeline import Pipeline, derived_inputs
from eddy.query.query import Query
from eddy.results.failed_rows import FAILED
from eddy.results.side_rows import LateRows
from eddy.routing.policies import Policy
from eddy.snapshot.versions import load_versions, versions_parts
from stairs.storage.parts import Parts, Plain


def to_parts(pipeline: Pipeline) -> Plain:
    """Return all that another process needs to resume. Ring values do not go along, nor do states that slept."""
    clock = pipeline.clock
    return {
        **pipeline.present_options(),
        "policy": pipeline.join.router.policy.name,
        "operators": [operator.to_parts() for operator in pipeline.operators],
        "late": pipeline.late.rows.to_parts(),
        "failed": pipeline.failed.rows.to_parts(),
        "counts": [pipeline.position, pipeline.n_results, pipeline.n_deleted],
        "finished": pipeline.finished,
        "filters": {place: row_filter.to_parts() for place, row_filter in pipeline.filters.items()},
        "clock": None if clock is None else clock.to_parts(),
        **versions_parts(pipeline),
        **({"derived": [to_parts(derived) for derived in pipeline.derived.values()]} if pipeline.derived else {}),
    }


def from_parts(parts: Parts, query: Query, policy: str | Policy | None) -> Pipeline:
    """Return the pipeline that had these parts; see `Runtime.from_parts`.

    Raises StateError, PlanError, QueryError or InputError for parts that do not fit together.
    """
    options = RuntimeOptions(
        output=parts.text("output"),
        count_only=parts.flag("count_only"),
        ids_only=parts.flag("ids_only"),
        bounded=parts.flag("bounded"),
        ordered=parts.flag("ordered"),
    )
    inner = query.inner_joins()
    operators = parts.items("operators")
    parts.require(len(operators) >= len(inner), "there are fewer operators than joins")
    by_join = {
        path: _join_options(part, own_policy(query, policy)) for path, part in zip(inner, operators, strict=False)
    }
    pipeline = Pipeline(query, options, by_join)
    parts.require(len(operators) == len(pipeline.operators), "there are other operators than in the query")
    sources = derived_inputs(query)
    for part, (table, source) in zip(parts.items("derived", len(sources)) if sources else [], sources, strict=True):
        pipeline.adopt(table.name, from_parts(part, source, policy if isinstance(policy, str) else None))
    if pipeline.clock is not None:
        pipeline.clock.load_parts(parts)
    for operator, part in zip(pipeline.operators, operators, strict=True):
        operator.load_parts(part, pipeline.watermark)
    pipeline.late.rows = LateRows.from_parts(parts.part("late"), [stream.late_schema for stream in query.streams])
    pipeline.failed.rows = LateRows.from_parts(parts.part("failed"), [FAILED])
    pipeline.position, pipeline.n_results, pipeline.n_deleted = parts.integers("counts", 3)
    pipeline.finished = parts.flag("finished")
    load_versions(pipeline, parts)
    kept = parts.part("filters")
    for place, row_filter in pipeline.filters.items():
        row_filter.load_parts(kept.part(place))
    pipeline.set_bound(parts.optional("max_bytes"))
    return pipeline


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
