"""The part of one task in the join of a micro-batch in hops; the task takes part in all rounds for its nodes.

    exchange 0   tasks send rows to all copies of their windows, and to the nodes where the rows begin as heads
    round 1      heads take their first leg; exchange 1 sends the resulting tuples to the nodes of their next leg
    …            the last round emits the results

All rows of the micro-batch are in all copies before the first tuple probes. A tuple joins rows of earlier
micro-batches, and those rows of this micro-batch that precede its head in (event time, stream). So each result is found
once, for any order of messages.

If no worker has a copy, the tasks read the rows of earlier micro-batches from the log and send them to the node of the
copy. No output of a task counts before the manifest names it. While a copy changes, its token is `BROKEN`, which names
no state.
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
from eddy.spark.partitioning.pieces import PIECE_ROWS
from eddy.spark.partitioning.split_tree import own_rows
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.spark.streaming.worker.late_rows import TaskLateRows
from eddy.spark.streaming.worker.node import BROKEN, Copy, WorkerNode
from eddy.spark.streaming.worker.operator_stage import OperatorStage, outlet
from eddy.spark.streaming.worker.peers import BASE, ROWS, TUPLES, NoRoomError, Parcel, Peers
from eddy.spark.streaming.worker.samples import StreamSampler
from eddy.spark.streaming.worker.state_loader import split_late
from eddy.spark.streaming.worker.tasks import LIVE, LOADED, NEW, HopTask, PartitionReport, copy_token
from eddy.spark.types import spark_schema
from stairs.plain_types import taken


class HopJoinTask:
    """The part of one task in the join of a micro-batch in hops.

    number  the number of the task
    known   segments of the batch whose rows this process has in memory, with these rows
    stage   the operator above the join, None without
    """

    def __init__(
        self,
        engines: Engines,
        peers: Peers,
        number: int,
        task: HopTask,
        known: Mapping[Segment, pa.RecordBatch],
        stage: OperatorStage | None = None,
    ) -> None:
        self._engines, self._peers, self._task = engines, peers, task
        self._job, self._hops = engines.job, task.hops
        self._node_numbers = [node for node, at in enumerate(task.tasks) if at == number]
        self._reader = engines.locations.reader([stream.schema for stream in self._job.query.streams])
        self._reader.know(known)
        self._late = TaskLateRows(self._job.query, task.late_below)
        self._failed = FailedRows()
        self._sampler = StreamSampler(self._job.query, task.steps)
        self._results = outlet(
            stage, "", task.staging, number, spark_schema(self._job.output_schema), engines.locations.keep
        )
        self._nodes: dict[int, WorkerNode] = {}
        self._heads: dict[tuple[int, int], pa.RecordBatch] = {}
        """(head, node) -> the rows with which the head begins at the node."""
        self._figures: dict[int, dict[str, Any]] = {}

    def run(self) -> PartitionReport:
        """Join the micro-batch, and return the report of the task."""
        report, began, cpu_began = PartitionReport(), perf_counter(), process_time()
        try:
            self._begin()
            self._deal_rows()
            self._deal_base()
            self._peers.end(0)
            self._insert(self._peers.receive(0), began)
            for number in range(self._hops.rounds):
                self._round(number)
            for worker_node in self._nodes.values():
                worker_node.settle(copy_token(self._task.after, self._hops.partitions), self._task.watermark)
        except NoRoomError as full:
            self._nodes[full.node].ask(full.n_bytes, f"what was sent to it, mostly {self._named(full.kind, full.code)}")
            raise
        finally:
            self._reader.close()
            report.results = self._results.close()
        report.late, report.late_rows = self._late.write(self._engines.locations, self._task.batch), self._late.counts
        report.late += self._failed.write(self._engines.locations, self._task.batch)
        for node, figures in self._figures.items():
            figures["state_bytes"] = self._nodes[node].nbytes
        report.groups, report.shipped = list(self._figures.values()), self._peers.sent
        report.samples, report.cpu_s = self._sampler.samples(), process_time() - cpu_began
        return report

    # Rows

    def _deal_rows(self) -> None:
        """Send the task's rows to all copies of their windows, and to the nodes where the rows begin as heads."""
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
        """Send rows of earlier micro-batches to the copies that no worker has."""
        missing: dict[tuple[int, int], set[int]] = defaultdict(set)
        for node, stream, c in self._task.missing:
            missing[stream, c].add(node)
        rows: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._reader.expect(piece for link in self._task.base for piece in link.segments)
        for link in self._task.base:
            for segment in link.segments:
                read = self._reader.read(segment)
                group_rows = own_rows(self._job, self._task.tree, link.group, segment.stream, segment.splits, read)
                on_time, _ = split_late(self._job, segment, group_rows, link.late_below)
                rows[segment.stream].append(self._live(segment.stream, on_time))
        streams = self._job.query.streams
        whole = {stream: together(parts, streams[stream].schema) for stream, parts in rows.items()}
        for (stream, c), nodes in sorted(missing.items()):
            if stream in whole:
                self._deal(BASE, stream, c, whole[stream], nodes)

    def _live(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that a row of this micro-batch, or of a later one, may still join."""
        span, times = self._job.query.spans[stream], self._job.positions(rows, stream)
        if span is None or times is None or self._task.forgotten is None:
            return rows
        keep = np.flatnonzero(times >= self._task.forgotten - span)
        return rows if len(keep) == len(rows) else taken(rows, keep)

    def _deal(self, kind: int, stream: int, c: int, rows: pa.RecordBatch, nodes: set[int]) -> None:
        """Send each row of a stream to the node among `nodes` that has its key of class c.

        If the stream lacks the class, each row goes to all of `nodes`.
        """
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
        """Get the nodes of the task from the worker, and drop nodes and copies that are out of date."""
        for stale in self._engines.nodes.keys() - set(self._node_numbers):
            del self._engines.nodes[stale]
        for number in self._node_numbers:
            node = self._nodes[number] = self._engines.nodes.setdefault(number, WorkerNode(self._job, number))
            lost = {(stream, c) for at, stream, c in self._task.missing if at == number}
            node.copies = {copy: held for copy, held in node.copies.items() if copy in self._hops.copies - lost}
        self._limit()

    def _let_go(self, exchange: int) -> None:
        """Update the bounds after an exchange: its messages were freed, and windows may have grown."""
        self._peers.let_go(exchange)
        for node in self._nodes.values():
            node.ask(0, "indices of its windows")
        self._limit()

    def _limit(self) -> None:
        """Bound the bytes of messages that may wait for each node by the room of the node."""
        rooms = {number: node.room for number, node in self._nodes.items()}
        self._peers.limit({number: room for number, room in rooms.items() if room is not None})

    def _named(self, kind: int, code: int) -> str:
        """Return the contents of a message in words, for errors."""
        names = self._job.query.graph.names
        if kind == TUPLES:
            return f"intermediate tuples of head {names[code]!r}"
        return f"{'older ' if kind == BASE else ''}rows of stream {names[code % len(names)]!r}"

    def _insert(self, parcels: list[Parcel], began: float) -> None:
        """Insert the received rows into the copies of their windows, and record the rows with which heads begin."""
        m = len(self._job.query.streams)
        came: dict[tuple[int, int, int], list[pa.RecordBatch]] = defaultdict(list)
        for parcel in parcels:
            came[parcel.kind, parcel.code, parcel.node].append(
                parcel.batch(self._job.query.streams[parcel.code % m].schema)
            )
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
        """Return the row of metrics of a node, without the columns that only key groups have."""
        rows = sum(len(batch) for (_, at), batch in self._heads.items() if at == node)
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
        """Execute the legs of a round on all nodes of the task, and write the results or ship the resulting tuples."""
        came: dict[tuple[int, int], list[pa.RecordBatch]] = defaultdict(list)
        if number:
            for parcel in self._peers.receive(number):
                schema = self._nodes[parcel.node].columns.schema(self._hops.bound(parcel.code, number))
                came[parcel.node, parcel.code].append(parcel.batch(schema))
        last = number == self._hops.rounds - 1
        for at, node in self._nodes.items():
            began = perf_counter()
            for head in self._hops.beginning(number):
                came[at, head].append(self._heads.pop((head, at)))
            waiting: dict[int, list[pa.RecordBatch]] = defaultdict(list)
            for head in sorted(self._hops.legs):
                for tuples in self._leg(node, head, number, came.pop((at, head), [])):
                    if last:
                        results = node.legs.results(tuples)
                        self._results.write(results)
                        failed = node.legs.take_failed()
                        if self._job.query.failed != "count":
                            self._failed.add(failed)
                        self._figures[at]["results"] += results.num_rows
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

    def _leg(self, node: WorkerNode, head: int, number: int, parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the tuples that a leg returns, in blocks. `parts` are the tuples that enter the leg."""
        leg = self._hops.leg(head, number)
        if leg is None or not parts:
            return
        windows = [node.copies[j, key_class(leg.place)].window for j in leg.joins]
        bound = self._hops.bound(head, number)
        tuples = together(parts, node.columns.schema(bound))
        yield from node.legs.walk(head, bound, tuples, windows)

    def _ship(self, node: WorkerNode, head: int, number: int, parts: list[pa.RecordBatch]) -> None:
        """Send intermediate tuples to the nodes of their next leg, which is in round `number`."""
        leg, bound = self._hops.leg(head, number), self._hops.bound(head, number)
        assert leg is not None
        tuples = together(parts, node.columns.schema(bound))
        pieces = node.legs.dealt(tuples, bound, key_class(leg.place), self._hops.partitions)
        for to, piece in pieces:
            self._peers.send(number, self._task.tasks[to], TUPLES, head, to, piece)
