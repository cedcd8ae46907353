"""Restoring a query with branches from a snapshot, under the same plans or other ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eddy.aggregates.storage import HEADER as GROUPS
from eddy.branches.engine import BranchedEngine
from eddy.branches.options import plans_in
from eddy.branches.runtime import BranchedRuntime
from eddy.branches.snapshot import KIND
from eddy.branches.tree import TreeNode
from eddy.ingest.clock import CLOCK_FORM, behind_in
from eddy.join_engine import JoinEngine, Options
from eddy.query.branches import BranchedQuery
from eddy.query.text import QUERY_FORM, difference
from eddy.results.late_rows import LateRows
from eddy.results.modes import OUTPUTS
from eddy.snapshot.checked_sections import CheckedSections
from eddy.snapshot.groups import fill_groups, groups_names
from eddy.snapshot.header import check_groups
from eddy.snapshot.restore import Choices, fill_engine, restored_options
from eddy.snapshot.snapshot import Snapshot, failed_from, payload_schemas
from eddy.storage.json_form import boolean, fields, integer, list_of, mapping, one_of, optional
from eddy.storage.sections import unpack
from stairs.descriptors import S_BASE, S_NEXT
from stairs.errors import SnapshotError, StateError
from stairs.graph import FOREVER
from stairs.plain_types import plain_schema
from stairs.stems import RENUMBER_AT

_COUNT = integer(0, 1 << 62)
_HEADER = fields(
    {
        "query": mapping,
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
                "failed": _COUNT,
                "failed_dropped": _COUNT,
            }
        ),
        "streams": list_of(fields({"first": _COUNT, "rows": integer(0, RENUMBER_AT), "live": _COUNT})),
        "clock": optional(CLOCK_FORM),
        "finished": boolean,
        "groups": optional(GROUPS),
    }
)


def restored(data: object, query: BranchedQuery, choices: Choices) -> BranchedRuntime:
    """Return a runtime that resumes where a snapshot was taken; see `Runtime.restore`."""
    snapshot = BranchedSnapshot(data)
    check_groups(snapshot.header, query, KIND)
    options = snapshot.options
    max_bytes = options.pop("max_bytes")
    runtime = BranchedRuntime(query, **options)
    engine = runtime._engine
    snapshot.fill(engine, choices)
    engine.max_bytes = max_bytes
    return runtime


class BranchedSnapshot:
    """A snapshot that was read: whole, undamaged, with a header that was checked. `fill` checks the sections."""

    def __init__(self, data: object) -> None:
        self.header, sections = unpack(data, KIND)
        self._sections = CheckedSections(sections, KIND)
        KIND.check(self.header, fields({"query": QUERY_FORM}, ignored=True))
        KIND.check(self.header, _HEADER)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the runtime that are not those of its inner joins."""
        return dict(self.header["options"])

    def fill(self, engine: BranchedEngine, choices: Choices) -> None:
        """Fill a new engine of the same query.

        Raises SnapshotError for a snapshot that does not fit the query, or whose parts do not fit each other.
        """
        query, counts = engine.query, self.header["counts"]
        self._check_query(query)
        streams = self.header["streams"]
        firsts, rows = [one["first"] for one in streams], [one["rows"] for one in streams]
        ends = [first + n for first, n in zip(firsts, rows, strict=True)]
        KIND.require(sum(ends) == counts["arrivals"], "arrivals is not the sum of the arrivals of all streams")
        live = [one["live"] for one in streams]
        KIND.require(all(n <= end for n, end in zip(live, ends, strict=True)), "live rows did not arrive")
        self._check_names(engine, rows)
        self._fill_joins(engine, choices, firsts, ends)
        self._fill_shelf(engine, firsts, rows)
        for k, node in enumerate(engine.nodes):
            self._fill_ledger(k, node, firsts, ends)
        late = [
            self._sections.batches(f"stream {i} late", plain_schema(stream.schema), counts["late"][i])
            for i, stream in enumerate(query.streams)
        ]
        engine.late.rows = LateRows.restored(late, counts["late"], counts["late_dropped"])
        KIND.require(counts["failed_dropped"] <= counts["failed"], "more failed rows were dropped than there were")
        engine.failed.rows = failed_from(self._sections, counts)
        clock = self.header["clock"]
        KIND.require((clock is None) == (engine.clock is None), "only one of it and the query has event times")
        if engine.clock is not None:
            timed = [one.modules for one in engine.joins.values() if one.query.graph.timed]
            engine.clock.resume(clock, max(map(behind_in, timed)), KIND.require)
        engine.live, engine.finished = live, self.header["finished"]
        engine.position, engine.n_results, engine.n_deleted = (counts[k] for k in ("arrivals", "results", "deleted"))
        if engine.groups is not None:
            KIND.require(self.header["groups"]["finished"] == engine.finished, "only groups have seen the end, or not")
            fill_groups(engine.groups, self.header["groups"], self._sections, engine.watermark, KIND)

    def _check_query(self, query: BranchedQuery) -> None:
        found = difference(self.header["query"], query)
        if found is not None:
            raise SnapshotError(f"the snapshot is of another query: {found}")
        counts = self.header["counts"]
        lengths = {len(self.header["streams"]), len(counts["late"]), len(counts["late_dropped"])}
        KIND.require(lengths == {len(query.streams)}, "it has another number of streams")

    def _fill_joins(self, engine: BranchedEngine, choices: Choices, firsts: list[int], ends: list[int]) -> None:
        """Make the inner joins again; firsts[i] .. ends[i] - 1 are the rows of stream i that the snapshot keeps."""
        plans = plans_in(engine.query, choices.plan)
        for k, (path, join) in enumerate(engine.query.joins.items()):
            inner = Snapshot(self._sections.whole(f"join {k}"), join)
            options = restored_options(inner, choices._replace(plan=plans.get(path)))
            options["max_bytes"] = None
            own = options["output"], options["ids_only"], options["count_only"]
            KIND.require(own == (engine.options.output, True, False), f"join {k} has other options")
            engine.joins[path] = one = JoinEngine(join, Options(**options))
            fill_engine(one, inner, None)
            arrived = (one.modules.streams[:, S_NEXT] + one.modules.streams[:, S_BASE]).tolist()
            KIND.require(arrived == [ends[i] for i in path], f"join {k} has other arrivals than the streams")
            lows = one.modules.oldest().tolist()
            KIND.require(all(firsts[i] <= low for i, low in zip(path, lows, strict=True)), f"join {k} lacks payload")

    def _fill_shelf(self, engine: BranchedEngine, firsts: list[int], rows: list[int]) -> None:
        columns, times, sections = [], [], self._sections
        for i, schema in enumerate(payload_schemas(engine.query, engine.columns)):
            payload = sections.batches(f"stream {i} payload", schema, rows[i])
            whole = sum(map(len, payload)) == rows[i] * bool(schema.names)
            KIND.require(whole, f"stream {i} has another number of rows")
            columns.append(pa.Table.from_batches(payload).columns if payload else [])
            timed = engine.query.graph.timed
            times.append(sections.numbers(f"stream {i} times", shape=(rows[i],)) if timed else np.zeros(0, np.int64))
            KIND.require(bool((np.abs(times[-1]) <= FOREVER).all()), f"stream {i} has event times out of range")
        engine.shelf.fill(firsts, rows, times, columns)

    def _fill_ledger(self, k: int, node: TreeNode, firsts: list[int], ends: list[int]) -> None:
        ledger, m, n = node.ledger, len(firsts), len(node.below)
        assert ledger is not None
        entries = self._sections.numbers(f"ledger {k} entries", shape=(-1, 2 * n + m))
        options = self._sections.numbers(f"ledger {k} options", shape=(-1, 2 + m))
        for components in (entries[:, 2 * n :], options[:, 2:]):
            there = components >= 0
            fits = ((components >= np.array(firsts)) & (components < np.array(ends))) | ~there
            KIND.require(bool(fits.all()), f"ledger {k} has rows that are not kept")
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
        wanted |= {f"ledger {k} {what}" for k in range(len(engine.nodes)) for what in ("entries", "options")}
        wanted |= groups_names(engine.groups)
        optional = {"failed", *(f"stream {i} late" for i in range(len(rows) * query.graph.timed))}
        self._sections.check_names(wanted, optional)
