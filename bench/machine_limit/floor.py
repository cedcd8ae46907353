"""The figure `floor`: time per arrival compared with the time that its memory accesses alone would take."""

from __future__ import annotations

from statistics import median

from bench.harness.figure import Figure, Plot, Point, Row, Say, Table, spread
from bench.machine_limit.accesses import Traffic, counted, counters, engine_traffic, loop_traffic
from bench.machine_limit.memory import LINE, costs, powers_of_two
from bench.ways.runners import JOINS, EngineRunner, LoopRunner, Runner, RuntimeRunner, fill, rounds
from bench.workloads.sources import filling, workload
from stairs.descriptors import M_RESULTS


def points(full: bool) -> list[Point]:
    """Return W1 over windows of 10^3 to 10^6 rows (quick: 10^5), W2 and W21 over 10^4."""
    arrivals, count = (500_000, 7) if full else (100_000, 3)
    windows = [10**k for k in range(3, 7 if full else 6)]
    sizes = [("W1", window) for window in windows] + [("W2", 10_000), ("W21", 10_000)]
    return [
        {"workload": name, "window": window, "arrivals": arrivals, "push": 50_000, "rounds": count, "seed": 1}
        for name, window in sizes
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each way: measured ns per arrival, those of the model, and the counts of the model."""
    name, window, push = point["workload"], point["window"], point["push"]
    arrivals, count, seed = point["arrivals"], point["rounds"], point["seed"]
    source = workload(name, window, seed)
    graph = source.query.graph
    loop = LoopRunner(JOINS[name], graph.n_streams, window, window)
    engine = EngineRunner(source.query)
    # One plan and no statistics, so that it walks the routes that the engine counts.
    arrow = RuntimeRunner(source.query, strategy="mjoin", statistics=False)
    runners: dict[str, Runner] = {"engine": engine, "arrow": arrow, "loop": loop}
    say(f"{name}, windows of {window:,}: filling")
    fill(runners, source, filling([window] * graph.n_streams, push), push)
    before = counters(engine.routes)
    # The counters also run in the round that is not timed.
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
    for way, own in traffic.items():
        ns = [1e9 * seconds / arrivals for seconds in taken[way]]
        say(f"{name}, windows of {window:,}: latency in {powers_of_two(own.working_set):,} bytes")
        rows.append({"way": way, **spread(ns, "ns"), **_model(own, median(ns), seed), "live": live})
    return rows


def _model(traffic: Traffic, ns: float, seed: int) -> Row:
    latency = costs(powers_of_two(traffic.working_set), 3, 1_000_000, seed)
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


KEY = {"workload": "workload", "window": "window", "way": "way"}

FIGURES = (
    Figure(
        "floor",
        "The loop, the engine and `Runtime.push` (one plan, no statistics) on W1, W2 and W21, in turns on the same "
        "arrivals, windows full. The model counts random accesses per arrival (key directory, head rows, records of "
        "matches, payload) and multiplies them by the latency measured in the same process at the size of the memory "
        "accessed: `dependent` is the worst case, `overlapped` the best. Memory accessed in order is added to both.",
        points,
        measure,
        plots=[
            Plot(
                "W1: measured / floor",
                "window",
                "ratio_best",
                "way",
                name="w1",
                x_label="rows of a window",
                y_label="measured / overlapped accesses",
                log="xy",
                where={"workload": "W1"},
            )
        ],
        tables=[
            Table(
                "Measured and predicted ns per arrival",
                KEY,
                {
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
            Table(
                "Random accesses per arrival",
                KEY,
                {
                    "directory": "key directory",
                    "heads": "head rows",
                    "chain": "records of matches",
                    "gather": "payload",
                    "sequential_bytes": "bytes in order",
                    "working_set": "working set, bytes",
                },
            ),
        ],
    ),
)
