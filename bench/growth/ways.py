"""One point of a figure: the ways to do a join side by side, on the arrivals that the point describes."""

from __future__ import annotations

from bench.growth.runners import FOUR, ONE_KEY, LoopRunner, Runner, RuntimeRunner
from bench.growth.sources import Drawn, Permuted, Source, filling, one_key
from bench.growth.turns import fill, rounds
from bench.harness.figure import Point, Row, Say
from bench.harness.spread import spread

DEFAULT, MJOIN, JISC, LOOP = "default", "mjoin", "jisc", "loop"
WAYS = (DEFAULT, MJOIN, JISC, LOOP)
COMMON: Point = {"draw": "drawn", "skew": 0.0, "ways": " ".join(WAYS), "settle": 0, "seed": 7}
"""What the points of figures have in common, if they do not say otherwise."""
WARM = 1_000
"""The least push by which windows are filled: what is in them is the same however it came."""


def runners(point: Point) -> dict[str, Runner]:
    """Return the ways of a point: `ways` names them, by spaces.

    default   a Runtime as users have it: strategy "eddy", policy "cost"
    mjoin     nothing stored, one plan, no statistics
    jisc      all inner states of the plan stored, no statistics
    loop      bench/limit_kernels.py, row ids out
    """
    streams, window = int(point["streams"]), int(point["window"])
    query = one_key(streams, window)
    made: dict[str, Runner] = {}
    for way in str(point["ways"]).split():
        if way == LOOP:
            made[way] = LoopRunner(FOUR if streams == 4 else ONE_KEY, streams, window, int(point["keys"]))
        elif way == DEFAULT:
            made[way] = RuntimeRunner(query)
        else:
            made[way] = RuntimeRunner(query, strategy=way, statistics=False)
    return made


def source(point: Point) -> Source:
    """Return the arrivals of a point: `draw` is "permuted" or "drawn", of `keys` keys, the latter with a `skew`."""
    query = one_key(int(point["streams"]), int(point["window"]))
    keys, seed = int(point["keys"]), int(point["seed"])
    if point["draw"] == "permuted":
        return Permuted(query, keys, seed)
    return Drawn(query, keys, seed, float(point["skew"]))


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each way: CPU time per arrival and its inverse, bytes, results per arrival.

    The clock runs once windows are full, and `settle` arrivals more were taken.
    deciding_ns is what of the time went into samples and decisions, 0 for a way that takes none; state_bytes are those
    of `bytes` that are no room for a push or its results. Raises Mismatch if two ways differ in the results of a push.
    """
    streams, window, push = int(point["streams"]), int(point["window"]), int(point["push"])
    arrivals, count = int(point["arrivals"]), int(point["rounds"])
    ways, arriving = runners(point), source(point)
    say(f"filling {streams} windows of {window:,}")
    warm = max(push, WARM)
    fill(ways, arriving, filling([window] * streams, warm) + int(point["settle"]), warm)
    began = {way: decided(runner) for way, runner in ways.items()}
    taken, results = rounds(ways, arriving, arrivals, push, count, say)
    live = next(runner.live for runner in ways.values() if isinstance(runner, RuntimeRunner))
    rows: list[Row] = []
    for way, runner in ways.items():
        rows.append(
            {
                "way": way,
                **spread([1e9 * seconds / arrivals for seconds in taken[way]], "ns"),
                **spread([arrivals / seconds for seconds in taken[way]], "tuples_per_s"),
                # The round that is not counted is in it as well.
                "deciding_ns": 1e9 * (decided(runner) - began[way]) / (arrivals * (count + 1)),
                "bytes": runner.nbytes,
                "live": live,
                "bytes_per_tuple": runner.nbytes / live,
                "state_bytes": runner.state_bytes,
                "state_per_tuple": runner.state_bytes / live,
                "results_per_arrival": results / (arrivals * count),
            }
        )
    return rows


def decided(runner: Runner) -> float:
    """Return the CPU seconds that a way has spent on samples and decisions."""
    return runner.deciding if isinstance(runner, RuntimeRunner) else 0.0


def point(**given: str | float) -> Point:
    """Return a point that `measure` takes: COMMON and what is given."""
    return {**COMMON, **given}
