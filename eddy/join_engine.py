"""The parts of one running join, and the counters that belong to none of them.

`eddy.runtime.Runtime` is the public face of an engine. The functions that work on it lie in rooms of their own: pushes
in `eddy.push`, changes of plan in `eddy.routing`, snapshots in `eddy.snapshot`, saving for another process in
`eddy.live`, figures in `eddy.inspect`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from eddy.aggregates.groups import Groups
from eddy.aggregates.rings import Rings, rings_of
from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.clock import Clock
from eddy.ingest.gate import Gate
from eddy.ingest.loader import Loader, sources_of
from eddy.push.bound import Bound, checked_bound
from eddy.push.records import CommitRecord, LastPush, UndoRecord
from eddy.query.numbers import at_least, whole
from eddy.query.query import Query
from eddy.results.failed_output import FailedOutput
from eddy.results.late_output import LateOutput
from eddy.results.modes import check_output
from eddy.results.results import Results
from eddy.results.walked import Walked
from eddy.routing.policies import Policy
from eddy.routing.router import Router, make_policy
from eddy.routing.schedule import schedule_of
from eddy.routing.strategies import make_strategy, streams_text
from jisc.plan.states import StateId
from jisc.plan.tree import default_plan, read_plan
from jisc.strategies import STRATEGIES
from stairs.descriptors import M_ARRIVALS, M_CHANGELOG
from stairs.errors import InputError, StateError
from stairs.graph import WindowKind
from stairs.memory.allowance import Allowance
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.result_blocks import ResultBlocks
from stairs.stems import RENUMBER_AT


@dataclass(frozen=True)
class Options:
    """The arguments of `eddy.Runtime`, documented there. Raises InputError for those that exclude each other."""

    plan: str | None = None
    policy: str | Policy | None = None
    strategy: str = "eddy"
    store: Iterable[str] | None = None
    max_bytes: int | None = None
    decide_every: int | None = None
    statistics: bool = True
    background: int = 0
    output: str = "append"
    count_only: bool = False
    ids_only: bool = False
    renumber_at: int = RENUMBER_AT
    bounded: bool = False
    ordered: bool = False
    purge: str = "exact"

    def __post_init__(self) -> None:
        if self.count_only and self.ids_only:
            raise InputError("count_only and ids_only exclude each other: leave one out")
        if self.count_only and self.ordered:
            raise InputError("count_only and ordered exclude each other: a count has no order; leave one out")
        check_output(self.output)


class JoinEngine:
    """One running join. Raises PlanError and InputError for options that do not fit the query.

    least_bytes        `nbytes` without any row
    modules, payload   SteMs and key directories; columns of live tuples
    strategy, router   how the plan runs; which plan to run
    schedule           transitions to come; replaced, never modified
    clock              the clock of a query with a RANGE window, None without
    gate, loader, output, late, failed   the stations of a push: admission, loading, results, late and failed rows
    columns            per stream, the payload columns that results or `where` need
    found              the combinations that the kernels found in the push at hand
    groups             the groups of a query with aggregates, else None
    rings              the ring values that may serve the groups; None = nothing but joined rows can
    n_results, n_deleted, pushes   counts since the start; `pushes` counts those of this object
    finished           whether the input has ended
    undo, commit       records of a push or change under way (`eddy.push.transaction`); None = none is
    last               the last push
    """

    def __init__(self, query: Query, options: Options) -> None:
        if not isinstance(query, Query):
            raise InputError(f"a Runtime runs an eddy.Query, not {type(query).__name__}")
        self.query, self.options = query, options
        graph = query.graph
        if graph.n_streams == 1:
            # It has one plan, and no state to store.
            if options.strategy not in STRATEGIES:
                make_strategy(options.strategy, Modules(graph, RENUMBER_AT), default_plan(graph), 0, None)
            options = replace(
                options, strategy="mjoin", policy="fixed", store=None, background=0, statistics=False, purge="exact"
            )
            self.options = options
        tree = default_plan(graph) if options.plan is None else read_plan(options.plan, graph)
        renumber_at = at_least(1, options.renumber_at)
        if renumber_at is None or renumber_at > RENUMBER_AT:
            raise InputError(f"renumber_at is a sequence number from 1 to {RENUMBER_AT:,}, not {options.renumber_at!r}")
        self.modules = Modules(graph, renumber_at)
        changelog = options.output == "changelog" and not query.unretracted
        self.modules.meta[M_CHANGELOG] = changelog
        self.strategy = make_strategy(
            options.strategy, self.modules, tree, options.background, options.store, options.purge
        )
        self.router = Router(
            self.modules,
            self.strategy,
            make_policy(options.policy, self.strategy),
            options.decide_every,
            options.statistics,
        )
        self.schedule = schedule_of(())
        self.columns = query.payload_columns(not (options.count_only or options.ids_only))
        kinds = [[query.streams[i].type_of(column) for column in own] for i, own in enumerate(self.columns)]
        self.payload = Payload(kinds, self.modules.capacity, self.modules.allowance)
        self.groups = groups_of(query, options, options.bounded, self.modules.allowance)
        self.rings: Rings | None = None
        if self.groups is not None:
            self.rings = rings_of(self.groups, self.modules, self.payload, self.columns)
            self.groups.rings = self.rings
        fixed = self.modules.nbytes - self.modules.state_bytes
        self.least_bytes = fixed + self.modules.allowance.used
        self._fixed_bytes = fixed
        self.set_bound(checked_bound(options.max_bytes, self.least_bytes))
        self.late, self.failed = LateOutput(query), FailedOutput(query)
        self.clock = clock_of(query)
        self.gate = Gate(query)
        self.loader = Loader(sources_of(query, self.columns), self.modules, self.payload)
        self.output = Results(
            query,
            self.columns,
            changelog=changelog,
            count_only=options.count_only,
            ids_only=options.ids_only,
        )
        plain = self.output.plain
        blocks = None if plain is None else ResultBlocks(self.payload, plain, self.output.schema)
        self.found = Walked(self.modules, self.payload, blocks)
        self.n_results = self.n_deleted = self.pushes = 0
        self.finished = False
        self.undo: UndoRecord | None = None
        self.commit: CommitRecord | None = None
        self.last: LastPush | None = None

    @property
    def position(self) -> int:
        """Arrivals so far, without filtered and late rows."""
        commit = self.commit
        return self.modules.figures[M_ARRIVALS] if commit is None else commit.position

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks, or None before the first; see `Runtime.watermark`."""
        return None if self.clock is None else self.clock.watermark

    @property
    def nbytes(self) -> int:
        """Bytes of all state; see `Runtime.nbytes`."""
        own = 0 if self.groups is None else self.groups.nbytes
        own += self.late.rows.nbytes + self.failed.rows.nbytes
        return self.modules.nbytes + self.payload.nbytes + self.strategy.nbytes + own

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the tables that a push returns."""
        return self.output.schema if self.groups is None else self.groups.schema

    def filters(self) -> dict[str, AdaptiveFilter]:
        """Return the filters by the name of their stream, that of results under "results"."""
        return filters_by_place(self.query, self.gate, self.output)

    def set_bound(self, max_bytes: int | None) -> None:
        """Bound the bytes of the engine. Raises InputError for a value that `checked_bound` refuses."""
        bound = checked_bound(max_bytes, 1)
        self.bound = Bound(bound, self.modules, self.payload, self.groups, self._fixed_bytes)

    def give_room_back(self) -> None:
        """Give the room of the last push back if the bound is exceeded with it, between two pushes."""
        most = self.bound.max_bytes
        if most is not None and self.nbytes > most:
            self.modules.release_scratch()

    def keep_within(self) -> None:
        """Keep to the bound after a push that did not happen: its room goes, and rows on the side make way for it."""
        self.give_room_back()
        if self.bound.max_bytes is not None:
            self.late.keep_within(self.bound.left)
            self.failed.keep_within(self.bound.left - self.late.rows.nbytes)

    def present_options(self) -> dict[str, Any]:
        """Return the options that make this engine again as it is now, as JSON values."""
        return {
            "plan": self.strategy.tree.text(self.query.graph.names),
            "policy": self.router.policy.name,
            "strategy": self.strategy.name,
            "store": self.state_texts(self.strategy.choice),
            "max_bytes": self.bound.max_bytes,
            "decide_every": self.router.pace.every,
            "statistics": self.router.sampling,
            "background": whole(self.options.background),
            "output": self.options.output,
            "count_only": self.options.count_only,
            "ids_only": self.options.ids_only,
            "renumber_at": self.modules.renumber_at,
            "bounded": self.options.bounded,
            "ordered": self.options.ordered,
            "purge": self.options.purge,
        }

    def state_texts(self, states: Iterable[StateId] | None) -> list[str] | None:
        """Return states by their streams, sorted; None for None."""
        return None if states is None else sorted(streams_text(state, self.query.graph) for state in states)

    def check(self) -> None:
        """Raise StateError unless all invariants of all parts hold. O(state), for tests."""
        self.modules.check()
        if self.rings is None or not self.rings.choice.on:
            # While ring values serve, states sleep (`eddy.push.grouped`).
            self.strategy.check()
        if self.groups is not None:
            self.groups.state.check()
        if self.rings is not None:
            self.rings.check()
        if self.payload.room != self.modules.capacity:
            raise StateError(f"rings of payload {self.payload.room} and of records {self.modules.capacity} differ")

    def dismantle(self) -> None:
        """Release all memory now instead of when reference cycles are collected. The engine cannot be used then."""
        self.strategy.dismantle()
        for part in (self.modules, self.payload, self.router.samples, self.router, self):
            vars(part).clear()


def clock_of(query: Query) -> Clock | None:
    """Return a new clock for a query, None for one without a RANGE window."""
    graph = query.graph
    if not graph.timed:
        return None
    return Clock(query.clock_rule, max(window.size for window in graph.windows if window.kind == WindowKind.RANGE))


def groups_of(query: Query, options: Options, bounded: bool, allowance: Allowance) -> Groups | None:
    """Return the groups of a runtime, None for a query without aggregates. Raises InputError."""
    if query.aggregation is None:
        return None
    for name in ("count_only", "ids_only"):
        if getattr(options, name):
            raise InputError(f"{name} is for the results of a join, and this query has aggregates: leave it out")
    if options.ordered:
        raise InputError(
            "ordered is for the results of a join, and this query has aggregates, whose rows come in the order of their"
            " windows: leave it out, and sort the groups of a window by a column"
        )
    groups = Groups(query, options.output == "changelog", bounded, allowance)
    allowance.parts.append(lambda: groups.nbytes)
    return groups


def filters_by_place(query: Query, gate: Gate, output: Results) -> dict[str, AdaptiveFilter]:
    """Return the filters by the name of their stream, that of results under "results"."""
    found = {query.streams[i].name: one for i, one in gate.filters.items()}
    return found if output.accepts is None else {**found, "results": output.accepts}
