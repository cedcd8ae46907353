"""An engine as a description: its queries, and each join with its plan and figures."""

from __future__ import annotations

from typing import Any, NamedTuple

from eddy.inspect.describe import described, join_plan
from eddy.inspect.history import history_table
from eddy.inspect.reasons import reasons_of
from eddy.join.join import Join
from eddy.pipeline.pipeline import Pipeline
from eddy.queries.family import Family
from eddy.queries.query import QueryHost
from eddy.queries.shared_join import SharedJoin
from eddy.show.description import Description, ElementDescription, JoinPlan, QueryDescription
from eddy.show.html import Timeline
from eddy.show.planned import planned
from eddy.show.times import time_seconds, time_text
from jisc.strategies import Strategy
from stairs.descriptors import S_BASE, S_LO, S_NEXT, S_WALKED

ELEMENTS = 30
"""Control elements in a description: the newest ones."""


class _RunningJoin(NamedTuple):
    """A join of an engine: its title, its family if versions share it, and what runs it, None before its first push.

    pipeline   the pipeline to which the join belongs, None if it is one over shared SteMs
    """

    title: str
    family: Family | None
    join: SharedJoin | Join | None
    pipeline: Pipeline | None

    @property
    def strategy(self) -> Strategy | None:
        """Its strategy, None before its first push."""
        return None if self.join is None else self.join.strategy


def engine_joins(engine: QueryHost) -> list[_RunningJoin]:
    """Return the joins of an engine, each with the queries that it serves in its title."""
    joins = []
    for family in engine.joins.families:
        sharing = {reader.version for reader in family.readers}
        names = [query.name for query in engine.queries.values() if sharing.intersection(query.live)]
        shared = engine.joins.sharing.join(family)
        title = f"join of {' '.join(family.names)} for {', '.join(names)}{', over shared SteMs' * family.shared}"
        pipeline = None if family.runtime is None or shared is not None else family.runtime._pipeline
        joins.append(_RunningJoin(title, family, shared if pipeline is None else pipeline.join, pipeline))
    for version, lone_join in engine.joins.alone.items():
        (name,) = [query.name for query in engine.queries.values() if version in query.live]
        pipeline = lone_join.runtime._pipeline
        joins += [
            _RunningJoin(f"join of {join.title} for {name} alone", None, join, pipeline)
            for join in pipeline.joins.values()
        ]
    return joins


def _described_share(join: SharedJoin, title: str = "", predict: bool = True) -> JoinPlan:
    """Return the description of a join over shared SteMs, whose bytes belong to no single join."""
    share, graph = join.share, join.query.graph
    states: dict[str, dict[str, Any]] = {
        name: {
            "arrivals": int(share.streams[i, S_NEXT] + share.streams[i, S_BASE]),
            "expired": int(share.streams[i, S_LO] + share.streams[i, S_BASE]),
            "walked": int(share.streams[i, S_WALKED]),
            "rows": share.rows(i),
            "late": None,
            "bytes": None,
            "marks": 0,
        }
        for i, name in enumerate(graph.names)
    }
    figures = {
        "arrivals": sum(state["arrivals"] for state in states.values()),
        "results": None,
        "bytes": None,
        "states": states,
        "classes": [{"keys": share.keys(c)} for c in range(graph.n_classes)],
    }
    reasons = reasons_of(join.strategy, join.router, None, predict)
    return join_plan(join.query, share, join.strategy, join.router, figures, title, reasons)


def engine_description(engine: QueryHost, predict: bool = True) -> Description:
    """Return what an engine runs. To be called in turn."""
    queries, elements = engine.queries.values(), engine.history()
    return Description(
        title="Engine",
        query=None,
        joins=tuple(_described(running, predict) for running in engine_joins(engine)),
        queries=tuple(
            QueryDescription(
                query.name, query.state, query.versions[-1].number, len(query.live), query.n_results, repr(query.query)
            )
            for query in queries
        ),
        elements=tuple(
            ElementDescription(element["position"], element["query"], element["version"], element["event"])
            for element in elements.slice(max(len(elements) - ELEMENTS, 0)).to_pylist()
        ),
        arrivals=engine.position,
        results=sum(query.n_results for query in queries),
        late=sum(engine.late_counts.values()),
        bytes=engine.nbytes,
        watermark=engine.watermark,
        watermark_time=time_text(engine.watermark, engine.sources.time_type),
        watermark_seconds=time_seconds(engine.watermark, engine.sources.time_type),
    )


def _described(running: _RunningJoin, predict: bool) -> JoinPlan:
    if running.join is None:
        assert running.family is not None
        return planned(running.family.query, running.family.tree, title=running.title)
    if isinstance(running.join, SharedJoin):
        return _described_share(running.join, running.title, predict)
    assert running.pipeline is not None
    return described(running.pipeline, running.join, running.title, predict)


def engine_timelines(engine: QueryHost) -> list[Timeline]:
    """Return the changes of plan of each join. To be called in turn."""
    timelines = []
    for running in engine_joins(engine):
        changes = [] if running.strategy is None else history_table(running.strategy.history.transitions).to_pylist()
        if running.family is None:
            assert running.join is not None
            plan = running.join.strategy.tree.text(running.join.query.graph.names)
        else:
            plan = engine.joins.plan_of(running.family)
        timelines.append(Timeline(changes, engine.position, plan))
    return timelines
