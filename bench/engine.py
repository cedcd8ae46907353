"""The engine without Arrow: keys in as arrays, row ids out in a buffer, as the hand-written loops have it."""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

import numpy as np
import numpy.typing as npt

from bench.workloads import Keys, Order, Turnover, Workload
from eddy import Query
from eddy.routing.strategies import make_strategy
from jisc.plan.routes import compile_routes
from jisc.plan.tree import default_plan, parse
from stairs.modules import Modules

Columns = list[list[npt.NDArray[np.int64]]]


def open_push(modules: Modules, columns: Columns) -> None:
    """Open a push and copy its key columns in: by stream, then by column, in order of arrival."""
    modules.begin([len(keys[0]) for keys in columns])
    for i, keys in enumerate(columns):
        for c, words in zip(modules.graph.attributes[i], keys, strict=True):
            modules.key_words(i, c)[:] = words


class Engine:
    """SteMs and the default plan, nothing else: keys in as arrays, row ids out in a buffer."""

    def __init__(self, query: Query) -> None:
        self.modules = Modules(query.graph)
        self.routes = compile_routes(default_plan(query.graph), query.graph)

    def push(self, order: Order, columns: Columns) -> int:
        """Take one push and return how many results it has."""
        open_push(self.modules, columns)
        results = self.modules.run(self.routes, order)
        self.modules.commit()
        return results


@dataclass(frozen=True)
class EngineRun:
    """The workload cut into pushes: order, and per stream its key columns."""

    workload: Workload
    pushes: list[tuple[Order, Columns]]

    def seconds(self) -> tuple[float, int]:
        """Return (CPU seconds in the engine, results) once warm: opening a push, keys in, the kernel, closing it."""
        engine = Engine(self.workload.query)
        done = results = 0
        start = thread_time()
        for order, columns in self.pushes:
            if done == self.workload.warm:
                results, start = 0, thread_time()
            done += len(order)
            results += engine.push(order, columns)
        return thread_time() - start, results


def engine_run(workload: Workload, arrivals: int) -> EngineRun:
    """Cut a workload into pushes of so many arrivals."""
    graph = workload.query.graph
    pushes = []
    for first in range(0, len(workload.order), arrivals):
        order, keys = workload.order[first : first + arrivals], workload.keys[first : first + arrivals]
        columns: Columns = []
        for i in range(graph.n_streams):
            own = keys[order == i]
            columns.append([np.ascontiguousarray(own[:, k]) for k in range(len(graph.attributes[i]))])
        pushes.append((order, columns))
    return EngineRun(workload, pushes)


class StrategyEngine:
    """A strategy that runs the plan of a turnover over SteMs of its own; results are counted and no more."""

    def __init__(self, turnover: Turnover, strategy: str) -> None:
        self.graph = turnover.query.graph
        self.modules = Modules(self.graph)
        self.strategy = make_strategy(strategy, self.modules, parse(turnover.plan, self.graph.names))

    def transition(self, plan: str) -> None:
        """Go over to another plan."""
        self.strategy.change(parse(plan, self.graph.names))

    def turn(self, pushes: list[tuple[Order, list[Keys]]]) -> tuple[float, int]:
        """Return (CPU seconds, results) of these pushes, bookkeeping of the strategy after each included."""
        modules, strategy, results = self.modules, self.strategy, 0
        start = thread_time()
        for order, columns in pushes:
            open_push(modules, [[keys] for keys in columns])
            results += modules.run(strategy.routes, order, True, strategy.entries)
            modules.commit()
            strategy.after_push(len(order))
        return thread_time() - start, results
