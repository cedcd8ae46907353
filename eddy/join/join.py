"""The n-way join as an operator of a pipeline: its parts, and its part of the transaction of a push.

A push takes three steps. `begin` notes the state of the join. `eddy.join.walk.take` computes the push. Then `settle`
lets the push happen, or `roll_back` undoes it. Both methods consist of steps that may be repeated, and clear the note
last, so after an exception within one of them, the next call runs the method again from its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sortedcontainers import SortedKeyList

from eddy.aggregates.groups import Sized
from eddy.aggregates.ring_check import check_rings
from eddy.aggregates.rings import Rings
from eddy.ingest.loader import Loader, sources_of
from eddy.join.bound import Bound
from eddy.join.options import RuntimeOptions
from eddy.join.payload_room import fit_payload, follow_compaction
from eddy.query.query import Query
from eddy.results.modes import takes_back
from eddy.results.results import Results
from eddy.results.walked import Walked
from eddy.routing.router import Router, make_policy
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import check_background, check_purge, make_strategy, strategy_name, streams_text
from eddy.streams.numbers import at_least, whole
from jisc.plan.states import StateId, read_states
from jisc.plan.tree import default_plan, read_plan
from jisc.strategies import STRATEGIES
from jisc.strategies.base import Savepoint
from stairs.descriptors import DEPARTURES, ENDS, M_ARRIVALS, M_CHANGELOG, NOTHING, S_BASE
from stairs.errors import InputError, PlanError, StateError
from stairs.graph import JoinGraph
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.result_blocks import ResultBlocks
from stairs.stems import RENUMBER_AT
from stairs.storage.parts import Parts, Plain


class UndoRecord(NamedTuple):
    """The state of a join that is restored after an exception.

    savepoint   the strategy before the push
    loading     whether earlier arrivals are loaded into empty windows
    """

    savepoint: Savepoint
    loading: bool


class JoinCommit(NamedTuple):
    """A join after a push, or after earlier arrivals were loaded.

    position, results, deleted   counts since the start
    schedule            scheduled transitions
    arrivals, inserted  figures of this push
    """

    position: int
    results: int
    deleted: int
    schedule: SortedKeyList
    arrivals: int = 0
    inserted: int = 0


def _check_options_of_one(graph: JoinGraph, options: RuntimeOptions) -> None:
    """Raise InputError or PlanError for options that no query has, although a query of one stream needs none."""
    kind = STRATEGIES[strategy_name(options.strategy)]
    check_background(kind, options.background)
    check_purge(kind, options.purge)
    if options.store is not None:
        raise PlanError(f"store={options.store!r}: a query of one stream has no inner states; leave store out")
    if options.policy is not None:
        make_policy(options.policy, make_strategy("mjoin", Modules(graph, RENUMBER_AT), default_plan(graph)))


class Join:
    """One n-way join. Raises PlanError and InputError for options that do not fit the query.

    options            the options of this join
    least_bytes        `used` without rows
    modules, payload   SteMs and key directories; columns of live tuples
    strategy, router   the execution of the plan; the choice of the plan
    schedule           scheduled transitions; replaced, never modified
    columns            per stream, the payload columns that results or `where` need
    loader             the object that writes the rows of a push to the memory of the kernels
    walked             the combinations that the kernels found in the current push
    output             the object that makes results from the combinations
    rings              the ring values that may replace joined rows for the groups of the query; None = not possible
    n_results, n_deleted   counts since the start
    undo               the note of a running push or change; None = no push or change is running
    """

    def __init__(self, query: Query, options: RuntimeOptions) -> None:
        self.query, graph = query, query.graph
        if graph.n_streams == 1:
            # A join of one stream has one plan, and no state to store.
            _check_options_of_one(graph, options)
            options = replace(
                options, strategy="mjoin", policy="fixed", store=None, background=0, statistics=False, purge="exact"
            )
        self.options = options
        tree = default_plan(graph) if options.plan is None else read_plan(options.plan, graph)
        renumber_at = at_least(1, options.renumber_at)
        if renumber_at is None or renumber_at > RENUMBER_AT:
            raise InputError(f"renumber_at is a sequence number from 1 to {RENUMBER_AT:,}, not {options.renumber_at!r}")
        self.modules = Modules(graph, renumber_at)
        # Groups and `top` read rows that are never taken back without signs.
        reduced = query.aggregation is not None or query.ranking is not None
        changelog = takes_back(options.output) and not (reduced and query.lasting)
        deletes = ENDS if query.unretracted or query.expiry == "final" else DEPARTURES
        self.modules.meta[M_CHANGELOG] = deletes if changelog else NOTHING
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
        kinds = [[query.streams[i].type_of(column) for column in columns] for i, columns in enumerate(self.columns)]
        self.payload = Payload(kinds, self.modules.capacity, self.modules.allowance, options.spill)
        self.loader = Loader(sources_of(query, self.columns), self.modules, self.payload)
        self.output = Results(
            query,
            self.columns,
            changelog=changelog,
            count_only=options.count_only,
            ids_only=options.ids_only,
            upsert=options.output == "upsert" and query.aggregation is None and query.ranking is None,
        )
        plain = self.output.plain
        blocks = None if plain is None else ResultBlocks(self.payload, plain, self.output.schema)
        self.walked = Walked(self.modules, self.payload, blocks)
        self.rings: Rings | None = None
        self._fixed_bytes = self.modules.nbytes - self.modules.state_bytes
        self.least_bytes = self.used
        self.set_bound(None)
        self.n_results = self.n_deleted = 0
        self.undo: UndoRecord | None = None
        self._restart: Savepoint | None = None
        """The point at which the strategy starts again with empty states, if `settle` was interrupted."""

    @property
    def title(self) -> str:
        """The names of its streams."""
        return " ".join(self.query.graph.names)

    @property
    def plan(self) -> str:
        """The running plan as text; while several plans run, the newest."""
        return self.strategy.tree.text(self.query.graph.names)

    @property
    def position(self) -> int:
        """Arrivals so far, without filtered and late rows."""
        return self.modules.figures[M_ARRIVALS]

    @property
    def used(self) -> int:
        """Bytes of all parts that the bound counts. O(parts)."""
        return self._fixed_bytes + self.modules.allowance.used

    @property
    def nbytes(self) -> int:
        """Bytes of all state, and of the buffers of the last push."""
        return self.modules.nbytes + self.payload.nbytes + self.strategy.nbytes

    @property
    def asleep(self) -> bool:
        """Whether ring values are in use; stored states are then inactive and empty (`eddy.pipeline.grouped`)."""
        return self.rings is not None and self.rings.choice.on

    @property
    def has_changed(self) -> bool:
        """Whether the plan has changed since `begin`."""
        return self.undo is not None and self.strategy.history.count > self.undo.savepoint.history.length

    def set_bound(self, max_bytes: int | None, beside: Sequence[Sized] = ()) -> None:
        """Bound the bytes of the join and of other states that share the bound. None = no bound."""
        self.bound = Bound(max_bytes, self.modules, self.payload, beside, self._fixed_bytes)

    def turn_rings(self, on: bool, lost: bool = False) -> None:
        """Begin or end the use of ring values; `lost` states that they could not be used."""
        assert self.rings is not None
        self.rings.release()
        if self.strategy.stairs:
            # A push without arrivals is undone, after which states are empty.
            self.begin()
            self.roll_back()
        self.rings.choice.turned(on, lost)

    # A push

    def begin(self, loading: bool = False) -> None:
        """Note the state of the join, which an exception from here on restores."""
        self.undo = UndoRecord(self.strategy.savepoint(), loading)

    def settle(self, commit: JoinCommit, again: bool = False) -> None:
        """Let a push happen, if it has not happened. Idempotent.

        again   whether an exception may have interrupted an earlier call: the states may be incomplete, so they restart
        """
        if self.undo is None:
            return
        modules, payload, strategy = self.modules, self.payload, self.strategy
        if again:
            strategy.discard_states()
            if self._restart is None:
                self._restart = strategy.newest_plan()
            fit_payload(modules, payload)
        modules.commit()
        payload.commit()
        modules.figures[M_ARRIVALS] = commit.position
        self.n_results, self.n_deleted, self.schedule = commit.results, commit.deleted, commit.schedule
        if payload.logged:
            payload.expire(modules.oldest().tolist())
        if self._restart is not None:
            strategy.restore(self._restart)
            strategy.refill()
            self._restart = None
        elif self.rings is None or not self.rings.choice.on:
            strategy.after_push(commit.arrivals)
        # Last: until then an exception leads back here.
        self.undo = None

    def roll_back(self) -> None:
        """Restore the state of the join at `begin`; without effect if no push is running. Idempotent."""
        undo, modules, strategy = self.undo, self.modules, self.strategy
        if undo is None:
            return
        changed = self.has_changed
        strategy.discard_states()
        modules.undo()
        self.payload.undo()
        if undo.loading:
            modules.streams[:, S_BASE] = 0
        follow_compaction(modules, self.payload)
        strategy.restore(undo.savepoint)
        strategy.refill()
        self.router.rolled_back(changed)
        self.undo = None

    # Options

    def present_options(self) -> dict[str, Any]:
        """Return the options that make this join again in its current form, as JSON values."""
        return {
            "plan": self.plan,
            "policy": self.router.policy.name,
            "strategy": self.strategy.name,
            "store": self.state_texts(self.strategy.choice),
            "decide_every": self.router.pace.every,
            "statistics": self.router.sampling,
            "background": whole(self.options.background),
            "renumber_at": self.modules.renumber_at,
            "purge": self.options.purge,
        }

    def state_texts(self, states: Iterable[StateId] | None) -> list[str] | None:
        """Return states by their streams, sorted; None for None."""
        return None if states is None else sorted(streams_text(state, self.query.graph) for state in states)

    def to_parts(self) -> Plain:
        """Return all parts from which `load_parts` resumes, without ring values and inactive states."""
        if self.asleep:
            self.turn_rings(on=False)
        # The rings of a push that was undone may differ.
        fit_payload(self.modules, self.payload)
        names, options = self.query.graph.names, self.present_options()
        # The stored states are among the parts of the strategy.
        del options["store"]
        return {
            **options,
            "modules": self.modules.to_parts(),
            "payload": self.payload.to_parts(),
            "running": self.strategy.to_parts(),
            "router": self.router.to_parts(),
            "counts": [self.n_results, self.n_deleted],
            "schedule": [
                {
                    "at": scheduled.at,
                    "plan": scheduled.tree.text(names),
                    "store": scheduled.store and list(scheduled.store),
                }
                for scheduled in self.schedule
            ],
        }

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of a join of the same query. Raises StateError for parts that do not fit."""
        graph, policy, wanted = self.query.graph, self.router.policy.name, parts.text("policy")
        parts.require(policy == wanted, f"policy {policy!r} in place of {wanted!r}")
        self.strategy.masks = self.router.tables.masks
        self.modules.load_parts(parts.part("modules"))
        self.payload.load_parts(parts.part("payload"), self.modules.capacity)
        self.strategy.load_parts(parts.part("running"))
        self.router.load_parts(parts.part("router"))
        self.n_results, self.n_deleted = parts.integers("counts", 2)
        schedule = []
        for part in parts.items("schedule"):
            tree = read_plan(part.text("plan"), graph)
            store = None if part.value("store") is None else frozenset(read_states(part, "store", graph))
            schedule.append(Scheduled(part.integer("at", self.position), tree, store))
        self.schedule = schedule_of(schedule)

    def check(self) -> None:
        """Raise StateError unless all invariants of all parts hold. O(state), for tests."""
        self.modules.check()
        if not self.asleep:
            self.strategy.check()
        if self.rings is not None:
            check_rings(self.rings)
        if any(self.modules.rows(i) > room for i, room in enumerate(self.payload.room)):
            raise StateError(f"rings of payload {self.payload.room} have no room for the rows of windows")

    def dismantle(self) -> None:
        """Release all memory now, and not when reference cycles are collected. The join cannot be used afterwards."""
        self.strategy.dismantle()
        for part in (self.modules, self.payload, self.router.samples, self.router, self):
            vars(part).clear()
