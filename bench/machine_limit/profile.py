"""The figure `profile`: the time of the parts of a push.

A clock around the calls of a push measures its stages. The kernel is one call, so its parts are measured by further
runs on the same arrivals, with separate state and the first plan. A probe loads the head row of the arrival into the
cache, where the insert then finds it. In a run without probes the insert has this cache miss, so the miss counts as
insert.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

import eddy
from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, number, spread
from bench.harness.turns import agree, without_gc
from bench.ways.runners import open_push
from bench.workloads.sources import ArrivalChunk, filling
from bench.workloads.sources import workload as source_of
from eddy.routing.strategies import make_strategy
from jisc.plan.tree import default_plan
from stairs.descriptors import LOADING, M_MODE
from stairs.modules import Modules

LARGE, SMALL = 50_000, 1_000
"""Arrivals of a push."""
STAGES = {
    "admit": ["gate.admit"],
    "load": ["join.modules.begin", "join.loader.load"],
    "route": [
        "join.router.look",
        "join.router.stretch",
        "join.router.note",
        "join.strategy.change",
        "join.strategy.after_push",
        "join.strategy.history.note_push",
    ],
    "kernel": ["join.modules.run"],
    "gather": ["output.make"],
}
"""The stages of `Runtime.push` and the calls on its pipeline that make them up. The remaining time is `rest`."""
KERNEL = ("call", "intern", "insert", "probe", "emit")
"""Parts of the kernel, which are separated by runs that leave some parts out."""
CASES = {"W1": LARGE, "W2": LARGE, "W21": LARGE, "W1, small pushes": SMALL}
"""The cases: a workload, and arrivals of a push."""
PARTS = ("admit", "load", *KERNEL, "route", "gather", "rest")


class Stopwatch:
    """CPU seconds by name of the calls that it wraps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, target: object, call: str, name: str) -> None:
        """Count the time of a method of this object under a name."""
        inner: Callable[..., Any] = getattr(target, call)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = thread_time()
            try:
                return inner(*arguments, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + thread_time() - start

        setattr(target, call, timed)

    def read(self) -> dict[str, float]:
        """Return the seconds since the last call, by name."""
        seconds, self.seconds = self.seconds, {}
        return seconds


class TimedRuntime:
    """A Runtime with its defaults, and a stopwatch around the calls of STAGES."""

    def __init__(self, query: eddy.Query) -> None:
        self.runtime, self.watch = eddy.Runtime(query), Stopwatch()
        for stage, calls in STAGES.items():
            for call in calls:
                path, _, method = call.rpartition(".")
                self.watch.around(attrgetter(path)(self.runtime._pipeline), method, stage)

    def take(self, chunk: ArrivalChunk) -> tuple[dict[str, float], int]:
        """Push the arrivals; return CPU seconds of each stage and `whole`, and the results."""
        pushes, results = chunk.arrow, 0
        self.watch.read()
        start = thread_time()
        for rows, order in pushes:
            results += self.runtime.push(rows, order).num_rows
        whole = thread_time() - start
        return {"whole": whole} | self.watch.read(), results


class Kernel(NamedTuple):
    """CPU seconds of the kernel on some pushes, and results.

    call    a call without work, once for each push
    intern  the sweep of dead keys, and all keys of the push to key ids, less a call
    walk    the arrivals one by one, less a call
    """

    call: float
    intern: float
    walk: float
    results: int


class KernelVariant:
    """The kernel alone over its own SteMs, with some parts left out.

    probing   False = the kernel probes nothing: it interns keys and inserts tuples
    counting  True = results are counted, row ids are not written
    """

    def __init__(self, query: eddy.Query, *, probing: bool = True, counting: bool = False) -> None:
        self.modules, self.probing, self.counting = Modules(query.graph), probing, counting
        self.strategy = make_strategy("eddy", self.modules, default_plan(query.graph))
        if not probing:
            self.modules.meta[M_MODE] = LOADING

    def take(self, chunk: ArrivalChunk) -> Kernel:
        """Take the arrivals, in three calls of the kernel for each push."""
        modules, strategy = self.modules, self.strategy
        calling = interning = walking = 0.0
        results = 0
        for order, columns in chunk.columns:
            open_push(modules, columns)
            start = thread_time()
            # The limit of 0 arrivals leaves the sweep, and all keys of the push become key ids.
            modules.run(strategy.routes, order, self.counting, strategy.entries, 0)
            interned = thread_time()
            results += modules.run(strategy.routes, order, self.counting, strategy.entries)
            walked = thread_time()
            # This call has no work left, so its time is the cost of a call.
            modules.run(strategy.routes, order, self.counting, strategy.entries)
            call = thread_time() - walked
            calling += call
            interning += interned - start - call
            walking += walked - interned - call
            modules.commit()
        return Kernel(calling, interning, walking, results)


def points(full: bool) -> list[Point]:
    """W1, W2 and W21 over windows of 10^4 rows in pushes of 50 000, and W1 in pushes of 1 000."""
    arrivals, count = (200_000, 9) if full else (50_000, 4)
    sizes = {"window": 10_000, "arrivals": arrivals, "rounds": count, "seed": 1}
    return [{"case": case, "workload": case.partition(",")[0], "push": push, **sizes} for case, push in CASES.items()]


def split(stages: dict[str, float], full: Kernel, counting: Kernel, inserting: Kernel) -> dict[str, float]:
    """Return the seconds of each of PARTS; they sum to stages["whole"].

    full      results are written; counting: results are counted; inserting: no probes
    """
    seconds = {name: stages.get(name, 0.0) for name in ("admit", "load", "route", "gather")}
    seconds |= {"call": full.call, "intern": full.intern, "insert": inserting.walk}
    seconds |= {"probe": counting.walk - inserting.walk, "emit": full.walk - counting.walk}
    seconds["rest"] = stages["whole"] - sum(seconds.values())
    return seconds


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each part, ns per arrival and share of the whole, and one for the whole.

    kernel_ns, the same in all rows, is the time of the kernel within the Runtime. Raises Mismatch if the runs of the
    kernel alone find other numbers of results.
    """
    workload, window, push = point["workload"], point["window"], point["push"]
    arrivals, count = point["arrivals"], point["rounds"]
    source = source_of(workload, window, point["seed"])
    query = source.query
    runtime, variants = (
        TimedRuntime(query),
        {"full": KernelVariant(query), "counting": KernelVariant(query, counting=True)},
    )
    variants["inserting"] = KernelVariant(query, probing=False)
    say(f"{workload}: filling")
    done, most = 0, filling([window] * query.graph.n_streams, push)
    taken: dict[str, list[float]] = {name: [] for name in (*PARTS, "whole")}
    kernel: list[float] = []
    with without_gc():
        for number in range(-(-most // arrivals) + count):
            timed = done >= most
            if timed:
                say(f"{workload}: round {len(taken['whole']) + 1} of {count}")
            chunk = source.draw(arrivals, push)
            done += arrivals
            stages, results = runtime.take(chunk)
            # The order changes with each round, so that no variant always runs after the same other variant.
            names = [list(variants)[(k + number) % 3] for k in range(3)]
            kernels = {name: variants[name].take(chunk) for name in names}
            counts = {"runtime": results} | {name: kernels[name].results for name in ("full", "counting")}
            agree(f"profile of {workload}", counts)
            if timed:
                for name, seconds in {**split(stages, **kernels), "whole": stages["whole"]}.items():
                    taken[name].append(1e9 * seconds / arrivals)
                kernel.append(1e9 * stages["kernel"] / arrivals)
    return _rows(taken, median(kernel))


def _rows(taken: dict[str, list[float]], kernel: float) -> list[Row]:
    whole = median(taken["whole"])
    rows = {name: dict(spread(samples, "ns")) for name, samples in taken.items()}
    # Medians of parts do not sum to the median of the whole; `rest` includes the difference.
    rows["rest"]["ns"] = whole - sum(number(rows[name], "ns") for name in PARTS if name != "rest")
    share = {name: number(row, "ns") / whole for name, row in rows.items()}
    return [{"part": name, **row, "share": share[name], "kernel_ns": kernel} for name, row in rows.items()]


FIGURES = (
    Figure(
        "profile",
        "`Runtime.push` with its defaults, windows of 10 000 rows full, pushes of 50 000 arrivals (small: 1 000). By "
        "clocks around calls: admit (the gate), load (keys and payload copied in), route (samples, decisions, changes "
        "of plan), gather (payload of results to columns). The kernel is split by runs of it on the same arrivals: "
        "call (a call with nothing to do), intern (sweep, keys to key ids), insert (a run that probes nothing), probe "
        "(a run that counts results, less insert), emit (a run that writes row ids, less counting). rest is the "
        "remainder: commit, Python between the calls, and differences between the runs. CPU time, medians of rounds.",
        points,
        measure,
        plots=[
            Plot(
                f"{case}: ns per arrival",
                "part",
                "ns",
                name=case.lower().replace(",", "").replace(" ", "-"),
                y_label="ns per arrival",
                kind="bars",
                where={"case": case},
            )
            for case in ("W1",)
        ],
        tables=[
            ReportTable("Time per arrival", {"part": "part"}, {"ns": "ns"}, across="case"),
            ReportTable("Share of the push", {"part": "part"}, {"share": "share"}, across="case"),
        ],
    ),
)
