"""The figure `profile`: where the time of a push goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

import eddy
from bench.engine import open_push
from bench.growth.sources import Chunk, filling
from bench.harness.figure import Figure, Grid, Plot, Point, Row, Say
from bench.harness.rows import number
from bench.harness.spread import spread
from bench.machine_limit.floor import source_of
from bench.measure import agree, without_gc
from eddy.routing.strategies import make_strategy
from jisc.plan.tree import default_plan
from stairs.descriptors import LOADING, M_MODE
from stairs.modules import Modules

LARGE, SMALL = 50_000, 1_000
"""Arrivals of a push."""
STAGES = {
    "admit": [("_gate", "admit")],
    "load": [("_modules", "begin"), ("_loader", "load")],
    "route": [
        ("", "_route"),
        ("_router", "stretch"),
        ("_router", "note"),
        ("_strategy", "after_push"),
        ("_strategy", "note_push"),
    ],
    "kernel": [("_modules", "run")],
    "gather": [("_output", "make")],
}
"""The stages of `Runtime.push`, and which calls make them up. What is left is `rest`."""
KERNEL = ("call", "intern", "insert", "probe", "emit")
"""What the kernel does, told apart by leaving parts of it out."""
CASES = {"W1": LARGE, "W2": LARGE, "W21": LARGE, "W1, small pushes": SMALL}
"""What is measured: a workload, and arrivals of a push."""
PARTS = ("admit", "load", *KERNEL, "route", "gather", "rest")


class Stopwatch:
    """CPU seconds by name, of the calls it was put around."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, owner: object, call: str, name: str) -> None:
        """Count the time of a method of this object under a name."""
        inner: Callable[..., Any] = getattr(owner, call)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = thread_time()
            try:
                return inner(*arguments, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + thread_time() - start

        setattr(owner, call, timed)

    def read(self) -> dict[str, float]:
        """Return the seconds since the last call, by name."""
        found, self.seconds = self.seconds, {}
        return found


class TimedRuntime:
    """A runtime as users have it, with a stopwatch around the calls of STAGES."""

    def __init__(self, query: eddy.Query) -> None:
        self.runtime, self.watch = eddy.Runtime(query), Stopwatch()
        for stage, calls in STAGES.items():
            for part, call in calls:
                owner = vars(self.runtime)[part] if part else self.runtime
                self.watch.around(owner, call, stage)

    def take(self, chunk: Chunk) -> tuple[dict[str, float], int]:
        """Push the arrivals; return CPU seconds of each stage and `whole`, and the results."""
        pushes, found = chunk.arrow, 0
        self.watch.read()
        start = thread_time()
        for rows, order in pushes:
            found += self.runtime.push(rows, order).num_rows
        whole = thread_time() - start
        return {"whole": whole} | self.watch.read(), found


class Kernel(NamedTuple):
    """CPU seconds of the kernel on some pushes, and results.

    call    a call that has nothing to do, once for each push
    intern  the sweep and all keys of the push to key ids, less a call
    walk    the arrivals one by one, less a call
    """

    call: float
    intern: float
    walk: float
    results: int


class Variant:
    """The kernel alone over SteMs of its own, leaving out what is not wanted.

    probing   False = nothing is probed: keys are interned and tuples inserted
    counting  True = results are counted, row ids are not written
    """

    def __init__(self, query: eddy.Query, *, probing: bool = True, counting: bool = False) -> None:
        self.modules, self.probing, self.counting = Modules(query.graph), probing, counting
        self.strategy = make_strategy("eddy", self.modules, default_plan(query.graph))
        if not probing:
            self.modules.meta[M_MODE] = LOADING

    def take(self, chunk: Chunk) -> Kernel:
        """Take the arrivals in, in three calls of the kernel for each push."""
        modules, strategy = self.modules, self.strategy
        calling = interning = walking = 0.0
        found = 0
        for order, columns in chunk.columns:
            open_push(modules, columns)
            start = thread_time()
            # Up to no arrival: the sweep, and all keys of the push become key ids.
            modules.run(strategy.routes, order, self.counting, strategy.entries, 0)
            interned = thread_time()
            found += modules.run(strategy.routes, order, self.counting, strategy.entries)
            walked = thread_time()
            # Nothing is left to do.
            modules.run(strategy.routes, order, self.counting, strategy.entries)
            call = thread_time() - walked
            calling += call
            interning += interned - start - call
            walking += walked - interned - call
            modules.commit()
        return Kernel(calling, interning, walking, found)


def points(full: bool) -> list[Point]:
    """W1, W2 and W21 over windows of 10^4 rows in pushes of 50 000, and W1 in pushes of 1 000."""
    arrivals, count = (200_000, 9) if full else (50_000, 4)
    sizes = {"window": 10_000, "arrivals": arrivals, "rounds": count, "seed": 1}
    return [{"case": case, "workload": case.partition(",")[0], "push": push, **sizes} for case, push in CASES.items()]


def split(stages: dict[str, float], full: Kernel, counting: Kernel, inserting: Kernel) -> dict[str, float]:
    """Return the seconds of each of PARTS; they sum to stages["whole"].

    full      results are written; counting: they are counted; inserting: nothing is probed
    """
    found = {name: stages.get(name, 0.0) for name in ("admit", "load", "route", "gather")}
    found |= {"call": full.call, "intern": full.intern, "insert": inserting.walk}
    found |= {"probe": counting.walk - inserting.walk, "emit": full.walk - counting.walk}
    found["rest"] = stages["whole"] - sum(found.values())
    return found


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each part, ns per arrival and share of the whole, and one for the whole.

    kernel_ns, the same in all, is what the kernel of the runtime took itself. Raises Mismatch if the runs beside it
    find other numbers of results.
    """
    workload, window, push = str(point["workload"]), int(point["window"]), int(point["push"])
    arrivals, count = int(point["arrivals"]), int(point["rounds"])
    source = source_of(workload, window, int(point["seed"]))
    runtime, full = TimedRuntime(source.query), Variant(source.query)
    counting, inserting = Variant(source.query, counting=True), Variant(source.query, probing=False)
    say(f"{workload}: filling")
    done, most = 0, filling([window] * source.query.graph.n_streams, push)
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
            # Who comes first goes round, so that no variant always finds the caches as the same other left them.
            order = [(full, counting, inserting)[(k + number) % 3] for k in range(3)]
            found = {id(variant): variant.take(chunk) for variant in order}
            whole, count_only, insert_only = (found[id(variant)] for variant in (full, counting, inserting))
            counts = {"runtime": results, "kernel": whole.results, "kernel, counting": count_only.results}
            agree(f"profile of {workload}", counts)
            if timed:
                for name, one in split(stages, whole, count_only, insert_only).items():
                    taken[name].append(1e9 * one / arrivals)
                taken["whole"].append(1e9 * stages["whole"] / arrivals)
                kernel.append(1e9 * stages["kernel"] / arrivals)
    return _rows(taken, median(kernel))


def _rows(taken: dict[str, list[float]], kernel: float) -> list[Row]:
    whole = median(taken["whole"])
    rows = {name: dict(spread(own, "ns")) for name, own in taken.items()}
    # Medians of parts do not sum to the median of the whole; what they lack is not explained either.
    rows["rest"]["ns"] = whole - sum(number(rows[name], "ns") for name in PARTS if name != "rest")
    share = {name: number(row, "ns") / whole for name, row in rows.items()}
    return [{"part": name, **row, "share": share[name], "kernel_ns": kernel} for name, row in rows.items()]


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say for each case which parts take most, and how much stays unexplained."""
    said = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {str(row["part"]): row for row in rows if row["case"] == case}
        if "whole" not in own:
            continue
        shares = {name: number(own[name], "share") for name in PARTS if name in own and name != "rest"}
        ranked = sorted(shares, key=lambda name: -shares[name])
        text = ", ".join(f"{name} {shares[name]:.0%}" for name in ranked)
        rest = number(own["rest"], "share")
        said.append(f"{case}: {number(own['whole'], 'ns'):,.0f} ns an arrival: {text}; {rest:+.0%} is not explained.")
        runs = sum(number(own[name], "ns") for name in KERNEL if name in own)
        said.append(
            f"{case}: the kernel within the runtime took {number(own['whole'], 'kernel_ns'):,.0f} ns an arrival, its"
            f" parts by the runs beside it sum to {runs:,.0f}."
        )
        # A difference that is smaller than what it varied by is no finding.
        unclear = [
            name
            for name in ("probe", "emit")
            if name in own and number(own[name], "ns_low") <= 0 < number(own[name], "ns_high")
        ]
        if unclear:
            said.append(f"{case}: {' and '.join(unclear)}, a difference of runs, varied around 0: too small to tell.")
    return said


PROFILE = Figure(
    name="profile",
    title="Where the time of a push goes",
    about=(
        "`Runtime.push` with its defaults on W1, W2 and W21, Arrow batches in and tables out, windows of 10 000 rows"
        " full, in pushes of 50 000 arrivals, and W1 in pushes of 1 000. Found by a clock around the calls that make up"
        " a push: admit (the gate), load (opening the push; keys and payload copied in), route (samples, decisions,"
        " changes of plan, records of pushes), gather (payload of results to columns and the table). What the kernel"
        " does is one call, so it is split by runs of it on the same arrivals, round by round, over state of its own"
        " with the first plan: call is a call that has nothing to do, once a push; intern is timed by itself (the sweep"
        " of dead keys and all keys of the push to key ids; the kernel stops before the first arrival); insert is a run"
        " that probes nothing; probe is a run that counts results less that one; emit is a run that writes row ids less"
        " the one that counts. Errors: an arrival that probes brings its head row into the cache, and inserting then"
        " finds it there, so its miss is told under insert; bookkeeping of each arrival (low marks, the bound keys) is"
        " insert as well; a difference of two runs varies by what both do. rest is what is left of the push: commit,"
        " Python between these calls, further calls of the kernel where the router looks within a push, the clock"
        " itself, and whatever else the kernel of the runtime takes more or less than the runs beside it. CPU time of"
        " the thread, medians of rounds; the rest makes them sum to the whole."
    ),
    points=points,
    measure=measure,
    plots=[
        Plot(
            f"{case}: ns per arrival",
            x="part",
            y="ns",
            name=case.lower().replace(",", "").replace(" ", "-"),
            y_label="ns per arrival",
            kind="bars",
            where={"case": case},
            spread=("ns_low", "ns_high"),
        )
        for case in CASES
    ],
    grids=[
        Grid(
            "ns per arrival",
            rows={"part": "part"},
            value={"ns": "ns"},
            across="case",
        ),
        Grid("Share of the push", rows={"part": "part"}, value={"share": "share"}, across="case"),
    ],
    remarks=remarks,
)
