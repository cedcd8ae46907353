"""Queries of a hub with a join alone: branches, changelogs, and groups and first rows of all results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import eddy
from eddy import InputError, QueryError
from eddy.queries.sources import POSITION, Sources
from eddy.spark import Hub, Source, SparkJoinError
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.streaming.sinks import DeltaSink, ParquetSink
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.worker.group_queries import GroupQueries
from eddy.spark.streaming.worker.tasks import VersionTask
from stairs.graph import FOREVER
from tests.spark.streaming.hub_jobs import SCHEMA, Acting, DrawnRows, finished, hub_of, results_of, times
from tests.spark.streaming.hub_reference import BranchReference
from tests.spark.streaming.jobs import Inputs, published
from tests.spark.streaming.test_tables import (
    LATENESS,
    NAMES,
    ROWS,
    SCHEMAS,
    answer,
    changes,
    joined,
    options,
    rows,
    table,
    total,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("left", "semi", "anti", "inner")


def branched(kind: str, ranges: tuple[int, int]) -> eddy.Query:
    """Return the query of a `BranchReference`."""
    left, right = (
        eddy.Stream(name, SCHEMA, window=eddy.Range(size), time="t") for name, size in zip("RS", ranges, strict=True)
    )
    select = {"r": "R.v", "s": "S.v"} if kind in ("left", "inner") else {"r": "R.v"}
    if kind == "inner":
        return eddy.Query([left, right], ["R.k = S.k"], select=select)
    return eddy.Query([left], branches=[eddy.Branch([right], ["R.k = S.k"], kind)], select=select)  # type: ignore[arg-type]


def counted(changes: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return what changes add up to; each row of append output counts."""
    counts: Counter[tuple[Any, ...]] = Counter()
    signed = "op" in changes.schema.names
    for row in changes.to_pylist():
        sign = 1 if not signed or row.pop("op") in ("+I", "+U") else -1
        counts[tuple(row.values())] += sign
    return counts


@pytest.mark.campaign(2)
@pytest.mark.parametrize("seed", range(12))
def test_live_joins_and_those_from_the_log_agree_with_the_nested_loop(seed: int) -> None:
    """Versions come and go; the engine from the log is made anew before each micro-batch."""
    chance = random.Random(seed)
    batches: dict[str, list[list[dict[str, Any]]]] = {"R": [], "S": []}
    references: dict[str, BranchReference] = {}
    outputs: dict[str, Any] = {}
    counts: list[dict[str, Counter[Any]]] = [{}, {}]
    sources = Sources([eddy.Stream(name, SCHEMA, time="t") for name in "RS"], alone=True)
    watermarks: list[int | None] = []
    chains: dict[str, str] = {}
    """By changelog the one from which it has been handed over."""

    def task(key: str) -> VersionTask:
        version = references[key]
        old = (task(chains[key]),) if key in chains else ()
        return VersionTask(
            key, 0, version.start, version.warm, None, None, False, "", True, outputs[key], version.warm, old
        )

    def given(results: dict[str, Counter[Any]], key: str) -> Counter[Any]:
        """Return what a changelog adds up to, with those from which it has been handed over."""
        total = Counter(results.get(key, Counter()))
        if key in chains:
            total.update(given(results, chains[key]))
        return total

    def logged(until: int) -> dict[str, pa.RecordBatch | None]:
        schema = SCHEMA.append(pa.field(POSITION, pa.int64()))
        return {
            name: pa.RecordBatch.from_pylist(
                [{**row, POSITION: n} for n, rows in enumerate(parts[:until]) for row in rows], schema=schema
            )
            if until
            else None
            for name, parts in batches.items()
        }

    live, drained = GroupQueries(sources, EngineOptions(), times), 0
    for batch in range(10):
        handed: dict[str, tuple[str, BranchReference]] = {}
        for key, reference in references.items():
            if reference.stop is None and chance.random() < 0.2:
                references[key] = replace(reference, stop=batch)
                if outputs[key] == "changelog" and chance.random() < 0.6:
                    kind = chance.choice(KINDS[1:3] if reference.kind in KINDS[1:3] else ("left", "inner"))
                    ranges = chance.randrange(5, 40), chance.randrange(5, 40)
                    handed[str(len(references) + len(handed))] = key, BranchReference(kind, ranges, batch, warm=True)
        for key, (old, reference) in handed.items():
            references[key], outputs[key], chains[key] = reference, "changelog", old
        for _ in range(chance.choice([0, 1, 1, 2]) if batch else 3):
            key, kind = str(len(references)), chance.choice(KINDS)
            outputs[key] = "changelog" if kind == "inner" else chance.choice(["append", "changelog"])
            ranges = chance.randrange(5, 40), chance.randrange(5, 40)
            references[key] = BranchReference(kind, ranges, batch, chance.random() < 0.5)
        rows = {}
        for name, parts in batches.items():
            low = 15 * batch
            parts.append(
                [
                    {"k": chance.choice([0, 1, 2, 3, None]), "t": t, "v": 1000 * batch + n}
                    for n, t in enumerate(sorted(low + chance.randrange(30) for _ in range(12)))
                ]
            )
            rows[name] = pa.Table.from_pylist(parts[-1] if chance.random() < 0.9 else [], schema=SCHEMA)
            parts[-1] = rows[name].to_pylist()
        before, after = (15 * batch or None), 15 * (batch + 1)
        watermarks.append(after)
        versions = [
            (
                task(key),
                branched(version.kind, version.ranges),
            )
            for key, version in references.items()
            if version.stop is None
        ]
        for results, engine in zip(counts, (live, GroupQueries(sources, EngineOptions(), times)), strict=True):
            marks = [-FOREVER if mark is None else mark for mark in (before, after)]
            queries = {key: branched(version.kind, version.ranges) for key, version in references.items()}
            engine.adapt(versions, batch, lambda batch=batch: logged(batch), marks[0], queries)  # type: ignore[misc]
            now = {name: table.to_batches()[0] if len(table) else None for name, table in rows.items()}
            waited = logged(batch) if before is not None else {}
            parts_of = [*engine.push(rows, batch, marks[1])]
            parts_of += [*engine.pass_rows(waited, now, *marks)]
            for part in parts_of:
                results.setdefault(part.key, Counter()).update(counted(part.results))
            assert not any(engine.late_counts.values())
        for key, reference in references.items():
            if outputs[key] == "changelog" and reference.stop is None:
                wanted = reference.answer({name: parts[: batch + 1] for name, parts in batches.items()}, after)
                drained += wanted.total()
                for results in counts:
                    assert +given(results, key) == wanted, (key, reference, batch)
    for key, reference in references.items():
        if outputs[key] == "append":
            wanted = reference.results(batches, watermarks)
            drained += wanted.total()
            for results in counts:
                assert results.get(key, Counter()) == wanted, (key, reference)
    assert drained > 300


OLD, NEW = (30, 20), (45, 40)


def watermarks_of(rows: DrawnRows, names: str = "RS") -> list[int | None]:
    """Return the watermark after each micro-batch."""
    count = len(rows.batches["R"])
    return [
        min(max(row["t"] for part in rows.batches[name][: n + 1] for row in part) for name in names) - 60
        for n in range(count)
    ]


def pairs_of(ranges: tuple[int, int], **more: Any) -> eddy.Query:
    base = branched("inner", ranges)
    return eddy.Query(base.streams, base.on, **more)


SUMS: dict[str, Any] = {"group_by": {"r": "R.v"}, "aggregates": {"n": eddy.agg.count(), "most": eddy.agg.max("S.v")}}


def sums(results: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return the groups of pairs."""
    groups: dict[Any, list[Any]] = {}
    for r, s in results.elements():
        groups.setdefault(r, []).append(s)
    return Counter((r, len(values), max(values)) for r, values in groups.items())


@pytest.mark.campaign(1)
@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_each_query_has_what_the_nested_loop_finds(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a restart, changes, and engines that are live or come from the log."""
    rows = DrawnRows(tmp_path / "in", 7, "RS", nulls=0.2)
    left = eddy.Query(branched("left", OLD).streams[:1], branches=branched("left", OLD).branches)
    queries: dict[str, tuple[eddy.Query, dict[str, Any]]] = {
        "left": (branched("left", OLD), {}),
        "semi": (branched("semi", OLD), {"at": 2, "warm": True}),
        "anti": (branched("anti", OLD), {}),
        "later": (branched("anti", OLD), {"at": 3}),
        "changes": (branched("inner", OLD), {"output": "changelog"}),
        "lacking": (branched("left", OLD), {"output": "changelog", "at": 2, "warm": True}),
        "live": (pairs_of(OLD, **SUMS), {}),
        "all": (pairs_of(OLD, expiry="final", **SUMS), {"at": 1}),
        "first": (pairs_of(OLD, expiry="final", top=eddy.Top(3, order=["n desc", "r"]), **SUMS), {}),
        "best": (
            pairs_of(OLD, expiry="final", select={"r": "R.v", "s": "S.v"}, top=eddy.Top(5, order=["R.v desc", "S.v"])),
            {},
        ),
        "rows": (eddy.Query([replace(left.streams[0], filter=pc.field("v") >= 50)], select={"r": "R.v"}), {}),
        "windows": (
            eddy.Query(left.streams[:1], branches=left.branches, group_by={}, group_window=eddy.Tumbling(20, "R.t"),
                       aggregates={"rows": eddy.agg.count(), "pairs": eddy.agg.count("S.v")}),
            {},
        ),
    }  # fmt: skip
    acts: list[Callable[[int], None]] = [lambda batch: None]
    if engines == "loaded":
        monkeypatch.setattr(compaction, "MERGED", 2)
    for again in (False, True):
        for _ in range(6):
            rows.add(15)
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
        for name, (query, how) in queries.items():
            now = {key: value for key, value in how.items() if not (again and key == "at")}
            sink = Acting(tmp_path / name, lambda batch: acts[-1](batch)) if name == "live" else tmp_path / name
            if again and name in ("left", "lacking"):
                # The old answer of a changelog is taken back.
                now |= {"how": "handover", "earlier": [query]}
                now.pop("warm", None)
                query = branched("left", NEW)
            hub.start(name, query, sink, **now)
        if not again:
            hub["anti"].stop(at=5)
            hub["semi"].change(branched("semi", NEW), how="immediate", at=4)
            queries["semi"] = branched("semi", NEW), {}
            del queries["anti"]
            hub["changes"].change(branched("inner", NEW), how="handover", at=4)
            queries["changes"] = branched("inner", NEW), queries["changes"][1]
        running = hub.run(availableNow=True)
        if engines == "loaded":
            acts.append(lambda batch, running=running: running.forget_engines())  # type: ignore[misc]
        finished(running)
        assert (running.groups()["source"].to_pylist().count("loaded") > 12) == (engines == "loaded")
    marks = watermarks_of(rows)
    final: dict[str, list[BranchReference]] = {
        "left": [BranchReference("left", OLD, stop=6), BranchReference("left", NEW, 6, warm=True)],
        "semi": [BranchReference("semi", OLD, 2, warm=True, stop=4), BranchReference("semi", NEW, 4)],
        "anti": [BranchReference("anti", OLD, stop=5)],
        "later": [BranchReference("anti", OLD, 3)],
    }
    for name, versions in final.items():
        wanted = sum((version.results(rows.batches, marks) for version in versions), Counter())
        assert results_of(tmp_path / name) == wanted, name
        assert wanted.total() > 1
    pairs = BranchReference("inner", OLD)
    answers = {
        "changes": BranchReference("inner", NEW).answer(rows.batches, marks[-1]),
        "lacking": BranchReference("left", NEW).answer(rows.batches, marks[-1]),
        "live": sums(pairs.answer(rows.batches, marks[-1])),
        "all": sums(BranchReference("inner", OLD, 1).results(rows.batches, marks)),
        "first": Counter(sorted(sums(pairs.results(rows.batches, marks)), key=lambda row: (-row[1], row[0]))[:3]),
        "best": Counter(sorted(pairs.results(rows.batches, marks).elements(), key=lambda row: (-row[0], row[1]))[:5]),
    }
    for name, wanted in answers.items():
        assert total(tmp_path / name) == wanted, name
        assert wanted
        assert "-D" in published(tmp_path / name).column("op").to_pylist()
    assert results_of(tmp_path / "rows") == Counter(
        (row["v"],) for part in rows.batches["R"] for row in part if row["v"] >= 50
    )
    windows: dict[int, list[Any]] = {}
    for t, s in BranchReference("left", OLD, shown="t").results(rows.batches, marks).elements():
        windows.setdefault(t // 20 * 20, []).append(s)
    counts = {begin: (begin, begin + 20, len(s), len(s) - s.count(None)) for begin, s in windows.items()}
    shown = results_of(tmp_path / "windows")
    assert shown == Counter(counts[begin] for begin, *_ in shown)
    assert {begin for begin, *_ in shown} >= {begin for begin in counts if begin + 20 + max(OLD) < marks[-1]}
    assert len(shown) > 2


TABLE_QUERIES = [name for name in NAMES if name not in ("all rows move", "a chain")] + ["a full join"]
TABLE_KEYS = {"S": "who", "U": "who", "R": "ref", "T": "id"}


@pytest.mark.campaign(1)
@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_each_query_over_tables_has_its_answer(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the table R move between key groups. Some queries start later, when tables have rows."""
    inputs, chance = Inputs(tmp_path / "in", **SCHEMAS), random.Random(8)
    acts: list[Callable[[int], None]] = [lambda batch: None]
    sums = eddy.Query(
        joined("rows that move")[0].streams,
        ["R.ref = T.id"],
        group_by=["T.name"],
        aggregates={"n": eddy.agg.count(), "total": eddy.agg.sum("R.z")},
    )
    if engines == "loaded":
        monkeypatch.setattr(compaction, "MERGED", 2)
    for again in (False, True):
        for file in range(4 * again, 4 * again + 4):
            inputs.add_together(
                # In each third file, most groups have changes of tables only.
                {
                    name: rows(chance, file, 1 if file % 3 == 2 else 20) if name in "SU" else changes(chance, file)
                    for name in SCHEMAS
                }
            )
        hub = hub_with_tables(spark, inputs, tmp_path / "state", lateness=LATENESS)
        for name in TABLE_QUERIES:
            how: dict[str, Any] = options(name)
            if name in ("rows that move", "a left join", "filtered") and not again:
                how |= {"at": 2}
            if name == "by the key of the table":
                sink = Acting(tmp_path / name, lambda batch: acts[-1](batch))
            else:
                sink = ParquetSink(tmp_path / name)
            hub.start(name.replace(" ", "-"), joined(name, 0)[0], sink, **how)
        hub.start("sums", sums, tmp_path / "sums", **({} if again else {"at": 2}))
        moving = hub.start("moving", joined("filtered" if again else "rows that move")[0], tmp_path / "moving")
        if not again:
            moving.change(joined("filtered")[0], at=3)
        running = hub.run(availableNow=True)
        if engines == "loaded":
            acts.append(lambda batch, running=running: running.forget_engines())  # type: ignore[misc]
        finished(running)
        watermark = int(running.batches()["watermark"][-1].as_py())
        for name in TABLE_QUERIES:
            query, oracle = joined(name)
            wanted = answer(query, oracle, inputs, watermark if "window" in name else None)
            assert total(tmp_path / name) == wanted, name
            assert wanted
        assert total(tmp_path / "moving") == total(tmp_path / "filtered")
        groups: dict[Any, list[int]] = {}
        pairs = answer(joined("rows that move")[0], joined("rows that move")[1], inputs)
        columns = joined("rows that move")[0].output_schema.names
        for row in pairs.elements():
            shown = dict(zip(columns, row, strict=True))
            groups.setdefault(shown["T.name"], []).append(shown["R.z"])
        assert total(tmp_path / "sums") == Counter((name, len(z), sum(z)) for name, z in groups.items())
        sources_of = running.groups()["source"].to_pylist()
        assert (sources_of.count("loaded") > 8) == (engines == "loaded")
    assert "-D" in published(tmp_path / "a left join").column("op").to_pylist()


def as_of(names: str, ranges: tuple[int, int], how: Any, least: int = 0) -> eddy.Query:
    """Return a join of streams, whose rows of R get the version of V at their time."""
    keep = pc.field("v") >= least if least else None
    streams = [
        eddy.Stream(name, SCHEMA, window=eddy.Range(size), time="t", filter=keep if name == "R" else None)
        for name, size in zip(names, ranges, strict=False)
    ]
    versions = [eddy.AsOf(VERSIONS, ["R.k = V.k"], how=how, at="R.t")]
    return eddy.Query(
        streams, ["R.k = S.k"] if len(names) > 1 else [], as_of=versions, select={"r": "R.v", "t": "R.t", "v": "V.v"}
    )


VERSIONS = eddy.VersionedTable("V", SCHEMA, key="k", time="t")


@pytest.mark.campaign(1)
@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_rows_get_the_version_at_their_time(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = DrawnRows(tmp_path / "in", 9, "RSV", nulls=0.1)
    acts: list[Callable[[int], None]] = [lambda batch: None]
    if engines == "loaded":
        monkeypatch.setattr(compaction, "MERGED", 2)
    for again in (False, True):
        for _ in range(5):
            rows.add(15)
            for row in rows.batches["V"][-1]:
                row["k"] = row["k"] or 0  # a version has a key
            rows.inputs.tables["V"].pop()
            rows.inputs.add("V", rows.batches["V"][-1])
        sources = [
            Source(
                VERSIONS if name == "V" else eddy.Stream(name, SCHEMA, window=eddy.Range(60), time="t"),
                rows.inputs.frame(spark, name),
                "k",
            )
            for name in "VRS"
        ]
        known = eddy.Table("D", SCHEMA, key=["k", "t"], version="v")
        sources.append(Source(known, rows.inputs.frame(spark, "V"), "k"))
        hub = Hub(spark, sources, tmp_path / "state", lateness=60, key_groups=4)
        hub.start("known", eddy.Query([known], select={"k": "D.k", "t": "D.t", "v": "D.v"}), tmp_path / "known")
        sink = Acting(tmp_path / "left", lambda batch: acts[-1](batch))
        hub.start(
            "left",
            as_of("R", OLD, "left", 30 if again else 0),
            sink,
            how="handover" if again else None,
        )
        hub.start("later", as_of("R", OLD, "inner"), tmp_path / "later", at=None if again else 2)
        hub.start("both", as_of("RS", OLD, "left"), tmp_path / "both")
        hub.start("pairs", branched("inner", OLD), tmp_path / "pairs")
        running = hub.run(availableNow=True)
        if engines == "loaded":
            acts.append(lambda batch, running=running: running.forget_engines())  # type: ignore[misc]
        finished(running)
        assert (running.groups()["source"].to_pylist().count("loaded") > 10) == (engines == "loaded")
    marks, batches = watermarks_of(rows, "RSV"), rows.batches
    newest: dict[Any, int] = {}
    for row in (row for part in batches["V"] for row in part):
        newest[row["k"], row["t"]] = max(row["v"], newest.get((row["k"], row["t"]), 0))
    assert total(tmp_path / "known") == Counter((*key, v) for key, v in newest.items())

    def version(row: Any) -> int | None:
        known = [
            (other["t"], number, other["v"])
            for number, part in enumerate(batches["V"])
            for other in part
            if other["k"] == row["k"] and other["t"] <= row["t"]
        ]
        return max(known)[2] if known else None

    left: Counter[Any] = Counter()
    later: Counter[Any] = Counter()
    both: Counter[Any] = Counter()
    pairs, others = BranchReference("inner", OLD), [(0, row) for part in batches["S"] for row in part]
    for number, part in enumerate(batches["R"]):
        for row in part:
            passed = (e for e, mark in enumerate(marks) if e >= number and mark is not None and mark > row["t"])
            given = next(passed, None)
            shown = (row["v"], row["t"], version(row))
            if given is not None:
                left[shown] += given < 5 or row["v"] >= 30
                later[shown] += number >= 2 and shown[2] is not None
                both[shown] += len(pairs.partners(row, others))
    for name, wanted in {"left": left, "later": later, "both": both}.items():
        assert results_of(tmp_path / name) == +wanted, name
        assert (+wanted).total() > 10
    assert results_of(tmp_path / "pairs") == pairs.results(batches, marks)


def test_what_these_queries_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 3, "RS")
    rows.add()
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    changes = hub.start("changes", branched("inner", OLD), tmp_path / "changes", output="changelog")
    left = hub.start("left", branched("left", OLD), tmp_path / "left")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: changes.stop("drain"), "'drain' has no meaning for a changelog on a hub"),
        (
            lambda: changes.change(branched("inner", NEW), "graceful"),
            "'graceful' has no meaning for a changelog",
        ),
        (lambda: changes.change(branched("inner", NEW)), "does not keep those of stream 'R'"),
        (lambda: left.stop("drain"), "the drain has no meaning for a query with branches"),
        (lambda: left.change(branched("left", NEW), "drain-stream"), "has no meaning for a query with branches"),
        (
            lambda: hub.start("warm", branched("inner", OLD), tmp_path / "warm", output="changelog", warm=True),
            "a warm start of a changelog computes its answer from the rows in all windows",
        ),
        (
            lambda: hub.start("other", branched("inner", OLD), tmp_path / "other", output="upsert"),  # type: ignore[arg-type]
            "output='upsert': pass 'append' or 'changelog'",
        ),
    ]
    for call, message in refused:
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(QueryError, match="the results of the new version have the columns op string, r int64"):
        left.change(pairs_of(OLD, expiry="final", select={"r": "R.v", "s": "S.v"}, top=eddy.Top(1)), "immediate")
    finished(hub.run(availableNow=True))
    for how in ("drain-stream", "graceful"):
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=90)
        earlier = [branched("left", OLD)]
        hub.start("left", branched("left", NEW), tmp_path / "left", how=how, earlier=earlier)  # type: ignore[arg-type]
        hub.start("changes", branched("inner", OLD), tmp_path / "changes", output="changelog")
        with pytest.raises(InputError, match="has no meaning for a query with branches"):
            hub.run(availableNow=True)
    for query, how, message in (
        (
            branched("inner", NEW),
            {"output": "changelog", "how": "handover"},
            "version 0 has an answer to take back",
        ),
        (branched("inner", OLD), {}, "its output is 'append', and 'changelog' in the checkpoint"),
    ):
        hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=90)
        hub.start("left", branched("left", OLD), tmp_path / "left")
        hub.start("changes", query, tmp_path / "changes", **how)  # type: ignore[arg-type]
        with pytest.raises(SparkJoinError, match=message):
            hub.run(availableNow=True)


def hub_with_tables(spark: SparkSession, inputs: Inputs, state: Path, **how: Any) -> Hub:
    """Return a hub with the streams and tables of `TABLE_QUERIES`, or some of them."""
    sources = []
    for name in inputs.schemas:
        stream = eddy.Stream(name, ROWS, time="t") if name in "SU" else table(name)
        sources.append(Source(stream, inputs.frame(spark, name), TABLE_KEYS[name]))
    return Hub(spark, sources, state, key_groups=4, **how)


@pytest.mark.parametrize("changed", [False, True])
def test_changes_of_a_table_hold_no_result_of_streams_back(spark: SparkSession, tmp_path: Path, changed: bool) -> None:
    """They come into groups with rows of streams, and into others."""
    inputs = Inputs(tmp_path / "in", **{name: SCHEMAS[name] for name in "SUT"})

    def row(who: int, n: int, t: int) -> dict[str, Any]:
        return {"who": who, "n": n, "t": t}

    later = [{"id": k, "ref": 0, "name": "y", "z": 2, "op": "c"} for k in range(12)] if changed else []
    first = [{"id": 1, "ref": 0, "name": "x", "z": 1, "op": "c"}]
    inputs.add_together({"S": [row(1, 1, 100)], "U": [row(1, 2, 10)], "T": first})
    inputs.add_together({"S": [row(1, 3, 120), row(50, 9, 1000)], "U": [row(50, 9, 1000)], "T": later})
    inputs.add_together({"S": [row(50, 10, 1001)], "U": [row(50, 10, 1001)], "T": []})
    hub = hub_with_tables(spark, inputs, tmp_path / "state", lateness=0)
    left, right = (eddy.Stream(name, ROWS, window=eddy.Range(10), time="t") for name in "SU")
    asked = eddy.Query([left], branches=[eddy.Branch([right], ["S.who = U.who"], "anti")], select={"n": "S.n"})
    hub.start("alone", asked, tmp_path / "alone").stop(at=2)
    finished(hub.run(availableNow=True))
    assert results_of(tmp_path / "alone") == Counter([(1,), (3,)])


def test_an_answer_and_the_changes_of_its_micro_batch_are_one_difference(spark: SparkSession, tmp_path: Path) -> None:
    """A query starts, or is handed over to, in a micro-batch that also changes rows of its answer."""

    def change(number: int, version: int, op: str = "c", name: str = "x") -> dict[str, Any]:
        return {"id": number, "ref": number, "name": name, "z": version, "op": op}

    def asked(most: int, **more: Any) -> eddy.Query:
        kept = table("R", filter=pc.field("ref") < most)
        return eddy.Query([kept, table("T")], ["R.ref = T.id"], select={"a": "R.id", "b": "R.name"}, **more)

    inputs = Inputs(tmp_path / "in", R=SCHEMAS["R"], T=SCHEMAS["T"])
    inputs.add_together({name: [change(number, 1) for number in (1, 2, 3)] for name in "RT"})
    inputs.add_together({"R": [change(1, 2, "d"), change(2, 2, name="y")], "T": [change(7, 1)]})
    hub = hub_with_tables(spark, inputs, tmp_path / "state")
    hub.start("started", asked(9), DeltaSink(tmp_path / "started", key="a"), at=1)
    hub.start("handed", asked(2), DeltaSink(tmp_path / "handed", key="a")).change(asked(9), at=1)
    hub.start("first", asked(9, top=eddy.Top(3, order=["R.id"])), tmp_path / "first", at=1)
    finished(hub.run(availableNow=True))
    for name in ("started", "handed"):
        kept = DeltaTable(str(tmp_path / name)).to_pyarrow_table().select(["a", "b"]).to_pylist()
        assert sorted(map(tuple, map(dict.values, kept))) == [(2, "y"), (3, "x")], name
    assert total(tmp_path / "first") == Counter([(2, "y"), (3, "x")])


def test_rows_on_which_a_filter_fails_end_no_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = DrawnRows(tmp_path / "in", 4, "RS")
    for _ in range(4):
        rows.add()
    rows.inputs.add("R", [{"k": 1, "t": 90, "v": 0}, {"k": 2, "t": 90, "v": 0}])
    rows.inputs.add("S", [{"k": 9, "t": 90, "v": 5}])
    divided = pc.divide(pc.scalar(100), pc.field("v")) > 1
    left = branched("left", OLD)
    failing = eddy.Query(
        [replace(left.streams[0], filter=divided)], branches=left.branches, select={"r": "R.v", "s": "S.v"}
    )
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    hub.start("failing", failing, tmp_path / "failing")
    hub.start("pairs", branched("inner", OLD), tmp_path / "pairs")
    running = finished(hub.run(availableNow=True))
    zeros = sum(row["v"] == 0 for table_rows in rows.inputs.tables["R"] for row in table_rows.to_pylist())
    failed = [(row["query"], row["kind"]) for row in running.failed().collect()]
    assert failed == [("failing", "filter")] * zeros
    assert zeros >= 2
    assert results_of(tmp_path / "pairs").total() > 20
    assert all(r != 0 for r, _ in results_of(tmp_path / "failing"))


@pytest.mark.parametrize("name", ["before", "warm", "tables"])
def test_a_version_has_results_in_groups_without_new_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Rows that have waited, in a version from before and in one that starts warm; and the answer over tables."""
    inputs = Inputs(tmp_path / "in", **SCHEMAS)
    keys = range(8)

    def changed(number: int) -> dict[str, Any]:
        return {"id": number, "ref": number, "name": "x", "z": 1, "op": "c"}

    inputs.add_together(
        {
            "S": [{"who": key, "n": key, "t": 100} for key in keys],
            "U": [{"who": 0, "n": 0, "t": 100}],
            "R": [changed(key) for key in keys],
            "T": [changed(key) for key in keys],
        }
    )
    far = [{"who": 8, "n": 8, "t": 500}]
    inputs.add_together({"S": far, "U": far, "R": [], "T": []})
    hub = hub_with_tables(spark, inputs, tmp_path / "state", lateness=0)
    left, right = (eddy.Stream(name, ROWS, window=eddy.Range(10), time="t") for name in "SU")
    lacking = eddy.Query([left], branches=[eddy.Branch([right], ["S.who = U.who"], "anti")], select={"n": "S.n"})
    of_tables = eddy.Query([table("R"), table("T")], ["R.ref = T.id"], select={"id": "R.id"})
    how: dict[str, Any] = {"before": {}, "warm": {"warm": True, "at": 1}, "tables": {"at": 1}}[name]
    hub.start(name, of_tables if name == "tables" else lacking, tmp_path / name, **how)
    finished(hub.run(availableNow=True))
    wanted = Counter((key,) for key in keys[name != "tables" :])
    assert (total if name == "tables" else results_of)(tmp_path / name) == wanted


def test_the_log_keeps_the_rows_that_queries_need(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources without windows; before each micro-batch the engines are loaded from a log that is compacted."""
    monkeypatch.setattr(compaction, "MERGED", 2)
    rows = DrawnRows(tmp_path / "in", 12, "RS", nulls=0.1)
    for _ in range(12):
        rows.add(10)
    hub = hub_of(spark, rows.inputs, tmp_path / "state")
    sink = Acting(tmp_path / "left", lambda batch: running.forget_engines())
    hub.start("left", branched("left", (30, 45)), sink)
    hub.start("changes", branched("left", (30, 45)), tmp_path / "changes", output="changelog", at=2)
    running = hub.run(availableNow=True)
    finished(running)
    marks = watermarks_of(rows)
    assert results_of(tmp_path / "left") == BranchReference("left", (30, 45)).results(rows.batches, marks)
    assert total(tmp_path / "changes") == BranchReference("left", (30, 45), 2).answer(rows.batches, marks[-1])
    assert list((tmp_path / "state" / "log").glob("*-base-*"))
