"""The join of a micro-batch in hops, in one task: its nodes' part of all rounds.

    exchange 0   rows go to all copies of their windows, and to where they begin as heads
    round 1      heads take their first leg; the tuples that result go to the nodes of their next leg: exchange 1
    …            the last round gives the results

All rows of the micro-batch are in all copies before the first tuple probes. A tuple joins rows of earlier
micro-batches, and those of this one that precede its head in (event time, stream). So each result is found once, in
whatever order messages come.

If no worker has a copy, the tasks also deal the rows of earlier micro-batches, which they read from the log, to it.
Nothing that a task does counts before the manifest names it. A copy that is being changed has the token of no state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.spark.hops.hops import key_class
from eddy.spark.hops.legs import deal
from eddy.spark.hops.windows import BLOCK_ROWS, GrowingWindow, together
from eddy.spark.partitioning.split import PIECE_ROWS
from eddy.spark.partitioning.split_tree import own_rows
from eddy.spark.streaming.state.segments import Segment, SegmentReader
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.spark.streaming.worker.late_rows import LateRows
from eddy.spark.streaming.worker.node import BROKEN, Copy, Node
from eddy.spark.streaming.worker.output_files import ResultFile
from eddy.spark.streaming.worker.peers import BASE, ROWS, TUPLES, NoRoomError, Parcel, Peers
from eddy.spark.streaming.worker.samples import Sampler
from eddy.spark.streaming.worker.state_loader import split_late
from eddy.spark.streaming.worker.tasks import LIVE, LOADED, NEW, HopTask, PartitionReport, copy_token
from eddy.spark.types import spark_schema
from stairs.plain_types import taken


class HopJoin:
    """Joins a micro-batch in hops, on the nodes of one task.

    number  of the task
    known   rows of segments of the batch that this process has in memory
    """

    def __init__(
        self,
        engines: Engines,
        peers: Peers,
        number: int,
        task: HopTask,
        known: Mapping[Segment, pa.RecordBatch],
    ) -> None:
        self._engines, self._peers, self._task = engines, peers, task
        self._job, self._hops = engines.job, task.hops
        self._own = [node for node, at in enumerate(task.tasks) if at == number]
        self._reader = SegmentReader(engines.locations.log, [stream.schema for stream in self._job.query.streams])
        self._reader.know(known)
        self._late = LateRows(self._job.query, task.late_below)
        self._failed = FailedRows()
        self._sampler = Sampler(self._job.query, task.steps)
        self._results = ResultFile(task.staging, number, spark_schema(self._job.query.output_schema))
        self._nodes: dict[int, Node] = {}
        self._heads: dict[tuple[int, int], pa.RecordBatch] = {}
        """By (head, node) the rows with which the head begins."""
        self._figures: dict[int, dict[str, Any]] = {}

    def run(self) -> PartitionReport:
        """Join the micro-batch."""
        report, began, cpu_began = PartitionReport(), perf_counter(), process_time()
        try:
            self._begin()
            self._peers.meet(self._task.addresses, self._hops.rounds)
            self._deal_rows()
            self._deal_base()
            self._peers.end(0)
            self._insert(self._peers.receive(0), began)
            for number in range(self._hops.rounds):
                self._round(number)
            for one in self._nodes.values():
                one.settle(copy_token(self._task.after, self._hops.partitions), self._task.watermark)
        except NoRoomError as full:
            self._nodes[full.node].ask(full.n_bytes, f"what was sent to it, mostly {self._named(full.kind, full.code)}")
            raise
        finally:
            self._reader.close()
            report.results = self._results.close()
        report.late, report.late_rows = self._late.write(self._engines.locations, self._task.batch), self._late.counts
        report.late += self._failed.write(self._engines.locations.late, self._task.batch)
        for node, figures in self._figures.items():
            figures["state_bytes"] = self._nodes[node].nbytes
        report.groups, report.shipped = list(self._figures.values()), self._peers.sent
        report.samples, report.cpu_s = self._sampler.samples(), process_time() - cpu_began
        return report

    # Rows

    def _deal_rows(self) -> None:
        """Deal the task's rows of the micro-batch to all copies of their windows, and to where they begin as heads."""
        rows: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for segment in self._task.segments:
            on_time, late = split_late(self._job, segment, self._reader.read(segment), self._task.late_below)
            if late.num_rows:
                self._late.note(segment, late)
            self._sampler.add(segment.stream, on_time)
            rows[segment.stream].append(on_time)
        everywhere = set(range(self._hops.partitions))
        for stream, parts in rows.items():
            whole = together(parts, self._job.query.streams[stream].schema)
            classes = {c for i, c in self._hops.copies if i == stream}
            for c in sorted(classes | {self._hops.entries[stream]}):
                self._deal(ROWS, stream, c, whole, everywhere)

    def _deal_base(self) -> None:
        """Deal rows of earlier micro-batches to the copies that no worker has."""
        missing: dict[tuple[int, int], set[int]] = defaultdict(set)
        for node, stream, c in self._task.missing:
            missing[stream, c].add(node)
        rows: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for link in self._task.base:
            for segment in link.segments:
                read = self._reader.read(segment)
                own = own_rows(self._job, self._task.tree, link.group, segment.stream, segment.splits, read)
                on_time, _ = split_late(self._job, segment, own, link.late_below)
                rows[segment.stream].append(self._live(segment.stream, on_time))
        streams = self._job.query.streams
        whole = {stream: together(parts, streams[stream].schema) for stream, parts in rows.items()}
        for (stream, c), nodes in sorted(missing.items()):
            if stream in whole:
                self._deal(BASE, stream, c, whole[stream], nodes)

    def _live(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that a row of this micro-batch or a later one may join."""
        span, times = self._job.query.spans[stream], self._job.positions(rows, stream)
        if span is None or times is None or self._task.forgotten is None:
            return rows
        keep = np.flatnonzero(times >= self._task.forgotten - span)
        return rows if len(keep) == len(rows) else taken(rows, keep)

    def _deal(self, kind: int, stream: int, c: int, rows: pa.RecordBatch, nodes: set[int]) -> None:
        """Send rows to those of some nodes that have their keys of a class, or to all of them if they lack it."""
        if c in self._classes(stream):
            pieces = deal(self._job.query, stream, c, rows, rows, self._hops.partitions)
        else:
            parts = [rows.slice(low, PIECE_ROWS) for low in range(0, len(rows), PIECE_ROWS)]
            pieces = ((node, part) for node in nodes for part in parts)
        for node, piece in pieces:
            if node in nodes:
                self._peers.send(0, self._task.tasks[node], kind, self._code(stream, c), node, piece)

    def _classes(self, stream: int) -> tuple[int, ...]:
        return self._job.shares.has[stream]

    def _code(self, stream: int, c: int) -> int:
        return stream + len(self._job.query.streams) * c

    # Nodes

    def _begin(self) -> None:
        """Have the nodes of the task, with the copies that count."""
        for stale in self._engines.nodes.keys() - set(self._own):
            del self._engines.nodes[stale]
        for number in self._own:
            node = self._nodes[number] = self._engines.nodes.setdefault(number, Node(self._job, number))
            lost = {(stream, c) for at, stream, c in self._task.missing if at == number}
            node.copies = {copy: one for copy, one in node.copies.items() if copy in self._hops.copies - lost}
        self._limit()

    def _let_go(self, exchange: int) -> None:
        """Go on after an exchange: what came in it takes no memory any more, but windows may take more."""
        self._peers.let_go(exchange)
        for node in self._nodes.values():
            node.ask(0, "indices of its windows")
        self._limit()

    def _limit(self) -> None:
        """Let no more wait for a node than it has room for."""
        rooms = {number: node.room for number, node in self._nodes.items()}
        self._peers.limit({number: room for number, room in rooms.items() if room is not None})

    def _named(self, kind: int, code: int) -> str:
        """Return in words what a task sends."""
        names = self._job.query.graph.names
        if kind == TUPLES:
            return f"intermediate tuples of head {names[code]!r}"
        return f"{'older ' if kind == BASE else ''}rows of stream {names[code % len(names)]!r}"

    def _insert(self, parcels: list[Parcel], began: float) -> None:
        """Put the rows into the copies of their windows, and take what heads begin with."""
        m = len(self._job.query.streams)
        came: dict[tuple[int, int, int], list[pa.RecordBatch]] = defaultdict(list)
        for one in parcels:
            came[one.kind, one.code, one.node].append(one.batch(self._job.query.streams[one.code % m].schema))
        del parcels[:]
        for number, node in self._nodes.items():
            source, received = LIVE, 0
            for copy in sorted(self._hops.copies):
                stream, code = copy[0], self._code(*copy)
                if (number, *copy) in self._task.missing:
                    base = node.window(stream, came.pop((BASE, code, number), []))
                    node.ask(base.nbytes, self._named(BASE, code))
                    source = LOADED if len(base) or source == LOADED else NEW
                    received += base.rows.nbytes
                    node.copies[copy] = Copy(BROKEN, GrowingWindow(base))
                new = node.window(stream, came[ROWS, code, number])
                node.ask(new.nbytes, self._named(ROWS, code))
                node.copies[copy].token = BROKEN
                node.copies[copy].window.grow(new)
            for head, c in self._hops.entries.items():
                fresh = node.copies.get((head, c))
                parts = came[ROWS, self._code(head, c), number]
                rows = node.window(head, parts) if fresh is None else fresh.window.fresh
                self._heads[head, number] = node.columns.headed(rows)
            self._figures[number] = self._row(number, source, received, perf_counter() - began)
        self._let_go(0)

    def _row(self, node: int, source: str, received: int, seconds: float) -> dict[str, Any]:
        """Return the row of metrics of a node; what it has not is left out."""
        rows = sum(len(own) for (_, at), own in self._heads.items() if at == node)
        return {
            "batch": self._task.batch,
            "group": None,
            "partition": node,
            "source": source,
            "rows": rows,
            "results": 0,
            "transitions": 0,
            "ready_seconds": seconds,
            "join_seconds": 0.0,
            "received_bytes": received,
        }

    # Rounds

    def _round(self, number: int) -> None:
        """Have all nodes of the task walk the legs of a round, and write results or send what they give on."""
        came: dict[tuple[int, int], list[pa.RecordBatch]] = defaultdict(list)
        if number:
            for one in self._peers.receive(number):
                schema = self._nodes[one.node].columns.schema(self._hops.bound(one.code, number))
                came[one.node, one.code].append(one.batch(schema))
        last = number == self._hops.rounds - 1
        for at, node in self._nodes.items():
            began = perf_counter()
            for head in self._hops.beginning(number):
                came[at, head].append(self._heads.pop((head, at)))
            waiting: dict[int, list[pa.RecordBatch]] = defaultdict(list)
            for head in sorted(self._hops.legs):
                for tuples in self._leg(node, head, number, came.pop((at, head), [])):
                    if last:
                        found = node.legs.results(tuples)
                        self._results.write(found)
                        failed = node.legs.take_failed()
                        if self._job.query.failed != "count":
                            self._failed.add(failed)
                        self._figures[at]["results"] += found.num_rows
                        continue
                    waiting[head].append(tuples)
                    if sum(map(len, waiting[head])) >= BLOCK_ROWS:
                        self._ship(node, head, number + 1, waiting.pop(head))
            for head, parts in waiting.items():
                self._ship(node, head, number + 1, parts)
            self._figures[at]["join_seconds"] += perf_counter() - began
        self._let_go(number)
        if not last:
            self._peers.end(number + 1)

    def _leg(self, node: Node, head: int, number: int, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what a leg gives, in blocks."""
        leg = self._hops.leg(head, number)
        if leg is None or not parts:
            return
        windows = [node.copies[j, key_class(leg.place)].window for j in leg.joins]
        bound = self._hops.bound(head, number)
        tuples = together(parts, node.columns.schema(bound))
        yield from node.legs.walk(head, bound, tuples, windows)

    def _ship(self, node: Node, head: int, number: int, parts: list[pa.RecordBatch]) -> None:
        """Send intermediate tuples to the nodes of their next leg, in the round with this number."""
        leg, bound = self._hops.leg(head, number), self._hops.bound(head, number)
        assert leg is not None
        tuples = together(parts, node.columns.schema(bound))
        pieces = node.legs.dealt(tuples, bound, key_class(leg.place), self._hops.partitions)
        for to, piece in pieces:
            self._peers.send(number, self._task.tasks[to], TUPLES, head, to, piece)
