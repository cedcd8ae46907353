"""`eddy bench limit`: the engine compared with hand-written loops, and the transports of Spark."""

from __future__ import annotations

from importlib.util import find_spec

from bench.harness.figure import NAMED, Figure, Point, Row, Say, Table, spread
from bench.harness.turns import speed
from bench.ways.c_loop import PayloadLoop, compiler
from bench.ways.runners import JOINS, EngineRunner, LoopRunner, Runner, RuntimeRunner, SmallPushes, fill, rounds
from bench.workloads.sources import WINDOW, filling, workload

LARGE, SMALL = 100_000, 1_000
"""Arrivals of a push."""
SPARK = "Spark"


def points(full: bool) -> list[Point]:
    """Return a point for each workload, and one for the transports of Spark."""
    sizes = dict.fromkeys(JOINS, (500_000, 7) if full else (100_000, 2))
    sizes[SPARK] = (10_000_000, 3) if full else (1_000_000, 1)
    return [{"workload": name, "arrivals": n, "rounds": count, "seed": 1} for name, (n, count) in sizes.items()]


def ways(name: str, push: int) -> dict[str, Runner]:
    """Return the loop, the engine, and `Runtime.push` with its defaults, on W1, W2 or W21; W21 without the last."""
    query = workload(name).query
    found: dict[str, Runner] = {"loop": LoopRunner(JOINS[name], query.graph.n_streams, WINDOW, WINDOW)}
    found["engine"] = EngineRunner(query)
    if name != "W21":
        found["arrow"] = RuntimeRunner(query)
    cc = compiler()
    if name == "W1" and cc:
        found["payload loop"] = PayloadLoop(cc, WINDOW, WINDOW.bit_length(), WINDOW, 4 * push)
    return found


def measure(point: Point, say: Say) -> list[Row]:
    """Return ratios and amounts by name, and the throughput of each way."""
    name, arrivals, count = point["workload"], point["arrivals"], point["rounds"]
    if name == SPARK:
        if not find_spec("pyspark"):
            return [{"skipped": "the transports of Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
        from bench.spark import spark_ratios

        return spark_ratios(arrivals, count, point["seed"], say)
    found, source = ways(name, LARGE), workload(name, seed=point["seed"])
    query = source.query
    found["engine, small"] = SmallPushes(EngineRunner(query), SMALL)
    small = RuntimeRunner(query)
    if "arrow" in found:
        found["arrow, small"] = SmallPushes(small, SMALL)
    say(f"{name}: filling")
    fill(found, source, filling([WINDOW] * query.graph.n_streams, LARGE), LARGE)
    taken, _ = rounds(found, source, arrivals, LARGE, count, say)
    pairs = {
        "engine_vs_loop": ("engine", "loop"),
        "arrow_vs_loop": ("arrow", "loop"),
        "arrow_vs_payload_loop": ("arrow", "payload loop"),
        "batch1000_vs_batch100000": ("engine, small", "engine"),
        "arrow_batch1000_vs_batch100000": ("arrow, small", "arrow"),
    }
    rows: list[Row] = [
        {"figure": f"{name}.{figure}", **speed(taken, one, other)}
        for figure, (one, other) in pairs.items()
        if one in taken and other in taken
    ]
    if name == "W1":
        rows.append({"figure": "state.bytes_per_live_tuple", "value": small.nbytes / small.live})
    return rows + [
        {"way": way, **spread([arrivals / one for one in own], "tuples_per_s")} for way, own in taken.items()
    ]


FIGURES = (
    Figure(
        "limit",
        "W1 is four streams on one key, W2 a chain of four streams over three attributes, W21 21 streams in which "
        "every arrival joins all the way; windows of 10 000 rows, full. `loop` is written by hand for the query, keys "
        "in as arrays and row ids out; `payload loop`, in C, also moves the values. `engine` takes and returns what "
        "the loop does; `arrow` is `Runtime.push` with its defaults. Ratios are speeds: above 1, the first is faster. "
        "CPU time of the thread, in pushes of 100 000; `small` in pushes of 1 000. Spark is `local[2]`, wall time; "
        "its identity is a `mapInArrow` that returns the same rows unchanged.",
        points,
        measure,
        tables=(NAMED, Table("Tuples/s", {"workload": "workload"}, {"tuples_per_s": "CPU time"}, across="way")),
        titles={
            "W1.engine_vs_loop": "W1: engine / loop",
            "W1.arrow_vs_loop": "W1: arrow / loop",
            "W1.arrow_vs_payload_loop": "W1: arrow / payload loop",
            "W1.batch1000_vs_batch100000": "W1: engine, pushes of 1 000 / pushes of 100 000",
            "W1.arrow_batch1000_vs_batch100000": "W1: arrow, pushes of 1 000 / pushes of 100 000",
            "W2.engine_vs_loop": "W2: engine / loop",
            "W2.arrow_vs_loop": "W2: arrow / loop",
            "W2.batch1000_vs_batch100000": "W2: engine, pushes of 1 000 / pushes of 100 000",
            "W2.arrow_batch1000_vs_batch100000": "W2: arrow, pushes of 1 000 / pushes of 100 000",
            "W21.engine_vs_loop": "W21: engine / loop",
            "W21.batch1000_vs_batch100000": "W21: engine, pushes of 1 000 / pushes of 100 000",
            "spark.rows_vs_identity": "Spark, rows transport: join / identity on the same rows",
            "spark.packed_vs_rows": "Spark: packed transport / rows transport",
            "state.bytes_per_live_tuple": "W1: bytes of state for each live tuple, payload included",
        },
        bars={
            "W1.engine_vs_loop": "≥ 0.5",
            "W1.arrow_vs_loop": "≥ 0.25",
            "W1.batch1000_vs_batch100000": "≥ 0.6",
            "W2.engine_vs_loop": "≥ 0.5",
            "W2.arrow_vs_loop": "≥ 0.25",
            "W2.batch1000_vs_batch100000": "≥ 0.6",
            "W21.engine_vs_loop": "≥ 0.4",
            "spark.rows_vs_identity": "≥ 0.5",
            "spark.packed_vs_rows": "≥ 2",
        },
    ),
)
