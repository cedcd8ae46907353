"""Peers of W1: the peers of this process agree; a missing or failing peer gives a row with the reason."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.harness.figure import Figure, Point
from bench.harness.turns import Mismatch
from bench.peers import apart, comparison, environment, here
from bench.peers.apart import Measure, PeerOutcome, slope
from bench.peers.comparison import ALL, BATCHED, contenders, measure
from bench.peers.environment import Unavailable
from bench.peers.works import RANGE, ROWS, SPAN, STREAMS, Peer, PeerTurn, PeerWork, WorkStep, results_of
from bench.ways.w1_loops import SOURCE, compiler
from bench.workloads.sources import WINDOW, Order
from eddy import EddyError

WORKS = (ROWS, RANGE)
SEED = 7


def quiet(what: str) -> None:
    assert what


def point(peers: str, windows: str, **changed: int) -> Point:
    sizes = {"warm": 6_000, "arrivals": 6_000, "batch": 6_000, "rounds": 1, "threads_given": 2, "seed": SEED}
    return {"peers": peers, "windows": windows, **sizes, **changed}


def reference(work: PeerWork) -> tuple[int, int]:
    """Return (results, sum of all values): of each arrival, all combinations with rows that are in their windows."""
    kept: list[list[list[tuple[int, int]]]] = [[[] for _ in range(10_000)] for _ in STREAMS]
    came = [0] * len(STREAMS)
    results = total = 0
    for value, (i, key) in enumerate(zip(work.order.tolist(), work.keys.tolist(), strict=True)):
        parts = []
        for j in range(len(STREAMS)):
            live = [(at, v) for at, v in kept[j][key] if at >= came[j] - WINDOW]
            if work.windows == RANGE:
                live = [(at, v) for at, v in kept[j][key] if value - v <= SPAN]
            parts.append([(came[i], value)] if j == i else live)
        for combination in product(*parts):
            results += 1
            total += sum(v for _, v in combination)
        kept[i][key].append((came[i], value))
        came[i] += 1
    return results, total


@cache
def work_of(windows: str) -> tuple[PeerWork, tuple[int, int]]:
    """Return a work long enough for rows to leave every window, with a shorter last step; and its results."""
    work = PeerWork(windows, 48_000, 6_500, 6_000, SEED)
    return work, reference(work)


@pytest.mark.parametrize(
    ("name", "windows"), [(peer.name, windows) for peer in contenders()[0] for windows in peer.windows]
)
def test_every_peer_of_this_process_has_the_results_of_a_nested_loop(name: str, windows: str) -> None:
    work, expected = work_of(windows)
    results, total = results_of(next(peer for peer in contenders()[0] if peer.name == name), work)
    assert results == expected[0]
    assert total == (None if name in ("eddy, counting", "eddy, engine") else expected[1])


def test_the_most_that_a_window_has_is_counted() -> None:
    work = PeerWork(RANGE, 42_000, 1_000, 1_000, SEED)
    most = max(
        int((work.order[max(0, last - SPAN) : last + 1] == i).sum())
        for last in range(work.arrivals - 2_500, work.arrivals)
        for i in range(len(STREAMS))
    )
    assert work.most_live >= most >= 0.9 * WINDOW
    assert PeerWork(RANGE, 1_000, 0, 1_000, SEED).most_live == np.bincount(work.order[:1_000]).max()


def test_a_chain_ends_at_a_slot_that_another_row_took() -> None:
    # The ring has room for this work. The row of key 0 is within the span, but one ring of rows later another row
    # has its slot.
    work = PeerWork(RANGE, 60_000, 0, 60_000, SEED)
    cc = compiler()
    for peer in [*here.peers(), *(here.c_peers(cc) if cc else [])]:
        engine = peer.start(work)
        if not isinstance(engine, here.ByHand):
            continue
        ring = engine.loop.kept.link.shape[1]
        assert WINDOW < ring < SPAN
        order = np.zeros(ring + 2, np.uint8)
        order[-1] = 1
        keys = np.arange(ring + 2)
        keys[-1] = 0
        assert engine.count(engine.push((order, keys, np.arange(ring + 2), np.arange(ring + 2)))) == 0


def test_a_turn_counts_the_timed_arrivals_alone() -> None:
    peer, work = contenders()[0][0], PeerWork(ROWS, 12_000, 6_000, 6_000, SEED)
    engine, turn = peer.start(work), PeerTurn(peer, work)
    of_steps = [engine.count(engine.push(engine.prepare(step))) for step in work.steps]
    seconds, results = turn.run()
    assert seconds > 0
    assert results == of_steps[-1] > 0


def test_steps_before_the_clock_are_whole() -> None:
    with pytest.raises(EddyError, match="no whole number of steps"):
        PeerWork(ROWS, 1_500, 1_000, 1_000, SEED)


@pytest.mark.campaign(1)
@pytest.mark.parametrize("windows", WORKS)
def test_the_smallest_point_gives_a_row_for_each_peer(windows: str) -> None:
    rows = measure(point(ALL, windows), quiet)
    peers, missing = contenders()
    assert [row["peer"] for row in rows] == [
        *(peer.name for peer in peers if windows in peer.windows),
        *(row["peer"] for row in missing),
    ]
    measured = [row for row in rows if "skipped" not in row]
    assert len({row["results"] for row in measured}) == 1
    for row in measured:
        low, middle, high = (float(row[f"tuples_per_s{end}"] or 0) for end in ("_low", "", "_high"))
        assert 0 < low <= middle <= high
        assert float(row["vs_eddy"] or 0) > 0
    assert measured[0]["vs_eddy"] == 1.0


def test_the_size_of_a_push_is_a_point() -> None:
    rows = measure(point(BATCHED, ROWS, batch=2_000), quiet)
    # Polars has the threads that it got at its first import in this process: with more than one it takes no part.
    micro = [peer.name for peer in contenders()[0] if "micro-batch" in peer.name and peer.threads == 1]
    assert micro
    assert [row["peer"] for row in rows] == ["eddy", *micro]


def test_results_are_compared_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fewer(here.Arrow):
        @staticmethod
        def prepare(step: WorkStep) -> object:
            return _cut(here.Arrow.prepare(step))

    mine, short = here.eddy_peer(), Peer("fewer", partial(Fewer, count_only=True), "0")
    monkeypatch.setattr(comparison, "contenders", lambda: ([mine, short], []))
    monkeypatch.setattr(PeerTurn, "run", lambda self: pytest.fail("timed before the results were compared"))
    with pytest.raises(Mismatch, match="results"):
        measure(point(ALL, ROWS), quiet)


def _cut(given: tuple[dict[str, pa.RecordBatch], Order]) -> object:
    batches, order = given
    positions = np.flatnonzero(order == 0)
    half = len(positions) // 2
    return {**batches, "R": batches["R"].slice(0, half)}, np.delete(order, positions[half:])


def test_a_library_that_is_missing_gives_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "find_spec", lambda name: None)
    monkeypatch.setattr(comparison, "compiler", lambda: None)
    peers, missing = contenders()
    assert {peer.name for peer in peers} == {"eddy", "eddy, counting", "eddy, engine", here.NUMBA, "plain Python"}
    assert {str(row["peer"]): str(row["skipped"]).partition(":")[0] for row in missing} == {
        here.C: "C",
        "Polars, micro-batch": "polars",
        "DuckDB, micro-batch": "duckdb",
    }


def test_a_compiler_that_fails_gives_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "compiler", lambda: "/bin/false")
    rows = [row for row in contenders()[1] if row["peer"] == here.C]
    assert len(rows) == 1
    assert "/bin/false" in str(rows[0]["skipped"])


@pytest.mark.parametrize(("name", "key"), [("Flink", "flink"), ("Flink MultiJoin", "flink"), ("Pathway", "pathway")])
def test_a_peer_without_its_environment_gives_a_row_with_what_to_do(
    name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (row,) = measure(point(name, RANGE), quiet)
    assert row["skipped"] == f"{key}: not installed (eddy bench peers --install {key})"
    assert not list(tmp_path.iterdir())


def test_spark_that_is_not_installed_gives_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "find_spec", lambda name: None)
    (row,) = measure(point("Spark", RANGE), quiet)
    assert row["skipped"] == "spark: not installed (pip install 'eddy-join[spark]')"


def script(folder: Path, text: str) -> Path:
    file = folder / "script.py"
    file.write_text(text)
    return file


def run(file: Path, timeout: float = 60.0) -> list[dict[str, object]]:
    return environment.answers("engine", Path(sys.executable), str(file), ["3"], timeout)


def test_a_script_gives_its_lines_of_json_and_sees_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = "import json, os, sys\nprint('log')\n"
    told += "print(json.dumps({'n': sys.argv[1], 'path': os.environ.get('PYTHONPATH')}))\n"
    assert run(script(tmp_path, told)) == [{"n": "3", "path": None}]


def test_a_script_that_fails_says_with_what(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="engine: failed with status 1: ValueError: no such engine"):
        run(script(tmp_path, "raise ValueError('no such engine')"))


def test_a_script_that_says_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="engine: printed no figures"):
        run(script(tmp_path, "print('done')"))


def test_a_script_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    born = tmp_path / "born"
    child = f"import os, pathlib, time; pathlib.Path({str(born)!r}).write_text(str(os.getpid())); time.sleep(600)"
    text = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(600)\n"
    start = time.monotonic()
    with pytest.raises(Unavailable, match="not done after 5 s"):
        run(script(tmp_path, text), timeout=5.0)
    assert time.monotonic() - start < 60
    if born.exists():  # on a machine under load the child may not have started
        deadline = time.monotonic() + 30
        while _runs(int(born.read_text())) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs(int(born.read_text()))


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_environment_counts_once_pip_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[list[str]] = []
    monkeypatch.setattr(environment.venv, "create", lambda place, **options: (place / "bin").mkdir())
    monkeypatch.setattr(environment.subprocess, "run", lambda command, **options: asked.append(command))
    assert environment.install("flink", quiet) == environment.folder("flink")
    assert asked[0][1:4] == ["-I", "-m", "pip"]
    assert asked[0][-1].startswith("apache-flink==")
    assert environment.python_of("flink") == environment.folder("flink") / "bin" / "python"
    with pytest.raises(Unavailable):
        environment.python_of("pathway")


def test_an_install_that_fails_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: no matching distribution\n")

    monkeypatch.setattr(environment.venv, "create", lambda place, **options: (place / "bin").mkdir())
    monkeypatch.setattr(environment.subprocess, "run", fail)
    with pytest.raises(EddyError, match="flink could not be installed: ERROR: no matching distribution"):
        environment.install("flink", quiet)
    assert not environment.folder("flink").exists()
    with pytest.raises(EddyError, match="no peer 'storm'"):
        environment.install("storm", quiet)


def told(file: Path, seconds: float) -> dict[str, object]:
    lines = file.read_text().splitlines()
    return {"seconds": seconds, "results": len(lines), "total": 0, "version": "1"}


def test_the_slope_is_of_the_arrivals_after_those_before_the_clock() -> None:
    work = PeerWork(RANGE, 100, 50, 50, SEED)

    def runs(files: list[Path]) -> list[dict[str, object]]:
        small, large, *again = files
        assert again == [small, large]
        assert small.read_text() == large.read_text()[: len(small.read_text())]
        return [told(small, 1.0), told(large, 3.0), told(small, 1.5), told(large, 2.5)]

    # The median of the two shorter runs is subtracted.
    assert slope("engine", work, 2, runs) == PeerOutcome([1.75, 1.25], 50, 150, 0, "1")


def test_a_slope_that_is_none_is_told() -> None:
    with pytest.raises(Unavailable, match="took no longer"):
        slope("engine", PeerWork(RANGE, 100, 50, 50, SEED), 1, lambda files: [told(files[0], 2), told(files[1], 1)])


def test_a_peer_apart_is_compared_with_eddy_before_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    work = comparison._work(point("Flink", RANGE))
    results, total = results_of(contenders()[0][0], work)

    def made(results: int) -> dict[str, tuple[str, Measure]]:
        return {"Flink": ("Flink SQL", lambda *_: PeerOutcome([0.5, 1.0, 2.0], work.timed, results, total or 0, "9"))}

    monkeypatch.setattr(comparison, "APART", made(results))
    (row,) = measure(point("Flink", RANGE), quiet)
    assert row["tuples_per_s"] == work.timed
    assert (row["results"], row["version"], row["clock"]) == (results, "9", "wall")
    assert 0 < float(row["vs_eddy"] or 0) < 1 < float(row["eddy_faster"] or 0)
    monkeypatch.setattr(comparison, "APART", made(results + 1))
    with pytest.raises(Mismatch):
        measure(point("Flink", RANGE), quiet)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("figure", comparison.FIGURES, ids=lambda figure: figure.name)
def test_points_are_distinct_and_whole(figure: Figure, full: bool) -> None:
    made = figure.points(full)
    assert len({tuple(sorted(options.items())) for options in made}) == len(made)
    for made_point in made:
        # Windows are full when the clock starts.
        assert int(made_point["warm"]) >= SPAN
        assert comparison._work(made_point).timed % int(made_point["batch"]) == 0


def test_scripts_import_nothing_of_ours() -> None:
    for file in sorted(environment.SCRIPTS.glob("*.py")):
        lines = [line for line in file.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert lines
        assert not [line for line in lines if line.split()[1].partition(".")[0] in ("bench", "eddy", "jisc", "stairs")]
    assert SOURCE.exists()
