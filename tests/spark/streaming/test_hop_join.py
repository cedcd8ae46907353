"""The tasks of a join in hops without Spark: threads that meet, and send rows to each other over real sockets."""

from __future__ import annotations

import pickle
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddy import Query, Range, Stream
from eddy.spark.hops.hops import own_hops
from eddy.spark.hops.windows import GrowingWindow, SortedWindow
from eddy.spark.options import StreamingOptions
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.partitioning.pieces import Splitter
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver import hop_works as hop_works_module
from eddy.spark.streaming.driver.hop_works import hop_works
from eddy.spark.streaming.driver.join_tasks import rows_by_group
from eddy.spark.streaming.driver.meeting import Meetings
from eddy.spark.streaming.driver.watermarks import Watermarks, make_rules
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import GroupState, ManifestLink
from eddy.spark.streaming.state.segments import Segment, SegmentWriter
from eddy.spark.streaming.worker import node
from eddy.spark.streaming.worker.engines import Engines, JoinStart
from eddy.spark.streaming.worker.hop_join import HopJoinTask
from eddy.spark.streaming.worker.join_stage import Orders, Said
from eddy.spark.streaming.worker.log_stage import LogReport
from eddy.spark.streaming.worker.meeting import TurnedAwayError
from eddy.spark.streaming.worker.peers import ROWS, Peers
from eddy.spark.streaming.worker.tasks import BatchTask, PartitionReport
from stairs.errors import CapacityError
from stairs.graph import FOREVER
from tests.bench.simulated.placement.test_simulation import drawn_plan
from tests.eddy.placement.chains import Batches, batches, chain, results, rows, star

KEY = b"a secret of a test"
LATENESS = 6


class HopRun:
    """A streaming join in hops: its log, its workers as objects of this process, and the state that manifests keep."""

    def __init__(self, root: Path, query: Query, tasks: int, draw: random.Random) -> None:
        self.root, self.draw, self.tasks = root, draw, tasks
        self.job: Job = make_job(query, partitions=4)
        self.tree = SplitTree(self.job.shares.partitions, len(self.job.shares.counts))
        self.locations = Locations(root, "test", root / "local")
        for place in (self.locations.log, self.locations.late, root / "staging"):
            place.mkdir(parents=True)
        self.rules = make_rules(query, StreamingOptions(lateness=LATENESS if query.graph.timed else None))
        self.watermarks = Watermarks.none(len(query.streams))
        self.groups: dict[int, GroupState] = {}
        self.held: str | None = None
        self.late: dict[str, int] = {}
        self.workers = [self.worker() for _ in range(tasks)]
        self.files: list[Path] = []
        """Results of micro-batches that were committed."""

    def worker(self) -> Engines:
        packed = pickle.dumps((self.job, self.locations, (), None))
        return Engines(JoinStart("test", packed, KEY, True))

    def bound(self, max_bytes: int | None) -> None:
        """Have the workers bound their nodes from now on."""
        self.job = replace(self.job, options=EngineOptions(max_bytes=max_bytes))
        for worker in self.workers:
            worker.job = self.job
            for hop_node in worker.nodes.values():
                hop_node._job = self.job

    def nbytes(self) -> int:
        """Return the bytes of the largest node."""
        return max(hop_node.nbytes for worker in self.workers for hop_node in worker.nodes.values())

    def logged(self, batch: int, given: dict[str, pa.RecordBatch]) -> list[Segment]:
        segments = []
        for i, stream in enumerate(self.job.query.streams):
            splitter = Splitter(self.job, i, self.tree)
            with SegmentWriter(self.locations.log, f"{batch:012d}-{i}-{self.draw.random()}") as writer:
                for piece in [*splitter.add(given[stream.name]), *splitter.finish()]:
                    segment = writer.add(piece.cell, i, piece.tuples, piece.first, piece.last, splitter.splits)
                    segments += [
                        Segment(**{**vars(segment), "group": segment.group + offset}) for offset in splitter.offsets
                    ]
                writer.finish()
        return segments

    def run(
        self,
        batch: int,
        given: dict[str, pa.RecordBatch],
        plan: dict[str, list[tuple[str, str]]],
        n: int,
        commits: bool = True,
    ) -> None:
        """Join a micro-batch in hops over n nodes, and commit it unless it is an attempt that fails then."""
        hops = own_hops(self.job.query, plan, n, timed=True)
        segments, before = self.logged(batch, given), self.watermarks
        timed = self.job.query.graph.timed
        greatest = [max((s.last for s in segments if s.stream == i), default=None) for i in range(len(given))]
        after = before.after(greatest if timed else [None] * len(given), 0.0, self.rules)
        token = str(self.draw.random())
        made: Any = SimpleNamespace(
            hops=hops,
            held=self.held,
            token=token,
            groups=self.groups,
            layout=SimpleNamespace(tree=self.tree),
            logged=LogReport((0,) * len(given), 0, tuple(greatest), tuple(segments)),
            late_below=before.late_below,
            forgotten=before.engine,
            watermarks=after,
            staging=self.root / "staging",
            steps=None,
        )

        def decide(said: Any) -> list[BatchTask]:
            addresses = tuple(answer.address for answer in said)
            works = hop_works(batch, made, said, False, self.job.shares)
            return [replace(work, addresses=addresses) for work in works]

        meetings = Meetings("127.0.0.1", KEY)
        orders = [Orders(batch, (), self.tree, True) for _ in self.workers]
        with meetings.hold(orders, decide) as name, ThreadPoolExecutor(len(orders)) as pool:
            done = [pool.submit(self.attend, meetings, name, number) for number in range(len(orders))]
            problems = [future.exception(30) for future in done]
        meetings.close()
        for problem in sorted(filter(None, problems), key=lambda error: isinstance(error, TurnedAwayError)):
            raise problem
        reports = [future.result() for future in done]
        if not commits:
            return
        for report in reports:
            self.files += [self.root / "staging" / output.file for output in report.results]
            for i, count in report.late_rows.items():
                stream = self.job.query.streams[i].name
                self.late[stream] = self.late.get(stream, 0) + count.rows
        self.watermarks, self.held = after, token
        for group, group_segments in rows_by_group(segments, self.tree).items():
            chain_ = self.groups[group].chain if group in self.groups else ()
            link = ManifestLink(batch, before.late_below, tuple(group_segments))
            self.groups[group] = GroupState(batch, token, (*chain_, link), None)

    def attend(self, meetings: Meetings, name: str, number: int) -> PartitionReport:
        engines = self.workers[number]
        with meetings.place.seat(name, number) as seat, Peers(seat, KEY) as peers:
            work: BatchTask = seat.say(Said(engines.holding(), (), peers.address))
            engines.partitions = work.partitions
            assert work.hops is not None
            peers.meet(work.addresses, work.hops.hops.rounds)
            report = HopJoinTask(engines, peers, number, work.hops, {}).run()
            seat.leave()
        return report

    def results(self) -> list[pa.Table]:
        return [pq.ParquetFile(path).read() for path in self.files]


def expected(query: Query, given: Sequence[Batches]) -> tuple[Counter[tuple[Any, ...]], dict[str, int]]:
    """Return results, and late rows by stream, from nested loops over the rows that the documented rules accept."""
    names = query.graph.names
    kept: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    late: Counter[str] = Counter()
    greatest: dict[str, int] = {}
    mark = -(10**9)
    for batch in given:
        for name in names:
            for row in (
                dict(zip(batch[name], values, strict=True)) for values in zip(*batch[name].values(), strict=True)
            ):
                if None in row.values():
                    continue
                if query.graph.timed:
                    late[name] += row["t"] < mark
                    greatest[name] = max(greatest.get(name, -(10**9)), row["t"])
                if row["t"] >= mark:
                    kept[name].append(row)
        if query.graph.timed and len(greatest) == len(names):
            mark = max(mark, min(greatest.values()) - LATENESS)
    counts: Counter[tuple[Any, ...]] = Counter()
    columns = [set(stream.schema.names) - {"t", "n"} for stream in query.streams]
    shared = [left & other for left, other in pairwise(columns)]

    def extend(rows: list[dict[str, Any]]) -> None:
        newest = max((row["t"] for row in rows), default=0)
        windows = [stream.window for stream in query.streams[: len(rows)]]
        if any(isinstance(w, Range) and newest - row["t"] > w.d for w, row in zip(windows, rows, strict=True)):
            return  # a further row brings it back into no window
        if len(rows) == len(names):
            counts[tuple(row["n"] for row in rows)] += 1
            return
        for row in kept[names[len(rows)]]:
            if not rows or all(rows[-1][key] == row[key] for key in shared[len(rows) - 1]):
                extend([*rows, row])

    extend([])
    return counts, dict(+late)


def check(root: Path, seed: int, gaps: bool = False) -> None:
    """Run a drawn join: rows come out of order, some too late; plan and nodes change.

    Workers lose their copies, or have joined a micro-batch that was not committed.

    gaps   whether some micro-batches have no rows, and one stream has none in most
    """
    draw = random.Random(seed)
    window, text = (12, 1, None)[seed % 3], seed % 2 == 1
    query = chain(draw.randint(2, 4), window, text) if seed % 4 else star(3, window)
    given = rows(query, 6, (20 if window == 1 else 8) if window else 3, 3, seed, text and bool(seed % 4))
    if gaps:
        query = replaced_windows(query, draw)
        idle = draw.choice(query.graph.names)
        for number, epoch in enumerate(given):
            for name in query.graph.names if number == 2 else [idle] if 0 < number < 5 else []:
                epoch[name] = {column: [] for column in epoch[name]}
    run = HopRun(root, query, draw.randint(1, 3), draw)
    plan, n = drawn_plan(query, draw), draw.randint(1, 4)
    for batch, micro_batch in enumerate(given):
        if draw.random() < 0.4:
            plan = drawn_plan(query, draw)
        if draw.random() < 0.3:
            n = draw.randint(1, 4)
        if draw.random() < 0.3:
            run.workers[draw.randrange(run.tasks)] = run.worker()
        for commits in (False, True) if draw.random() < 0.3 else (True,):
            run.run(batch, batches(query, micro_batch), plan, n, commits)
    want, late = expected(query, given)
    assert want
    assert results(run.results()) == want
    assert run.late == late


def replaced_windows(query: Query, draw: random.Random) -> Query:
    """Return the query with other windows: one `Range` at least, and some streams without a window."""
    windows = [Range(12), *draw.choices((Range(12), Range(5), None), k=len(query.streams) - 1)]
    streams = [
        Stream(stream.name, stream.schema, window=w, time="t") for stream, w in zip(query.streams, windows, strict=True)
    ]
    return Query(streams, query.on, select=[f"{stream.name}.n" for stream in streams], lateness=5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nodes number their keys anew often."""
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(node, "SPARE_NUMBERS", 10)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
def test_drawn_plans_nodes_and_losses_give_the_results_of_a_nested_loop(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(4))
def test_micro_batches_without_rows_and_an_idle_stream(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed, gaps=True)


def _all_precede(self: SortedWindow, keys: Any, bounds: Any, head: Any) -> Any:
    yield from MATCHES(self, keys, bounds, None)


def _all_outlived(self: SortedWindow, rows: Any = None) -> Any:
    return np.full(len(self if rows is None else rows), FOREVER)


def _forgets_too_much(self: GrowingWindow, least: int) -> None:
    FORGET(self, least + 20)


def _in_any_state(hops: Any, tasks: Any, holdings: Any, held: Any) -> set[Any]:
    wanted = {(node, *copy) for node in range(hops.partitions) for copy in hops.copies}
    return {node_copy for node_copy in wanted if node_copy not in holdings[tasks[node_copy[0]]].copies}


def _of_any_nodes(hops: Any, tasks: Any, holdings: Any, held: Any) -> set[Any]:
    wanted = {(node, *copy) for node in range(hops.partitions) for copy in hops.copies}
    return {
        node_copy
        for node_copy in wanted
        if not holdings[tasks[node_copy[0]]].copies.get(node_copy, "").startswith(f"{held} ")
    }


def _check_all(root: Path) -> None:
    for seed in range(6):
        check(root / str(seed), seed)


MATCHES, FORGET = SortedWindow.matches, GrowingWindow.forget
MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "rows of the micro-batch need not precede the head": (SortedWindow, "matches", _all_precede),
    "a component does not bound the event times of the others": (SortedWindow, "outlived", _all_outlived),
    "windows forget rows that still join": (GrowingWindow, "forget", _forgets_too_much),
    "copies in any state count": (hop_works_module, "missing_copies", _in_any_state),
    "copies over any number of nodes count": (hop_works_module, "missing_copies", _of_any_nodes),
    "rows of the log are dealt once for each copy in key groups": (SplitTree, "is_first", lambda *given: True),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError):
        _check_all(tmp_path)


@pytest.mark.campaign(1)
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("seed", "window"), [(1, 30), (2, None)])
def test_a_node_that_exceeds_max_bytes_stops_the_micro_batch(tmp_path: Path, seed: int, window: int | None) -> None:
    """A micro-batch that fails changes nothing: a larger bound lets the same workers, or others, repeat it."""
    draw, query = random.Random(seed), chain(4, window)
    given = rows(query, 4, 40 if window else 6, 8 if window else 2, seed)
    run, failed, bound = HopRun(tmp_path, query, 2, draw), [], 0
    plan = {name: [(stream, "ship") for stream, _ in steps] for name, steps in drawn_plan(query, draw).items()}
    for batch, micro_batch in enumerate(given):
        made = batches(query, micro_batch)
        bound = max(1000, bound // 4)
        while True:
            run.bound(bound)
            try:
                run.run(batch, made, plan, 3)
                break
            except CapacityError as problem:
                failed.append(str(problem))
            bound *= 2
            if draw.random() < 0.2:
                run.workers[draw.randrange(2)] = run.worker()
        assert run.nbytes() <= bound
    for what in ("rows of stream", "intermediate tuples of head"):
        assert any(f"mostly {what} 'S" in message for message in failed)
    for message in failed:
        assert re.match(
            r"node [0-2] of a join in hops would take [\d,]+ bytes with .*; max_bytes is [\d,]+: use", message
        )
    want, late = expected(query, given)
    assert want
    assert results(run.results()) == want
    assert run.late == late


def test_a_task_that_waits_for_another_is_turned_away_when_that_dies() -> None:
    meetings = Meetings("127.0.0.1", KEY)
    met = threading.Barrier(2)

    def attend(number: int) -> None:
        with meetings.place.seat(name, number) as seat, Peers(seat, KEY) as peers:
            peers.meet(seat.say(peers.address), 2)
            if number:
                peers.send(0, 0, ROWS, 7, 5, pa.record_batch({"k": [1, 2]}))
                peers.end(0)
                met.wait(10)
                return
            (parcel,) = peers.receive(0)
            assert (parcel.kind, parcel.code, parcel.node) == (ROWS, 7, 5)
            assert parcel.batch(pa.schema([("k", pa.int64())])).to_pydict() == {"k": [1, 2]}
            met.wait(10)
            with pytest.raises(TurnedAwayError):
                peers.receive(1)

    with meetings.hold([None, None], lambda said: [list(said)] * 2) as name, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(attend, number) for number in range(2)]:
            future.result(30)
    meetings.close()


def test_a_stranger_who_says_nothing_holds_up_nobody() -> None:
    meetings = Meetings("127.0.0.1", KEY)

    def attend(number: int) -> None:
        with meetings.place.seat(name, number) as seat, Peers(seat, KEY) as peers:
            with socket.create_connection(peers.address):  # before any other task
                peers.meet(seat.say(peers.address), 1)
                peers.end(0)
                assert peers.receive(0) == []
            seat.leave()

    with meetings.hold([None, None], lambda said: [list(said)] * 2) as name, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(attend, number) for number in range(2)]:
            future.result(30)
    meetings.close()


def test_tasks_that_can_accept_no_connection_are_turned_away() -> None:
    meetings = Meetings("127.0.0.1", KEY)

    def attend(number: int) -> None:
        with meetings.place.seat(name, number) as seat, Peers(seat, KEY) as peers:
            said = seat.say(peers.address)
            full = OSError("too many open files")
            peers._server = Mock(wraps=peers._server, **{"accept.side_effect": full})
            with pytest.raises(TurnedAwayError):
                peers.meet(said, 1)

    with meetings.hold([None, None], lambda said: [list(said)] * 2) as name, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(attend, number) for number in range(2)]:
            future.result(30)
    meetings.close()
