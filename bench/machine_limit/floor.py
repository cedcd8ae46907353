"""The figure `floor`: time per arrival beside what memory alone would take."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.growth.runners import CHAIN, FOUR, ONE_KEY, EngineRunner, LoopRunner, Runner, RuntimeRunner
from bench.growth.sources import Drawn, Permuted, Source, filling, one_key
from bench.growth.turns import fill, rounds
from bench.harness.figure import Figure, Grid, Plot, Point, Row, Say
from bench.harness.rows import number
from bench.harness.spread import spread
from bench.machine_limit.accesses import Traffic, counted, counters, engine_traffic, loop_traffic
from bench.machine_limit.memory import LINE, costs, powers_of_two
from bench.workloads import w2, w21
from eddy import InputError, Query
from stairs.descriptors import M_RESULTS

JOINS = {"W1": FOUR, "W2": CHAIN, "W21": ONE_KEY}
WAYS = ("loop", "engine", "arrow")


def points(full: bool) -> list[Point]:
    """W1 over windows of 10^3 to 10^6 rows (quick: 10^5), W2 and W21 over 10^4."""
    arrivals, count = (500_000, 7) if full else (100_000, 3)
    windows = [10**k for k in range(3, 7 if full else 6)]
    sizes = [("W1", window) for window in windows] + [("W2", 10_000), ("W21", 10_000)]
    return [
        {"workload": name, "window": window, "arrivals": arrivals, "push": 50_000, "rounds": count, "seed": 1}
        for name, window in sizes
    ]


def source_of(workload: str, window: int, seed: int) -> Source:
    """Return the arrivals of W1, W2 or W21 (bench/workloads.py); W1 over windows of any size, of as many keys."""
    if workload == "W1":
        return Drawn(one_key(4, window, values=True), window, seed)
    if workload == "W2":
        return Drawn(_with_windows(w2(0).query, window), window, seed, words=2)
    return Permuted(_with_windows(w21(0).query, window), window, seed)


def _with_windows(query: Query, window: int) -> Query:
    sizes = {kept.size for kept in query.graph.windows}
    if sizes != {window}:
        raise InputError(f"this workload has windows of {sizes} rows, not of {window}; only W1 is made in other sizes")
    return query


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each way: measured ns per arrival, the model's, and what the model is made of."""
    workload, window, push = str(point["workload"]), int(point["window"]), int(point["push"])
    arrivals, count, seed = int(point["arrivals"]), int(point["rounds"]), int(point["seed"])
    source = source_of(workload, window, seed)
    graph = source.query.graph
    loop = LoopRunner(JOINS[workload], graph.n_streams, window, window)
    runner = EngineRunner(source.query)
    engine = runner.engine
    # One plan and no statistics, so that it walks the routes that the engine counts.
    arrow = RuntimeRunner(source.query, strategy="mjoin", statistics=False)
    runners: dict[str, Runner] = {"engine": runner, "arrow": arrow, "loop": loop}
    say(f"{workload}, windows of {window:,}: filling")
    fill(runners, source, filling([window] * graph.n_streams, push), push)
    before = counters(engine.routes)
    # The counters run in the round that is not timed as well.
    matched_before = int(engine.modules.meta[M_RESULTS])
    taken, _ = rounds(runners, source, arrivals, push, count, say)
    results = int(engine.modules.meta[M_RESULTS]) - matched_before
    found = counted(graph, engine.routes, before, arrivals * (count + 1), results)
    live = sum(engine.modules.rows(i) for i in range(graph.n_streams))
    traffic = {
        "loop": loop_traffic(found, graph, live, loop.bits),
        "engine": engine_traffic(found, engine.modules),
        "arrow": engine_traffic(found, engine.modules, len(source.query.select)),
    }
    rows: list[Row] = []
    for way in WAYS:
        ns = [1e9 * seconds / arrivals for seconds in taken[way]]
        size = powers_of_two(traffic[way].working_set)
        say(f"{workload}, windows of {window:,}: latency in {size:,} bytes")
        rows.append({"way": way, **spread(ns, "ns"), **_model(traffic[way], size, median(ns), seed), "live": live})
    return rows


def _model(traffic: Traffic, size: int, ns: float, seed: int) -> Row:
    latency = costs(size, 3, 1_000_000, seed)
    dependent, independent = median(latency.dependent), median(latency.independent)
    in_order = traffic.sequential / LINE * median(latency.sequential)
    best, worst = traffic.random * independent + in_order, traffic.random * dependent + in_order
    return {
        "directory": traffic.directory,
        "heads": traffic.heads,
        "chain": traffic.chain,
        "gather": traffic.gather,
        "random": traffic.random,
        "sequential_bytes": traffic.sequential,
        "working_set": traffic.working_set,
        "dependent_ns": dependent,
        "independent_ns": independent,
        "best_ns": best,
        "worst_ns": worst,
        "ratio_best": ns / best,
        "ratio_worst": ns / worst,
    }


def verdict(row: Row) -> str:
    """Say where a measured time lies between the two predictions."""
    ns, best, worst = (number(row, name) for name in ("ns", "best_ns", "worst_ns"))
    model = f"{row['way']}: {ns:,.0f} ns, {best:,.3g} overlapped, {worst:,.3g} one by one"
    if ns > worst:
        return f"{model}; {ns / worst:.2g} × the latter, so waiting for them one by one would not explain it"
    if ns >= best:
        return f"{model}; between, {ns / best:.2g} × the former"
    return f"{model}; {ns / best:.2g} × the former, so the model counts accesses that are not random"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say for each measurement where it lies, and how the distance from the floor goes with the window of W1."""
    said = []
    for workload, window in dict.fromkeys((str(row["workload"]), int(number(row, "window"))) for row in rows):
        own = [row for row in rows if (row["workload"], row["window"]) == (workload, window)]
        said.append(
            f"{workload}, windows of {window:,}, an arrival and what its accesses take: "
            + ". ".join(verdict(row) for row in own)
            + "."
        )
    for way in WAYS:
        sized = sorted(
            (int(number(row, "window")), number(row, "ratio_best"), number(row, "ratio_worst"))
            for row in rows
            if row["workload"] == "W1" and row["way"] == way
        )
        if len(sized) > 1:
            (small, *first), (large, *last) = sized[0], sized[-1]
            trend = "closer to" if last[0] < first[0] else "no closer to"
            said.append(
                f"W1, {way}: measured / floor is {first[0]:.2g} (overlapped) and {first[1]:.2g} (dependent) in windows"
                f" of {small:,}, {last[0]:.2g} and {last[1]:.2g} in windows of {large:,}: {trend} what overlapped"
                " accesses would take."
            )
    return said


FLOOR = Figure(
    name="floor",
    title="Time per arrival beside what memory alone would take",
    about=(
        "The hand-written loop, the engine (keys in as arrays, row ids out) and `Runtime.push` (Arrow in and out, one"
        " plan, no statistics) on W1, W2 and W21, in turns on the same arrivals, windows full. The model counts random"
        " accesses per arrival: a slot of the key directory for each key (not in the loop), the head row of each key"
        " that is probed by, the record of each match (two lines in the loop: key and link), and for Arrow a line for"
        " each column of each component of a result but the arrival; matches and results are those that the engine"
        " counted. Times the latency measured in the same process at the power of two nearest to the bytes that these"
        " accesses go to: dependent is the worst case, overlapped the best (in a small working set the arithmetic of an"
        " address). To both is added what is read and written in order (keys, records, row ids, columns), at the speed"
        " of a sum over as much memory. W1 over windows of other sizes has as many keys as rows, so that results per"
        " arrival stay about one."
    ),
    points=points,
    measure=measure,
    plots=[
        Plot(
            "W1: measured / floor",
            x="window",
            y="ratio_best",
            by="way",
            name="w1",
            x_label="rows of a window",
            y_label="measured / overlapped accesses",
            log_x=True,
            log_y=True,
            where={"workload": "W1"},
        ),
        Plot(
            "W1: time per arrival",
            x="window",
            y="ns",
            by="way",
            name="w1-ns",
            x_label="rows of a window",
            y_label="ns per arrival",
            log_x=True,
            log_y=True,
            where={"workload": "W1"},
            spread=("ns_low", "ns_high"),
        ),
    ],
    grids=[
        Grid(
            "Measured and predicted ns per arrival",
            rows={"workload": "workload", "window": "window", "way": "way"},
            value={
                "random": "random accesses",
                "dependent_ns": "dependent, ns each",
                "independent_ns": "overlapped, ns each",
                "best_ns": "floor, overlapped",
                "worst_ns": "floor, dependent",
                "ns": "measured",
                "ratio_best": "measured / overlapped",
                "ratio_worst": "measured / dependent",
            },
        ),
        Grid(
            "Random accesses per arrival",
            rows={"workload": "workload", "window": "window", "way": "way"},
            value={
                "directory": "key directory",
                "heads": "head rows",
                "chain": "records of matches",
                "gather": "payload",
                "sequential_bytes": "bytes in order",
                "working_set": "working set, bytes",
            },
        ),
    ],
    remarks=remarks,
)
