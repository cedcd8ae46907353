"""A runtime of a query with branches as bytes: its inner joins, its ledgers, and the rows that these need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eddy.branches.engine import BranchedEngine, Clock, plans_in
from eddy.branches.shelf import Int64s
from eddy.branches.tree import TreeNode
from eddy.engine import Engine, Options
from eddy.query.branches import BranchedQuery, Node
from eddy.query.text import QUERY_FORM, difference, query_text
from eddy.results.late_rows import LateRows
from eddy.routing.policies import Policy
from eddy.snapshot.header import OUTPUTS
from eddy.snapshot.restore import fill_engine, restored_options
from eddy.snapshot.snapshot import Snapshot, batch_bytes, payload_schemas, snapshot_of
from eddy.storage.arrays import ArrayBytesError, number_bytes, numbers_in
from eddy.storage.arrow_bytes import ArrowBytesError, read_batches
from eddy.storage.json_form import boolean, fields, integer, list_of, mapping, one_of, optional, text
from eddy.storage.sections import FileKind, pack, unpack
from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.errors import SnapshotError, StateError
from stairs.graph import FOREVER
from stairs.plain_types import plain_schema
from stairs.stems import RENUMBER_AT

KIND = FileKind("snapshot of a query with branches", b"eddybrnc", 1, SnapshotError, "Runtime.snapshot()", "restore")
_COUNT = integer(0, 1 << 62)
_HEADER = fields(
    {
        "query": mapping,
        "branches": text,
        "options": fields(
            {
                "output": one_of(OUTPUTS),
                "count_only": boolean,
                "ids_only": boolean,
                "bounded": boolean,
                "max_bytes": optional(integer(1, 1 << 1000)),
            }
        ),
        "counts": fields(
            {
                "arrivals": _COUNT,
                "results": _COUNT,
                "deleted": _COUNT,
                "late": list_of(_COUNT),
                "late_dropped": list_of(_COUNT),
            }
        ),
        "streams": list_of(fields({"first": _COUNT, "rows": integer(0, RENUMBER_AT), "live": _COUNT})),
        "newest": integer(-FOREVER, FOREVER),
        "given": optional(integer(-FOREVER, FOREVER)),
        "finished": boolean,
    }
)


def branched_snapshot(engine: BranchedEngine) -> bytes:
    """Return a snapshot of an engine, which does not change. O(live tuples + entries of ledgers)."""
    query, shelf, late = engine.query, engine.shelf, engine.late.rows
    # Rows that are not needed any more are left out: how many there are depends on when the shelf last looked.
    lows = engine.lows().tolist()
    sections: dict[str, memoryview] = {}
    for k, one in enumerate(engine.joins.values()):
        sections[f"join {k}"] = memoryview(snapshot_of(one))
    for i, schema in enumerate(payload_schemas(query, engine.columns)):
        times, columns = shelf.window(i, lows[i])
        if query.graph.timed:
            sections[f"stream {i} times"] = number_bytes(times, "<i8")
        if schema.names and shelf.following[i] > lows[i]:
            batches = pa.Table.from_arrays(columns, schema=schema).to_batches()
            sections[f"stream {i} payload"] = batch_bytes(query, i, schema, batches)
        if late.batches(i):
            own = plain_schema(query.streams[i].schema)
            sections[f"stream {i} late"] = batch_bytes(query, i, own, late.batches(i))
    for k, node in enumerate(_with_ledger(engine)):
        assert node.ledger is not None
        entries, options = node.ledger.contents()
        sections[f"ledger {k} entries"] = number_bytes(entries, "<i8")
        sections[f"ledger {k} options"] = number_bytes(options, "<i8")
    header = {
        "query": query_text(query),
        "branches": _tree_text(query),
        "options": {
            "output": engine.options.output,
            "count_only": engine.options.count_only,
            "ids_only": engine.options.ids_only,
            "bounded": engine.bounded,
            "max_bytes": engine.max_bytes,
        },
        "counts": {
            "arrivals": engine.position,
            "results": engine.n_results,
            "deleted": engine.n_deleted,
            "late": list(late.counts),
            "late_dropped": list(late.dropped),
        },
        "streams": [
            {"first": low, "rows": end - low, "live": live}
            for low, end, live in zip(lows, shelf.following, engine.live, strict=True)
        ],
        "newest": engine.clock.newest,
        "given": engine.clock.given,
        "finished": engine.finished,
    }
    return pack(header, sections, KIND)


def _with_ledger(engine: BranchedEngine) -> list[TreeNode]:
    return [one for tree in engine.trees for one in tree.parts if one.ledger is not None]


def _tree_text(query: BranchedQuery) -> str:
    def node(one: Node) -> str:
        names = " ".join(query.graph.names[i] for i in one.own)
        return f"{one.how}({'; '.join([names, *map(node, one.branches)])})"

    return " ".join(map(node, query.cores))


class BranchedSnapshot:
    """A snapshot that was read: whole, undamaged, with a header that was checked. `fill` checks the sections."""

    def __init__(self, data: object) -> None:
        self.header, self._sections = unpack(data, KIND)
        KIND.check(self.header, fields({"query": QUERY_FORM}, ignored=True))
        KIND.check(self.header, _HEADER)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the runtime that are not those of its inner joins."""
        return dict(self.header["options"])

    def fill(
        self,
        engine: BranchedEngine,
        plan: str | None,
        strategy: str | None,
        background: int | None,
        policy: str | Policy | None,
    ) -> None:
        """Fill a new engine of the same query; the arguments are those of `Runtime.restore`.

        Raises SnapshotError for a snapshot that does not fit the query, or whose parts do not fit each other.
        """
        query, shelf = engine.query, engine.shelf
        found = difference(self.header["query"], query)
        if found is not None:
            raise SnapshotError(f"the snapshot is of another query: {found}")
        if self.header["branches"] != _tree_text(query):
            raise SnapshotError(
                f"the snapshot is of another query: branches: {self.header['branches']} in the snapshot,"
                f" {_tree_text(query)} in the query"
            )
        streams, counts = self.header["streams"], self.header["counts"]
        whole = len(streams) == len(counts["late"]) == len(counts["late_dropped"]) == len(query.streams)
        _require(whole, "it has another number of streams")
        firsts, rows = [one["first"] for one in streams], [one["rows"] for one in streams]
        ends = [first + n for first, n in zip(firsts, rows, strict=True)]
        _require(sum(ends) == counts["arrivals"], "arrivals is not the sum of the arrivals of all streams")
        _require(all(one["live"] <= end for one, end in zip(streams, ends, strict=True)), "live rows did not arrive")
        self._check_names(engine, rows)
        plans = plans_in(query, plan)
        for k, (path, join) in enumerate(query.joins.items()):
            inner = Snapshot(bytes(self._section(f"join {k}")), join)
            options = restored_options(inner, plans.get(path), strategy, background, policy)
            options["max_bytes"] = None
            require = all(
                options[name] == value for name, value in (("output", engine.options.output), ("ids_only", True))
            )
            _require(require and not options["count_only"], f"join {k} has other options")
            engine.joins[path] = one = Engine(join, Options(**options))
            fill_engine(one, inner, None)
            arrived = [int(n) for n in one.modules.streams[:, S_NEXT] + one.modules.streams[:, S_BASE]]
            _require(arrived == [ends[i] for i in path], f"join {k} has other arrivals than the streams")
            lows = [int(n) for n in one.modules.streams[:, S_LO] + one.modules.streams[:, S_BASE]]
            _require(all(firsts[i] <= low for i, low in zip(path, lows, strict=True)), f"join {k} lacks payload")
        columns, times, late = [], [], []
        for i, schema in enumerate(payload_schemas(query, engine.columns)):
            payload = self._batches(f"stream {i} payload", schema, rows[i])
            _require(sum(map(len, payload)) == rows[i] * bool(schema.names), f"stream {i} has another number of rows")
            columns.append(pa.Table.from_batches(payload).columns if payload else [])
            times.append(self._numbers(f"stream {i} times", (rows[i],)) if query.graph.timed else np.zeros(0, np.int64))
            _require(bool((np.abs(times[-1]) <= FOREVER).all()), f"stream {i} has event times out of range")
            late.append(self._batches(f"stream {i} late", plain_schema(query.streams[i].schema), counts["late"][i]))
        shelf.fill(firsts, rows, times, columns)
        for k, node in enumerate(_with_ledger(engine)):
            self._fill_ledger(k, node, firsts, ends)
        engine.late.rows = LateRows.restored(late, counts["late"], counts["late_dropped"])
        engine.clock = Clock(self.header["newest"], self.header["given"])
        engine.live, engine.finished = [one["live"] for one in streams], self.header["finished"]
        engine.position, engine.n_results, engine.n_deleted = (counts[k] for k in ("arrivals", "results", "deleted"))

    def _fill_ledger(self, k: int, node: TreeNode, firsts: list[int], ends: list[int]) -> None:
        ledger, m, n = node.ledger, len(firsts), len(node.below)
        assert ledger is not None
        entries = self._numbers(f"ledger {k} entries", (-1, 2 * n + m))
        options = self._numbers(f"ledger {k} options", (-1, 2 + m))
        for components in (entries[:, 2 * n :], options[:, 2:]):
            there = components >= 0
            fits = ((components >= np.array(firsts)) & (components < np.array(ends))) | ~there
            _require(bool(fits.all()), f"ledger {k} has rows that are not kept")
        try:
            serials = ledger.fill(entries, options, node.changelog)
        except StateError as problem:
            raise KIND.wrong(f"ledger {k}: {problem}") from problem
        if not node.changelog:
            node.wait(np.ascontiguousarray(entries[:, 2 * n :]), serials)

    def _check_names(self, engine: BranchedEngine, rows: list[int]) -> None:
        query = engine.query
        wanted = {f"join {k}" for k in range(len(engine.joins))}
        wanted |= {f"stream {i} times" for i in range(len(rows) * query.graph.timed)}
        wanted |= {f"stream {i} payload" for i, names in enumerate(engine.columns) if rows[i] and names}
        wanted |= {f"ledger {k} {what}" for k in range(len(_with_ledger(engine))) for what in ("entries", "options")}
        late = {f"stream {i} late" for i in range(len(rows) * query.graph.timed)}
        for name in sorted(wanted ^ (self._sections.keys() - late)):
            raise KIND.wrong(f"section {name!r} {'is missing' if name in wanted else 'is unknown'}")

    def _section(self, name: str) -> memoryview:
        return self._sections[name]

    def _numbers(self, name: str, shape: tuple[int, ...]) -> Int64s:
        memory = self._section(name)
        if shape[0] == -1:
            _require(memory.nbytes % (8 * shape[1]) == 0, f"section {name!r} has {memory.nbytes} bytes")
            shape = (memory.nbytes // (8 * shape[1]), shape[1])
        try:
            return numbers_in(memory, "<i8", shape).astype(np.int64)
        except ArrayBytesError as problem:
            raise KIND.wrong(f"section {name!r}: {problem}") from problem

    def _batches(self, name: str, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
        if name not in self._sections:
            return []
        try:
            return read_batches(self._sections[name], schema, most)
        except ArrowBytesError as problem:
            raise KIND.wrong(f"section {name!r}: {problem}") from problem


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise KIND.wrong(fault)
