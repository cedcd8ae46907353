"""`eddy bench limit`: the engine compared with hand-written loops, and the transports of Spark; `eddy bench guard`.

`guard` measures a few ratios in half a minute, which show whether a change made the engine slower. Ratios of times that
are taken in turns in one process are similar on another machine, so they can be compared with the file of an earlier
run on another machine.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from bench.first_use import first_uses
from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say, spread
from bench.harness.turns import Taken, Work, speed, take_turns
from bench.ways.runners import JOINS, EngineRunner, LoopRunner, Runner, RuntimeRunner, SmallPushes, fill, rounds
from bench.ways.strategies import PUSH, StrategyEngine
from bench.ways.w1_loops import PayloadLoop, compiler
from bench.workloads.sources import MANY_KEYS, WINDOW, Turnover, filling, permutations, workload

LARGE, SMALL = 100_000, 1_000
"""Arrivals of a push."""
SPARK, FIRST_USE = "Spark", "first use"
RATIOS = {
    "engine_vs_loop": ("engine", "loop"),
    "arrow_vs_loop": ("arrow", "loop"),
    "arrow_vs_payload_loop": ("arrow", "payload loop"),
    "batch1000_vs_batch100000": ("engine, small", "engine"),
    "arrow_batch1000_vs_batch100000": ("arrow, small", "arrow"),
}
"""The ways that are compared on each workload."""
BARS = {
    "engine_vs_loop": {"W1": "≥ 0.9", "W1R": "≥ 0.8", "new_keys": "≥ 0.25", "W2": "≥ 0.85", "W21": "≥ 0.4"},
    "arrow_vs_loop": {"W1": "≥ 0.65", "W1R": "≥ 0.6", "W2": "≥ 0.65"},
    "arrow_vs_payload_loop": {"W1": "≥ 1.1"},
    "arrow_batch1000_vs_batch100000": {"W1": "≥ 0.6"},
    "batch1000_vs_batch100000": {"W1": "≥ 0.6", "W2": "≥ 0.6"},
}
BY_PUSH = "{}, pushes of 1 000 / pushes of 100 000"
TITLES = {
    f"{name}.{figure}": f"{name}: {BY_PUSH.format(other) if 'small' in way else f'{way} / {other}'}"
    for name in JOINS
    for figure, (way, other) in RATIOS.items()
}
GUARDED = {
    **{name: TITLES[name] for name in ("W1.engine_vs_loop", "W1.arrow_vs_loop", "W2.engine_vs_loop")},
    "W21.jisc_vs_mjoin": "20 joins on one key: all states stored / none stored",
    "W21.transition_vs_jisc": "20 joins, all states stored: a transition of all states each turnover / no transition",
}
"""Ratios of `guard`, and their descriptions."""


def points(full: bool) -> list[Point]:
    """Return a point for each workload, one for the transports of Spark and one for the first use of the library."""
    sizes = dict.fromkeys(JOINS, (500_000, 7) if full else (100_000, 2))
    sizes[SPARK] = (10_000_000, 3) if full else (1_000_000, 1)
    sizes[FIRST_USE] = (0, 3) if full else (0, 1)
    return [{"workload": name, "arrivals": n, "rounds": count, "seed": 1} for name, (n, count) in sizes.items()]


def ways(name: str, push: int) -> dict[str, Runner]:
    """Return the loop, the engine, and `Runtime.push` with its defaults (not for W21), on a workload."""
    query, keys = workload(name).query, MANY_KEYS if name == "new_keys" else WINDOW
    span = query.graph.windows[0].size if name == "W1R" else 0
    runners: dict[str, Runner] = {"loop": LoopRunner(JOINS[name], query.graph.n_streams, WINDOW, keys, span)}
    runners["engine"] = EngineRunner(query)
    if name != "W21":
        runners["arrow"] = RuntimeRunner(query)
    cc = compiler()
    if name == "W1" and cc:
        runners["payload loop"] = PayloadLoop(cc, WINDOW, WINDOW.bit_length(), WINDOW, 4 * push)
    return runners


def measure(point: Point, say: Say) -> list[Row]:
    """Return ratios and amounts by name, and the throughput of each way."""
    name, arrivals, count = point["workload"], point["arrivals"], point["rounds"]
    if name == SPARK:
        if not find_spec("pyspark"):
            return [{"skipped": "the transports of Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
        from bench.spark import spark_ratios

        return spark_ratios(arrivals, count, point["seed"], say)
    if name == FIRST_USE:
        return first_uses(count, say)
    runners, source = ways(name, LARGE), workload(name, seed=point["seed"])
    query = source.query
    runners["engine, small"] = SmallPushes(EngineRunner(query), SMALL)
    small = RuntimeRunner(query)
    if "arrow" in runners:
        runners["arrow, small"] = SmallPushes(small, SMALL)
    say(f"{name}: filling")
    fill(runners, source, filling([WINDOW] * query.graph.n_streams, LARGE), LARGE)
    taken, _ = rounds(runners, source, arrivals, LARGE, count, say)
    rows: list[Row] = [
        {"figure": f"{name}.{figure}", **speed(taken, way, other)}
        for figure, (way, other) in RATIOS.items()
        if way in taken and other in taken
    ]
    if name == "W1":
        rows.append({"figure": "state.bytes_per_live_tuple", "value": small.nbytes / small.live})
    return rows + [
        {"way": way, **spread([arrivals / seconds for seconds in times], "tuples_per_s")}
        for way, times in taken.items()
    ]


def _strategies(turnover: Turnover) -> dict[str, Work]:
    pushes = turnover.cut(PUSH).columns
    engines = {name: StrategyEngine(turnover, name) for name in ("mjoin", "jisc")}
    moving = StrategyEngine(turnover, "jisc")
    plans = [turnover.reversed_plan, turnover.plan]
    for engine in (*engines.values(), moving):
        engine.turn(pushes)

    def transition() -> tuple[float, int]:
        moving.transition(plans[0])
        plans.reverse()
        return moving.turn(pushes)

    return {**{name: partial(engine.turn, pushes) for name, engine in engines.items()}, "transition": transition}


def measure_guarded(point: Point, say: Say) -> list[Row]:
    """Return the ratios of `guard`."""
    count, share = point["rounds"], point["share"]
    taken: dict[str, Taken] = {}
    for name in ("W1", "W2"):
        say(name)
        push = LARGE // share
        runners, source = ways(name, push), workload(name)
        fill(runners, source, filling([WINDOW] * 4, push), push)
        taken[name], _ = rounds(runners, source, 1_000_000 // share, push, count, say)
    taken["W21"] = take_turns("W21", _strategies(permutations(21, WINDOW // share)), count, say)
    rows: list[Row] = []
    for figure in GUARDED:
        name, _, pair = figure.partition(".")
        way, _, other = pair.partition("_vs_")
        rows.append({"figure": f"guard.{figure}", **speed(taken[name], way, other)})
    return rows


FIGURES = (
    Figure(
        "limit",
        "W1 is four streams on one key, W1R the same with event times, RANGE windows and lateness, new_keys the same "
        "with 10⁶ keys, W2 a chain of four streams over three attributes, W21 21 streams in which every arrival joins "
        "all the way; windows of 10 000 rows, full. `loop` is written by hand for the query, keys "
        "in as arrays and row ids out; `payload loop`, in C, also moves the values. `engine` takes and returns what "
        "the loop does; `arrow` is `Runtime.push` with its defaults. Ratios are speeds: above 1, the first is faster. "
        "CPU time of the thread, in pushes of 100 000; `small` in pushes of 1 000. Spark is `local[2]`, wall time; "
        "its identity is a `mapInArrow` that returns the same rows unchanged.",
        points,
        measure,
        tables=(NAMED, ReportTable("Tuples/s", {"workload": "workload"}, {"tuples_per_s": "CPU time"}, across="way")),
        titles={
            **TITLES,
            "spark.rows_vs_identity": "Spark, rows transport: join / identity on the same rows",
            "spark.packed_vs_rows": "Spark: packed transport / rows transport",
            "first_use_s": "Start of a process to the first result of the README's query, nothing compiled, seconds",
            "first_use_wheel_s": "The same with the kernels that a wheel ships, seconds",
            "state.bytes_per_live_tuple": "W1: bytes of state for each live tuple, payload included",
        },
        bars={
            **{f"{name}.{figure}": bar for figure, bars in BARS.items() for name, bar in bars.items()},
            "first_use_s": "≤ 15",
            "first_use_wheel_s": "≤ 2",
            "spark.rows_vs_identity": "≥ 0.5",
            "spark.packed_vs_rows": "≥ 2",
        },
    ),
    Figure(
        "guard",
        "Speeds, in turns in one process: the engine and Arrow in and out against the loops of `limit`, and "
        "strategies against each other. `eddy bench --compare` compares two files of them.",
        lambda full: [{"rounds": 7, "share": 2}],
        measure_guarded,
        tables=(NAMED,),
        titles={f"guard.{name}": title for name, title in GUARDED.items()},
    ),
)
