"""The figures `peers` and `peers-batch`: other engines on the same work in the same run.

Peers of this process take turns over one work. Peers in separate processes are measured one at a time, and then eddy
over the same arrivals. Results are counted and their values summed before a time is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from statistics import median

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import Taken, agree
from bench.peers import here
from bench.peers.apart import APART
from bench.peers.environment import Unavailable
from bench.peers.microbatch import duckdb_peers, polars_peers
from bench.peers.works import RANGE, ROWS, WALL, Peer, PeerTurn, PeerWork, results_of
from bench.ways.w1_loops import compiler
from eddy import EddyError

TURNS = 5
"""Turns of eddy after a peer in a separate process."""
PUSHES = 4
"""Least number of pushes of eddy before its clock starts; its memory grows until then."""
ALL, BATCHED = "this process", "micro-batch"
LIBRARIES: Mapping[str, Callable[[], list[Peer]]] = {"Polars": polars_peers, "DuckDB": duckdb_peers}


def contenders() -> tuple[list[Peer], list[Row]]:
    """Return the peers of this process, eddy first, and a row with the reason for each missing peer."""
    peers = here.peers()
    missing: list[Row] = []
    cc = compiler()
    try:
        if cc is None:
            raise EddyError("no compiler (put cc on the PATH, or name one in CC)")
        peers += here.c_peers(cc)
    except EddyError as failed:
        missing.append({"peer": here.C, "skipped": f"C: {failed}"})
    for name, made in LIBRARIES.items():
        if find_spec(name.lower()):
            peers += made()
        else:
            reason = f"{name.lower()}: not installed (pip install 'eddy-join[bench]')"
            missing.append({"peer": f"{name}, micro-batch", "skipped": reason})
    return peers, missing


def _work(point: Point) -> PeerWork:
    return PeerWork(point["windows"], *(point[name] for name in ("warm", "arrivals", "batch", "seed")))


def _in_turns(point: Point, peers: Sequence[Peer], say: Say) -> list[Row]:
    """Measure peers of this process; ratios are to the first peer, each by the clock of the peer."""
    work = _work(point)
    turns, results, totals = {}, {}, {}
    for peer in peers:
        say(f"{work.windows}, results of {peer.name}")
        results[peer.name], total = results_of(peer, work)
        if total is not None:
            totals[peer.name] = total
        turns[peer.name] = PeerTurn(peer, work)
    agree(f"W1 {work.windows}: results", results)
    agree(f"W1 {work.windows}: sums of the values", totals)
    taken: Taken = {name: [] for name in turns}
    first, on_wall = peers[0].name, []
    for turn in range(point["rounds"]):
        counts = {}
        for name, peer_turn in turns.items():
            say(f"{work.windows}, round {turn + 1}: {name}")
            seconds, counts[name] = peer_turn.run()
            taken[name].append(seconds)
        on_wall.append(turns[first].wall)
        agree(f"W1 {work.windows}: timed results", counts)
    rows: list[Row] = []
    for peer in peers:
        mine = on_wall if peer.clock == WALL else taken[first]
        ratio = median(base / other for base, other in zip(mine, taken[peer.name], strict=True))
        rates = [work.timed / seconds for seconds in taken[peer.name]]
        rows.append(_row(peer.name, rates, ratio, results[peer.name], peer.version, peer.threads, peer.clock))
    return rows


def _row(name: str, rates: Sequence[float], ratio: float, results: int, version: str, threads: int, clock: str) -> Row:
    return {
        "peer": name,
        **spread(rates, "tuples_per_s"),
        "vs_eddy": ratio,
        "eddy_faster": 1 / ratio,
        "results": results,
        "version": version,
        "threads": threads,
        "clock": clock,
    }


def _apart(point: Point, say: Say) -> list[Row]:
    """Measure a peer in a separate process, and eddy on the same arrivals."""
    work, threads = _work(point), point["threads_given"]
    name, measured = APART[point["peers"]]
    try:
        outcome = measured(work, point["rounds"], threads, say)
    except Unavailable as reason:
        return [{"peer": name, "skipped": str(reason)}]
    mine = here.eddy_peer()
    both = {mine.name: results_of(mine, work), name: (outcome.results, outcome.total)}
    agree(f"W1 {work.windows}: (results, sum of the values)", both)
    turn = PeerTurn(mine, PeerWork(work.windows, work.warm + PUSHES * work.batch, work.timed, work.batch, work.seed))
    taken = []
    for _ in range(TURNS):
        turn.run()
        taken.append(turn.wall)
    rates = [outcome.arrivals / seconds for seconds in outcome.seconds]
    ratio = median(rates) * median(taken) / work.timed
    return [_row(name, rates, ratio, outcome.results, outcome.version, threads, WALL)]


def _point(peers: str, windows: str, warm: int, arrivals: int, batch: int, rounds: int, threads: int) -> Point:
    sizes = {"warm": warm, "arrivals": arrivals, "batch": batch, "rounds": rounds, "threads_given": threads}
    return {"peers": peers, "windows": windows, **sizes, "seed": 1}


def points(full: bool) -> list[Point]:
    """Return both works for the peers of this process, and a point for each peer in a separate process."""
    timed, rounds = (1_000_000, 7) if full else (100_000, 3)
    spark = (100_000, 250_000, 50_000, 1) if full else (40_000, 20_000, 20_000, 1)
    flink = (50_000, 300_000, 50_000, 3) if full else (50_000, 100_000, 50_000, 1)
    pathway = (50_000, 100_000, 50_000, 3) if full else (50_000, 50_000, 50_000, 1)
    sizes = dict(zip(APART, (spark, spark, flink, flink, pathway), strict=True))
    return [
        *(_point(ALL, windows, 200_000, timed, 50_000, rounds, 1) for windows in (ROWS, RANGE)),
        *(_point(name, RANGE, *size, 2) for name, size in sizes.items()),
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure the peers of a point. Raises Mismatch if results differ."""
    if point["peers"] in APART:
        return _apart(point, say)
    peers, missing = contenders()
    if point["peers"] == BATCHED:
        missing = [row for row in missing if "micro-batch" in str(row["peer"])]
        peers = [peer for peer in peers if peer.name == here.EDDY or ("micro-batch" in peer.name and peer.threads == 1)]
    return [*_in_turns(point, [peer for peer in peers if point["windows"] in peer.windows], say), *missing]


def batch_points(full: bool) -> list[Point]:
    """Return the sizes of a push; with a million, the micro-batches would join 4 500 million combinations."""
    sizes, rounds = {1_000: 20_000, 10_000: 100_000, 100_000: 100_000}, 2
    if full:
        sizes, rounds = {100: 20_000, 1_000: 200_000, 10_000: 1_000_000, 100_000: 2_000_000}, 3
    return [
        _point(BATCHED, ROWS, batch * max(PUSHES, -(-50_000 // batch)), timed, batch, rounds, 1)
        for batch, timed in sizes.items()
    ]


ABOUT = (
    "W1: four streams joined on one key, uniform in 10 000, about one result an arrival. ROWS has windows of 10 000 "
    "rows, RANGE of 40 000 ticks, one an arrival. All peers of a work take the same arrivals, and the number of "
    "results and the sums of their values are compared. eddy takes Arrow batches and returns Arrow tables, with its "
    "defaults; the loops take arrays and write row ids, or with payload the key and all values. Peers of this process "
    "take turns, in pushes of the size in the table, with full windows; the clock is the CPU time of the thread, of "
    "the process for Polars and for DuckDB with one thread, and wall time for two. Spark, Flink and Pathway run apart "
    "with two threads, by wall time: R with S, then T, then U. Spark's time is that of a micro-batch, Parquet files in "
    "and out; Flink's and Pathway's is the difference of two runs, CSV files in and out. Fewer arrivals are timed for "
    "them."
)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "peers",
        ABOUT,
        points,
        measure,
        plots=[
            Plot(
                "Tuples a second of each peer",
                "peer",
                "tuples_per_s",
                "windows",
                y_label="tuples/s",
                log="y",
                kind="bars",
            )
        ],
        tables=[
            ReportTable(
                "Peers on the same work",
                {"windows": "windows", "peer": "peer"},
                {
                    "tuples_per_s": "tuples/s",
                    "eddy_faster": "eddy is × as fast",
                    "results": "results",
                    "arrivals": "arrivals timed",
                    "batch": "arrivals a push",
                    "threads": "threads",
                    "clock": "clock",
                    "version": "version",
                    "skipped": "not measured",
                },
            )
        ],
    ),
    Figure(
        "peers-batch",
        "W1 with windows of 10 000 rows by the size of a push: eddy with Arrow in and out, and Polars and DuckDB with "
        "one thread, which join the windows again for each push. CPU time.",
        batch_points,
        measure,
        plots=[
            Plot(
                "Tuples a second by arrivals a push",
                "batch",
                "tuples_per_s",
                "peer",
                x_label="arrivals a push",
                y_label="tuples/s",
                log="xy",
            )
        ],
        tables=[
            ReportTable("Tuples a second", {"batch": "arrivals a push"}, {"tuples_per_s": "CPU time"}, across="peer")
        ],
    ),
)
