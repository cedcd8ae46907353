"""The runtime of a query with branches: `eddy.Runtime` makes one where the query has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from eddy.branches.engine import BranchedEngine
from eddy.branches.options import join_of
from eddy.branches.parts import branched_parts
from eddy.branches.snapshot import branched_snapshot
from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.figures import filter_lines, filter_table
from eddy.inspect.describe import described
from eddy.inspect.history import history_table
from eddy.inspect.metrics import metrics
from eddy.inspect.statistics import stats_table
from eddy.join_engine import JoinEngine, Options
from eddy.log import log_endless
from eddy.push.bound import checked_bound
from eddy.push.trim import spare_bytes, trim
from eddy.push.turn import Turn, in_logged_turn, in_turn, settled
from eddy.query.branches import BranchedQuery
from eddy.query.query import Query
from eddy.routing.change import transition
from eddy.runtime import Runtime
from eddy.show.description import Description
from eddy.show.html import Timeline
from eddy.show.times import time_seconds, time_text
from jisc.strategies import Transition
from stairs.errors import InputError
from stairs.stair import Stair
from stairs.storage.parts import Plain


class BranchedRuntime(Runtime):
    """Runs one query with branches. `Runtime` documents the arguments and methods, and what differs."""

    _engine: BranchedEngine  # type: ignore[assignment]

    def __init__(self, query: Query, plan: str | None = None, *, bounded: bool = False, **options: Any) -> None:
        assert isinstance(query, BranchedQuery)
        self.query: BranchedQuery = query
        own = Options(plan=plan, **options)
        self.output, self.count_only, self.ids_only = own.output, own.count_only, own.ids_only
        self._turn = Turn()
        self._engine = BranchedEngine(query, own, bounded)
        self.output_schema = self._engine.output_schema
        if not bounded:
            log_endless("the query", query.endless)

    def _settle(self) -> None:
        unsettled = self._unsettled
        self._engine.recover()
        if unsettled:
            self._engine.give_room_back()

    @property
    def _unsettled(self) -> bool:
        joins = self._engine.joins.values()
        return super()._unsettled or any(one.undo is not None or one.commit is not None for one in joins)

    def _joins(self) -> list[tuple[str, JoinEngine]]:
        """Return the inner joins by the names of their streams."""
        names = self.query.graph.names
        return [(" ".join(names[i] for i in path), engine) for path, engine in self._engine.joins.items()]

    @property
    @settled
    def plan(self) -> str:
        """The plans of the inner joins, separated by ";"."""
        return "; ".join(one.strategy.tree.text(one.query.graph.names) for one in self._engine.joins.values())

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return next(iter(self._engine.joins.values())).strategy.name

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return next(iter(self._engine.joins.values())).router.policy.name

    @property
    def max_bytes(self) -> int | None:
        """The bound on bytes, None = no bound. It can be set between two pushes and holds from the next push on."""
        return self._engine.max_bytes

    @max_bytes.setter
    @in_turn
    def max_bytes(self, max_bytes: int | None) -> None:
        self._engine.max_bytes = checked_bound(max_bytes, 1)

    @property
    @settled
    def stairs(self) -> list[Stair]:
        """The stored states of all inner joins."""
        return [stair for engine in self._engine.joins.values() for stair in engine.strategy.stairs]

    @in_logged_turn
    def transition(
        self, plan: str, at: int | None = None, store: Iterable[str] | None = None, *, box: str | None = None
    ) -> Transition | None:
        """Change the plan of the inner join whose streams `plan` names, at once."""
        if at is not None:
            raise InputError(
                "at= is for queries without branches: here a transition happens at once, between two pushes"
            )
        return transition(self._engine.joins[join_of(self.query, plan)], plan, None, store, box)

    @in_turn
    def scheduled(self) -> list[tuple[int, str]]:
        """Return an empty list: transitions happen at once."""
        return []

    @property
    @settled
    def changes(self) -> int:
        """The number of changes of plan and of stored states in all inner joins."""
        return sum(engine.strategy.history.count for engine in self._engine.joins.values())

    @property
    @settled
    def reason(self) -> str | None:
        """The reason of the newest change of each inner join, None if there was none."""
        newest = [engine.strategy.history.newest for engine in self._engine.joins.values()]
        return "; ".join(one.reason for one in newest if one is not None) or None

    @in_turn
    def history(self) -> pa.Table:
        """Return all changes of the inner joins, one join after the other, with a column `join`."""
        return self._by_join({name: history_table(one.strategy.history.transitions) for name, one in self._joins()})

    def _by_join(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        named = [
            table.add_column(0, "join", pa.array([name] * len(table), pa.string())) for name, table in tables.items()
        ]
        return pa.concat_tables(named, promote_options="permissive")

    @in_logged_turn
    def push(self, batches: Mapping[str, object], order: Any = None, *, watermark: int | None = None) -> pa.Table:
        """Take arrivals in and return the rows that begin (and, in a changelog, end) with them."""
        return self._engine.push(batches, order, watermark)

    @in_logged_turn
    def finish(self) -> pa.Table:
        """End the input, and return the rows that still waited for a partner, in order of event time."""
        return self._engine.finish()

    @in_turn
    def load(self, batches: Mapping[str, object], *, watermark: int | None = None) -> None:
        """Load rows that arrived earlier; see `Runtime.load`."""
        self._engine.load(batches, watermark)

    @property
    @settled
    def due(self) -> int | None:
        """The event time that the watermark must pass before a waiting row can be decided, None if none waits."""
        return self._engine.due

    @in_turn
    def snapshot(self) -> bytes:
        """Return all state as bytes from which `restore` resumes exactly."""
        return branched_snapshot(self._engine)

    @in_turn
    def to_parts(self) -> Plain:
        """Return all that another process needs to resume, as plain parts."""
        return branched_parts(self._engine)

    @property
    @settled
    def spare_bytes(self) -> int:
        """Bytes that `trim` gives back at most."""
        return sum(spare_bytes(engine) for engine in self._engine.joins.values())

    @in_turn
    def trim(self) -> None:
        """Give back memory that the next pushes make again in all inner joins; see `Runtime.trim`."""
        for engine in self._engine.joins.values():
            trim(engine)

    @in_turn
    def metrics(self) -> dict[str, Any]:
        """Return counts since the start, and those of each inner join under "joins"."""
        engine = self._engine
        late = engine.late.rows
        return {
            "arrivals": engine.position,
            "results": engine.n_results,
            "deleted": engine.n_deleted,
            "late": sum(late.counts),
            "late_dropped": sum(late.dropped),
            "failed": engine.failed.count,
            "failed_dropped": engine.failed.dropped,
            "open": sum(len(ledger) for ledger in engine.ledgers),
            "bytes": engine.nbytes,
            "joins": {name: metrics(one) for name, one in self._joins()},
        }

    @in_turn
    def stats(self) -> pa.Table:
        """Return the figures of all inner joins, one join after the other, with a column `join`."""
        return self._by_join({name: stats_table(one.modules, one.strategy, one.router) for name, one in self._joins()})

    def _description(self, predict: bool = True) -> Description:
        engine = self._engine
        return Description(
            title="Runtime",
            query=repr(self.query),
            joins=tuple(described(one, f"join of {name}", predict) for name, one in self._joins()),
            arrivals=engine.position,
            results=engine.n_results,
            late=sum(engine.late.rows.counts),
            bytes=engine.nbytes,
            watermark=engine.watermark,
            watermark_time=time_text(engine.watermark, self.query.time_type),
            watermark_seconds=time_seconds(engine.watermark, self.query.time_type),
            waiting=sum(len(ledger) for ledger in engine.ledgers),
            filters=tuple(filter_lines(self._filters())),
        )

    def _timelines(self) -> list[Timeline]:
        return [
            Timeline(
                history_table(one.strategy.history.transitions).to_pylist(),
                one.position,
                one.strategy.tree.text(one.query.graph.names),
            )
            for _, one in self._joins()
        ]

    @in_turn
    def filters(self) -> pa.Table:
        """Return figures of the filters since the start; those of a branch are under the name of its join."""
        return filter_table(self._filters())

    def _filters(self) -> dict[str, AdaptiveFilter]:
        joins = {f"join of {name}": one.output.accepts for name, one in self._joins()}
        return {**self._engine.filters(), **{name: one for name, one in joins.items() if one is not None}}

    @in_turn
    def check(self) -> None:
        """Raise StateError unless all invariants of all state modules hold. O(state), for tests."""
        for engine in self._engine.joins.values():
            engine.check()
        for ledger in self._engine.ledgers:
            ledger.check()
        if self._engine.groups is not None:
            self._engine.groups.state.check()
