"""The n-way join as an operator of a pipeline: its parts, and how a push happens in it in whole or not at all.

A push takes three steps. `begin` notes where the join is. `eddy.join.walk.take` computes the push. Then `settle` lets
the push happen, or `roll_back` takes it back. Both consist of steps that may be repeated, and clear the note last, so
after an exception within one of them, the next call runs it again from its start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from sortedcontainers import SortedKeyList

from eddy.aggregates.groups import Sized
from eddy.aggregates.ring_check import check_rings
from eddy.aggregates.rings import Rings
from eddy.ingest.loader import Loader, sources_of
from eddy.join.bound import Bound
from eddy.join.options import Options
from eddy.join.payload_room import fit_payload
from eddy.query.query import Query
from eddy.results.results import Results
from eddy.results.walked import Walked
from eddy.routing.router import Router, make_policy
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import make_strategy, streams_text
from eddy.streams.numbers import at_least, whole
from jisc.plan.states import StateId, read_states
from jisc.plan.tree import default_plan, read_plan
from jisc.strategies import STRATEGIES
from jisc.strategies.base import Savepoint
from stairs.descriptors import M_ARRIVALS, M_CHANGELOG, S_BASE
from stairs.errors import InputError, StateError
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.result_blocks import ResultBlocks
from stairs.stems import RENUMBER_AT
from stairs.storage.parts import Parts, Plain


class UndoRecord(NamedTuple):
    """The state to which an exception takes a join back.

    savepoint   the strategy before it
    loading     whether earlier arrivals are loaded into empty windows
    """

    savepoint: Savepoint
    loading: bool


class JoinCommit(NamedTuple):
    """A join after a push, or after earlier arrivals were loaded.

    position, results, deleted   counts since the start
    schedule            transitions to come
    arrivals, inserted  figures of this push
    """

    position: int
    results: int
    deleted: int
    schedule: SortedKeyList
    arrivals: int = 0
    inserted: int = 0


class Join:
    """One n-way join. Raises PlanError and InputError for options that do not fit the query.

    options            those that this join has
    least_bytes        `used` without any row
    modules, payload   SteMs and key directories; columns of live tuples
    strategy, router   how the plan runs; which plan to run
    schedule           transitions to come; replaced, never modified
    columns            per stream, the payload columns that results or `where` need
    loader             what writes the rows of a push where the kernels read them
    walked             the combinations that the kernels found in the push at hand
    output             what makes results of them
    rings              the ring values that may serve the groups of the query; None = nothing but joined rows can
    n_results, n_deleted   counts since the start
    undo               the note of a push or a change under way; None = none is
    """

    def __init__(self, query: Query, options: Options) -> None:
        self.query, graph = query, query.graph
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
        self.loader = Loader(sources_of(query, self.columns), self.modules, self.payload)
        self.output = Results(
            query, self.columns, changelog=changelog, count_only=options.count_only, ids_only=options.ids_only
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
        """Where the strategy starts again with empty states, if `settle` was interrupted."""

    @property
    def title(self) -> str:
        """The names of its streams."""
        return " ".join(self.query.graph.names)

    @property
    def plan(self) -> str:
        """The plan that runs, as text; while several run, the newest."""
        return self.strategy.tree.text(self.query.graph.names)

    @property
    def position(self) -> int:
        """Arrivals so far, without filtered and late rows."""
        return self.modules.figures[M_ARRIVALS]

    @property
    def used(self) -> int:
        """Bytes of all that the bound counts. O(parts)."""
        return self._fixed_bytes + self.modules.allowance.used

    @property
    def nbytes(self) -> int:
        """Bytes of all state, and of the room of the last push."""
        return self.modules.nbytes + self.payload.nbytes + self.strategy.nbytes

    @property
    def asleep(self) -> bool:
        """Whether ring values serve: stored states sleep meanwhile, and are empty (`eddy.pipeline.grouped`)."""
        return self.rings is not None and self.rings.choice.on

    @property
    def has_changed(self) -> bool:
        """Whether the plan has changed since `begin`."""
        return self.undo is not None and self.strategy.history.count > self.undo.savepoint.history.length

    def set_bound(self, max_bytes: int | None, beside: Sized | None = None) -> None:
        """Bound the bytes of the join, and of a state beside it that asks for the same memory. None = no bound."""
        self.bound = Bound(max_bytes, self.modules, self.payload, beside, self._fixed_bytes)

    def turn_rings(self, on: bool, lost: bool = False) -> None:
        """Let ring values serve from now on, or let them not; lost: they could not."""
        assert self.rings is not None
        self.rings.release()
        if self.strategy.stairs:
            # A push without arrivals that is taken back: states return empty.
            self.begin()
            self.roll_back()
        self.rings.choice.turned(on, lost)

    # A push

    def begin(self, loading: bool = False) -> None:
        """Note where the join is: from here on, an exception takes it back to this."""
        self.undo = UndoRecord(self.strategy.savepoint(), loading)

    def settle(self, commit: JoinCommit, again: bool = False) -> None:
        """Let a push happen, if it has not. It may be repeated.

        again   an exception may have interrupted it: nobody knows how far the states have come, so they start empty
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
        """Take the join back to where it was at `begin`; do nothing if nothing is under way. It may be repeated."""
        undo, modules, strategy = self.undo, self.modules, self.strategy
        if undo is None:
            return
        changed = self.has_changed
        strategy.discard_states()
        modules.undo()
        self.payload.undo()
        if undo.loading:
            modules.streams[:, S_BASE] = 0
        fit_payload(modules, self.payload)
        strategy.restore(undo.savepoint)
        strategy.refill()
        self.router.rolled_back(changed)
        self.undo = None

    # Options

    def present_options(self) -> dict[str, Any]:
        """Return the options that make this join again as it is now, as JSON values."""
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
        """Return all from which `load_parts` resumes. Ring values do not go along, nor do states that slept."""
        if self.asleep:
            self.turn_rings(on=False)
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
                {"at": one.at, "plan": one.tree.text(names), "store": one.store and list(one.store)}
                for one in self.schedule
            ],
        }

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of a join of the same query. Raises StateError for parts that do not fit."""
        graph, own, wanted = self.query.graph, self.router.policy.name, parts.text("policy")
        parts.require(own == wanted, f"policy {own!r} in place of {wanted!r}")
        self.strategy.masks = self.router.tables.masks
        self.modules.load_parts(parts.part("modules"))
        self.payload.load_parts(parts.part("payload"), self.modules.capacity)
        self.strategy.load_parts(parts.part("running"))
        self.router.load_parts(parts.part("router"))
        self.n_results, self.n_deleted = parts.integers("counts", 2)
        schedule = []
        for one in parts.items("schedule"):
            tree = read_plan(one.text("plan"), graph)
            store = None if one.plain("store") is None else frozenset(read_states(one, "store", graph))
            schedule.append(Scheduled(one.integer("at", self.position), tree, store))
        self.schedule = schedule_of(schedule)

    def check(self) -> None:
        """Raise StateError unless all invariants of all parts hold. O(state), for tests."""
        self.modules.check()
        if not self.asleep:
            self.strategy.check()
        if self.rings is not None:
            check_rings(self.rings)
        if self.payload.room != self.modules.capacity:
            raise StateError(f"rings of payload {self.payload.room} and of records {self.modules.capacity} differ")

    def dismantle(self) -> None:
        """Release all memory now instead of when reference cycles are collected. The join cannot be used then."""
        self.strategy.dismantle()
        for part in (self.modules, self.payload, self.router.samples, self.router, self):
            vars(part).clear()
