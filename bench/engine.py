"""The engine without Arrow: keys in as arrays, row ids out in a buffer, as the hand-written loops have it."""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

import numpy as np
import numpy.typing as npt

from bench.workloads import Order, Workload
from jisc.plan import default_plan
from jisc.routes import compile_routes
from stairs.modules import Modules

Columns = list[list[npt.NDArray[np.int64]]]


@dataclass(frozen=True)
class EngineRun:
    """The workload cut into pushes: order, and per stream its key columns."""

    workload: Workload
    pushes: list[tuple[Order, Columns]]

    def seconds(self) -> tuple[float, int]:
        """Return (CPU seconds in the engine, results) once warm: opening a push, keys in, the kernel, closing it."""
        graph = self.workload.query.graph
        modules, routes = Modules(graph), compile_routes(default_plan(graph), graph)
        done = results = 0
        start = thread_time()
        for order, columns in self.pushes:
            if done == self.workload.warm:
                results, start = 0, thread_time()
            done += len(order)
            modules.begin([len(keys[0]) for keys in columns])
            for i, keys in enumerate(columns):
                for c, words in zip(graph.attributes[i], keys, strict=True):
                    modules.key_words(i, c)[:] = words
            results += modules.run(routes, order)
            modules.commit()
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
