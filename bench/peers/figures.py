"""The figures `peers` and `peers-batch`: other engines on the same work in the same run.

Peers of this process take turns over one work, so what disturbs the machine disturbs all; those that run apart are
measured one at a time, with eddy over the very same arrivals after them. Results are counted and their values summed up
before a time is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from statistics import median

from bench.harness.figure import Figure, Grid, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.measure import agree
from bench.peers import loops, ours, plain
from bench.peers.apart import Apart
from bench.peers.environment import Unavailable
from bench.peers.flink import FLINK
from bench.peers.pathway import PATHWAY
from bench.peers.spark import SPARK
from bench.peers.turns import WALL, Peer, Turn, found
from bench.peers.works import RANGE, ROWS, Work
from eddy import EddyError

BAR = 0.6
"""What of the speed of the hand-written loops eddy should have, adaptive and with Arrow out."""
LOOPS = (loops.NUMBA, loops.C)
WITHOUT_VALUES = ("eddy, counting", "eddy, engine")
"""eddy as well, but not as its users have it: told beside it, not held against it."""
APART: Mapping[str, Apart] = {"Spark": SPARK, "Flink": FLINK, "Pathway": PATHWAY}
TURNS = 5
"""Turns of eddy beside a peer that runs apart."""
PUSHES = 4
"""Before eddy's clock runs, at the least: until then its memory grows to what pushes of a size take."""
ALL, BATCHED = "this process", "micro-batch"


def _missing(peer: str, reason: str) -> Row:
    return {"peer": peer, "skipped": reason}


def _polars() -> list[Peer]:
    from bench.peers.polars_microbatch import polars_peer

    return [polars_peer()]


def _duckdb() -> list[Peer]:
    from bench.peers.duckdb_microbatch import duckdb_peer

    return [duckdb_peer(1), duckdb_peer(2)]


LIBRARIES: Mapping[str, Callable[[], list[Peer]]] = {"Polars": _polars, "DuckDB": _duckdb}


def contenders() -> tuple[list[Peer], list[Row]]:
    """Return the peers of this process, eddy first, and a row for each that is not to be had, with the reason."""
    here, missing = [*ours.peers(), loops.numba_peer()], []
    cc = loops.compiler()
    if cc is None:
        missing.append(_missing(loops.C, "C: no compiler (put cc on the PATH, or name one in CC)"))
    else:
        try:
            here.append(loops.c_peer(cc))
        except EddyError as failed:
            missing.append(_missing(loops.C, f"C: {failed}"))
    here.append(plain.plain_peer())
    for name, made in LIBRARIES.items():
        if find_spec(name.lower()):
            here += made()
        else:
            reason = f"{name.lower()}: not installed (pip install 'eddy-join[peers]')"
            missing.append(_missing(f"{name}, micro-batch", reason))
    return here, missing


def _work(point: Point) -> Work:
    windows, sizes = str(point["windows"]), [int(point[name]) for name in ("warm", "arrivals", "batch", "seed")]
    return Work(windows, *sizes)


def _in_turns(point: Point, peers: Sequence[Peer], say: Say) -> list[Row]:
    """Measure peers of this process; the first is the one that the others are held against, each by its own clock."""
    work = _work(point)
    turns, results, totals = {}, {}, {}
    for peer in peers:
        say(f"{work.windows}, results of {peer.name}")
        results[peer.name], total = found(peer, work)
        if total is not None:
            totals[peer.name] = total
        turns[peer.name] = Turn(peer, work)
    agree(f"W1 {work.windows}: results", results)
    agree(f"W1 {work.windows}: sums of the values", totals)
    taken: dict[str, list[float]] = {name: [] for name in turns}
    first = turns[peers[0].name]
    on_wall = []
    for turn in range(int(point["rounds"])):
        for name, one in turns.items():
            say(f"{work.windows}, round {turn + 1}: {name}")
            taken[name].append(one.seconds())
        on_wall.append(first.wall)
        agree(f"W1 {work.windows}: timed results", {name: one.results for name, one in turns.items()})
    mine = {peer.name: on_wall if peer.clock == WALL else taken[first.peer.name] for peer in peers}
    return [
        {
            "peer": peer.name,
            **spread([work.timed / seconds for seconds in taken[peer.name]], "tuples_per_s"),
            "vs_eddy": median(one / other for one, other in zip(mine[peer.name], taken[peer.name], strict=True)),
            "results": results[peer.name],
            "version": peer.version,
            "threads": peer.threads,
            "clock": peer.clock,
        }
        for peer in peers
    ]


def _beside(point: Point, apart: Apart, say: Say) -> list[Row]:
    """Measure a peer that runs apart, and eddy on the same arrivals."""
    work, threads = _work(point), int(point["threads_given"])
    try:
        outcome = apart.measure(work, int(point["rounds"]), threads, say)
    except Unavailable as reason:
        return [_missing(apart.name, str(reason))]
    mine = ours.peers()[0]
    both = {mine.name: found(mine, work), apart.name: (outcome.results, outcome.total)}
    agree(f"W1 {work.windows}: (results, sum of the values)", both)
    warm = work.warm + PUSHES * work.batch
    turn = Turn(mine, Work(work.windows, warm, work.timed, work.batch, work.seed))
    taken = []
    for _ in range(TURNS):
        turn.seconds()
        taken.append(turn.wall)
    rate = work.timed / median(taken)
    rates = [outcome.arrivals / seconds for seconds in outcome.seconds]
    return [
        {
            "peer": apart.name,
            **spread(rates, "tuples_per_s"),
            "vs_eddy": median(rates) / rate,
            "results": outcome.results,
            "version": outcome.version,
            "threads": threads,
            "clock": WALL,
        }
    ]


def _point(peers: str, windows: str, warm: int, arrivals: int, batch: int, rounds: int, threads: int) -> Point:
    return {
        "peers": peers,
        "windows": windows,
        "warm": warm,
        "arrivals": arrivals,
        "batch": batch,
        "rounds": rounds,
        "threads_given": threads,
        "seed": 1,
    }


def points(full: bool) -> list[Point]:
    """Return both works for the peers of this process, and one for each that runs apart."""
    if full:
        return [
            *(_point(ALL, windows, 200_000, 1_000_000, 50_000, 7, 1) for windows in (ROWS, RANGE)),
            _point("Spark", RANGE, 100_000, 250_000, 50_000, 1, 2),
            _point("Flink", RANGE, 50_000, 300_000, 50_000, 3, 2),
            _point("Pathway", RANGE, 50_000, 100_000, 50_000, 3, 2),
        ]
    return [
        *(_point(ALL, windows, 200_000, 100_000, 50_000, 3, 1) for windows in (ROWS, RANGE)),
        _point("Spark", RANGE, 40_000, 20_000, 20_000, 1, 2),
        _point("Flink", RANGE, 50_000, 100_000, 50_000, 1, 2),
        _point("Pathway", RANGE, 50_000, 50_000, 50_000, 1, 2),
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure the peers of a point. Raises `bench.measure.Mismatch` if results differ."""
    if point["peers"] != ALL:
        return _beside(point, APART[str(point["peers"])], say)
    here, missing = contenders()
    return [*_in_turns(point, [peer for peer in here if point["windows"] in peer.windows], say), *missing]


def batch_points(full: bool) -> list[Point]:
    """Return the sizes of a push."""
    if full:
        # Of a million, the micro-batches would join 4 500 million combinations before they look at times.
        sizes = {100: 20_000, 1_000: 200_000, 10_000: 1_000_000, 100_000: 2_000_000}
        rounds = 3
    else:
        sizes, rounds = {1_000: 20_000, 10_000: 100_000, 100_000: 100_000}, 2
    return [
        _point(BATCHED, ROWS, batch * max(PUSHES, -(-50_000 // batch)), timed, batch, rounds, 1)
        for batch, timed in sizes.items()
    ]


def measure_batch(point: Point, say: Say) -> list[Row]:
    """Measure eddy and the micro-batches of one thread. Raises `bench.measure.Mismatch` if results differ."""
    here, missing = contenders()
    batched = [peer for peer in here if peer.name == ours.EDDY or ("micro-batch" in peer.name and peer.threads == 1)]
    return [*_in_turns(point, batched, say), *(row for row in missing if "micro-batch" in str(row["peer"]))]


def _rates(rows: Sequence[Row], windows: str) -> dict[str, float]:
    """Return the speed of each peer of a work in terms of eddy's."""
    return {
        str(row["peer"]): float(row["vs_eddy"] or 0)
        for row in rows
        if row["windows"] == windows and row.get("vs_eddy") and row["peer"] not in (ours.EDDY, *WITHOUT_VALUES)
    }


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say how eddy stands to each peer, whether it reaches the bar, what is missing, and which versions ran."""
    said = []
    for windows in (ROWS, RANGE):
        rates = _rates(rows, windows)
        others = {name: rate for name, rate in rates.items() if name not in LOOPS}
        for own in rows:
            if own["windows"] == windows and own["peer"] == ours.EDDY and own.get("tuples_per_s"):
                speed = float(own["tuples_per_s"] or 0)
                said.append(f"W1 {windows}: eddy takes {speed:,.0f} tuples/s, Arrow in and out.")
        if others:
            ranked = sorted(others.items(), key=lambda one: -one[1])
            told = "; ".join(f"{name}: × {_times(1 / rate)}" for name, rate in ranked)
            said.append(f"W1 {windows}: how many times as fast as each peer eddy is: {told}.")
            ahead = [name for name, rate in others.items() if rate >= 1]
            if ahead:
                said.append(f"W1 {windows}: eddy is behind {'; '.join(ahead)}, beside the hand-written loops.")
            else:
                said.append(f"W1 {windows}: eddy is ahead of all peers measured but the hand-written loops.")
        for name in LOOPS:
            if name in rates:
                share = 1 / rates[name]
                verdict = "reaches" if share >= BAR else "does not reach"
                said.append(
                    f"W1 {windows}: eddy, adaptive and with Arrow out, has {share:.2f} of the speed of {name},"
                    f" which {verdict} the {BAR} wanted. The loop writes row ids of one fixed plan and no values."
                )
    missing = list(dict.fromkeys(str(row["skipped"]) for row in rows if row.get("skipped")))
    if missing:
        said.append(f"Not measured: {'; '.join(missing)}.")
    versions = {
        str(row["peer"]): str(row["version"])
        for row in rows
        if row.get("version") and row["peer"] not in WITHOUT_VALUES
    }
    if versions:
        said.append(f"Versions: {'; '.join(f'{name}: {version}' for name, version in versions.items())}.")
    return said


def batch_remarks(rows: Sequence[Row]) -> list[str]:
    """Say at which sizes eddy is ahead, and by how much."""
    said = []
    for name in dict.fromkeys(str(row["peer"]) for row in rows if row["peer"] != ours.EDDY and row.get("vs_eddy")):
        own = sorted((int(row["batch"] or 0), 1 / float(row["vs_eddy"] or 1)) for row in rows if row["peer"] == name)
        told = ", ".join(f"× {_times(ratio)} at {batch:,}" for batch, ratio in own)
        behind = [f"{batch:,}" for batch, ratio in own if ratio < 1]
        verdict = f"behind at {', '.join(behind)}" if behind else "ahead at every size measured"
        said.append(f"How many times as fast as {name} eddy is: {told}; it is {verdict}.")
    missing = list(dict.fromkeys(str(row["skipped"]) for row in rows if row.get("skipped")))
    if missing:
        said.append(f"Not measured: {'; '.join(missing)}.")
    return said


ABOUT = (
    "W1: four streams joined on one key, keys uniform in 10 000, about one result an arrival, in two works. ROWS has"
    " windows of the newest 10 000 rows of each stream; RANGE has windows of 40 000 ticks, one an arrival, for engines"
    " that know windows of time only. All peers of a work get the same arrivals; before a time is told, the number of"
    " results and the sum of all values in them are compared (the number alone with the two that have no values)."
    " eddy takes Arrow batches and returns Arrow tables with the key and all values, with the policy that it has by"
    " default, which adapts; beside it stand eddy counting only, and its engine with keys in arrays and row ids out."
    " The loops, in numba and in C (cc -O3 -march=native, compiled for the run), take arrays and write row ids."
    " Polars and DuckDB join windows and new rows anew for each micro-batch; each row carries the tick from which on it"
    " is in its window no more, and a condition on it makes their results those of a stream. Plain Python keeps a"
    " dictionary of deques a stream. These run in one process in turns, in pushes of the size in the table; the clock"
    " covers the pushes, once windows are full. It is the CPU time of the thread, for Polars and DuckDB with one thread"
    " that of the process since Polars works in a thread of its pool, and wall time for DuckDB with two threads."
    " Spark, Flink and Pathway run RANGE in processes of their own with two threads, and time is wall time. Their"
    " joins take two streams and one time: R with S, then T, then U, each within the span of R, and conditions were"
    " added that keep every other pair within the span of each other too, which makes the results equal. Spark: the"
    " time of the micro-batch as Spark gives it, Parquet files in and out, after those that fill the windows. Flink: a"
    " CSV file in and CSV files out, one job for the arrivals that fill the windows and one for all; the difference is"
    " what is told, so that neither submitting a job nor filling windows counts, and a job before them lets the"
    " JVM compile. Pathway: a Python connector that commits after each push and a CSV file out, and the difference of"
    " two runs as well. Each of the three does fewer arrivals than the peers of this process; eddy does the same ones"
    " after it, to compare results, and as many with four pushes more before the clock, for the ratio. A ratio to a"
    " peer that is timed by the wall is one of wall times."
)

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="peers",
        title="W1 in other engines",
        about=ABOUT,
        points=points,
        measure=measure,
        plots=(
            Plot(
                title="Tuples a second of each peer",
                x="peer",
                y="tuples_per_s",
                by="windows",
                y_label="tuples/s",
                log_y=True,
                spread=("tuples_per_s_low", "tuples_per_s_high"),
                kind="bars",
            ),
        ),
        grids=(
            Grid(
                title="Peers on the same work",
                rows={"windows": "windows", "peer": "peer"},
                value={
                    "tuples_per_s": "tuples/s",
                    "vs_eddy": "speed in terms of eddy's",
                    "results": "results",
                    "arrivals": "arrivals timed",
                    "batch": "arrivals a push",
                    "threads": "threads",
                    "clock": "clock",
                    "version": "version",
                    "skipped": "not measured",
                },
            ),
        ),
        remarks=remarks,
    ),
    Figure(
        name="peers-batch",
        title="The size of a push",
        about=(
            "W1 with windows of 10 000 rows, in pushes of so many arrivals: eddy with Arrow in and out, and Polars and"
            " DuckDB with one thread each, which join all that is in the windows anew for each. CPU time, in turns,"
            " once windows are full; results and the sums of their values are compared before. Fewer arrivals are timed"
            " for small pushes; the number is in the data."
        ),
        points=batch_points,
        measure=measure_batch,
        plots=(
            Plot(
                title="Tuples a second by arrivals a push",
                x="batch",
                y="tuples_per_s",
                by="peer",
                x_label="arrivals a push",
                y_label="tuples/s",
                log_x=True,
                log_y=True,
                spread=("tuples_per_s_low", "tuples_per_s_high"),
            ),
        ),
        grids=(
            Grid(
                title="Tuples a second by arrivals a push",
                rows={"batch": "arrivals a push"},
                value={"tuples_per_s": "tuples/s"},
                across="peer",
            ),
        ),
        remarks=batch_remarks,
    ),
)
