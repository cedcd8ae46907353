"""The parts of a hub without Spark: keys, elements, saved queries, compaction between bounds, engines of key groups."""

from __future__ import annotations

import copy
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import InputError, QueryError
from eddy.queries.sources import POSITION, Sources
from eddy.spark import SparkJoinError, StreamingStateError
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.streaming.driver.maintenance import mergeable
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.hub.elements import ChangeElement, Element, Elements, StartElement, StopElement, When
from eddy.spark.streaming.hub.queries import HubQueries
from eddy.spark.streaming.hub.query_sinks import QuerySinks
from eddy.spark.streaming.hub.saved import SAVED
from eddy.spark.streaming.hub.sources import HubStreams, Source
from eddy.spark.streaming.sinks import NullSink
from eddy.spark.streaming.state.compaction import MERGED, Horizon
from eddy.spark.streaming.state.manifest import ManifestLink
from eddy.spark.streaming.worker.group_queries import GroupQueries
from eddy.spark.streaming.worker.tasks import VersionTask
from stairs.storage.json_form import FormError
from tests.spark.streaming.hub_jobs import times
from tests.spark.streaming.hub_reference import HubReferenceQuery, HubReferenceVersion
from tests.spark.streaming.manifests import make_segment

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("t", pa.int64()), ("v", pa.int64())])


def query(on: list[str], ranges: dict[str, int] | None = None, least: int = 0) -> eddy.Query:
    keep = pc.field("v") >= least if least else None
    streams = [
        eddy.Stream(name, SCHEMA, window=eddy.Range(d), time="t", filter=keep)
        for name, d in (ranges or {"R": 9, "S": 9}).items()
    ]
    return eddy.Query(streams, on, select={"r": "R.v", "s": "S.v"})


def hub_streams(keys: dict[str, Any]) -> HubStreams:
    return HubStreams([Source(eddy.Stream(n, SCHEMA, time="t"), None, key) for n, key in keys.items()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "on", "fits"),
    [
        ({"R": "k", "S": "k"}, ["R.k = S.k"], True),
        ({"R": "k", "S": "v"}, ["R.k = S.v"], True),
        ({"R": "k", "S": "v"}, ["R.k = S.k"], False),
        ({"R": "k", "S": "k"}, ["R.k = S.k", "R.j = S.j"], True),
        ({"R": ("k", "j"), "S": ("k", "j")}, ["R.k = S.k", "R.j = S.j"], True),
        ({"R": ("k", "j"), "S": ("k", "j")}, ["(R.k, R.j) = (S.k, S.j)"], True),
        ({"R": ("k", "j"), "S": ("k", "j")}, ["R.k = S.k"], False),
        ({"R": "k", "S": "k"}, ["(R.k, R.j) = (S.k, S.j)"], True),
        ({"R": "k", "S": "k", "T": "k"}, ["R.k = S.k"], True),
        ({"R": "v", "S": "v"}, ["(R.k, R.v) = (S.v, S.k)"], False),
        ({"R": ("k", "v"), "S": ("v", "k")}, ["(R.k, R.v) = (S.v, S.k)"], True),
        ({"R": "k", "S": "k"}, ["R.v = S.v", "R.k = S.k"], True),
    ],
)
def test_a_query_fits_if_its_equalities_make_the_keys_equal(keys: dict[str, Any], on: list[str], fits: bool) -> None:
    streams, inner = hub_streams(keys), query(on)
    branch = eddy.Branch(inner.streams[1:], on, "left")
    for asked in (inner, eddy.Query(inner.streams[:1], branches=[branch])):
        if fits:
            streams.check("pairs", asked)
        else:
            with pytest.raises(QueryError, match="do not make the keys of its streams equal"):
                streams.check("pairs", asked)


def test_a_version_is_in_the_group_of_the_rows_that_ask_for_it() -> None:
    """Each column of the key has to be looked up by the key of the rows, or by a column that equals it."""
    rates = eddy.VersionedTable("V", SCHEMA, key=["k", "v"], time="t")
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"]

    def hub(rows: Any, versions: Any) -> HubStreams:
        keys = [*((stream, rows) for stream in streams), (rates, versions)]
        return HubStreams([Source(stream, None, key) for stream, key in keys])  # type: ignore[arg-type]

    on = ["(R.k, R.v) = (S.k, S.v)"]
    for names, fits in ((("R.k", "R.v"), True), (("S.k", "R.v"), True), (("R.v", "R.k"), False)):
        asked = [eddy.AsOf(rates, [f"{names[0]} = V.k", f"{names[1]} = V.v"], at="R.t")]
        for key in (("k", "v"), ("v", "k")):
            if fits:
                hub(key, key).check("rated", eddy.Query(streams, on, as_of=asked))
            else:
                with pytest.raises(QueryError, match="do not make the keys of its streams equal"):
                    hub(key, key).check("rated", eddy.Query(streams, on, as_of=asked))
    with pytest.raises(SparkJoinError, match="stream 'V': a versioned table is dealt by its key: pass key=k, v"):
        hub("k", "k")


def test_sources_that_do_not_fit_together_are_refused() -> None:
    dictionary = pa.schema([("k", pa.dictionary(pa.int8(), pa.string())), ("t", pa.int64())])
    late = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    usual = Source(eddy.Stream("R", SCHEMA, time="t"), None, "k")  # type: ignore[arg-type]
    for stream, key, message in (
        (eddy.Stream("S", dictionary, time="t"), "k", "declare it as string"),
        (eddy.Stream("S", late, time="t"), "k", "of all streams of a hub have one type"),
        (eddy.Stream("S", SCHEMA, time="t"), ("k", "j"), "have as many columns"),
        (eddy.Stream("S", SCHEMA, time="t"), ("k", "k"), "no list of different columns"),
    ):
        with pytest.raises(SparkJoinError, match=message):
            HubStreams([usual, Source(stream, None, key)])  # type: ignore[arg-type]
    with pytest.raises(SparkJoinError, match="2 streams or more"):
        HubStreams([usual])
    quoted = eddy.Stream('odd "name"', SCHEMA, time="t")
    assert HubStreams([usual, Source(quoted, None, "k")]).base.index('odd "name"') == 1  # type: ignore[arg-type]


def test_elements_of_a_query_keep_their_order() -> None:
    elements, taken = Elements(), list[Element]()
    first = StopElement("a", When(time=50), "drain")
    second, other = StopElement("a", When(), "immediate"), StopElement("b", When(batch=3), "immediate")
    elements.waiting = [first, second, other]
    elements.take(2, 49, taken.append)
    assert not taken
    elements.take(3, None, taken.append)
    assert taken == [other]
    elements.take(4, 50, taken.append)
    assert taken == [other, first, second]
    assert not elements.waiting


# Saved queries


def running() -> tuple[HubQueries, dict[str, Any]]:
    """Return queries in the middle of changes after batch 5, and what its manifest saves."""
    queries = made()
    watermarks = Watermarks((10, 10), (0.0, 0.0), (0, 0), 0)
    queries.give(StartElement("one", When(), PAIRS, NullSink(), False))
    queries.give(StartElement("two", When(), PAIRS, NullSink(), True))
    queries.begin(4, watermarks)
    queries.owned(4, watermarks, {})
    queries.give(ChangeElement("one", When(), WIDE, "delayed-drain"))
    queries.give(ChangeElement("two", When(), WIDE, "graceful"))
    queries.begin(5, watermarks)
    _, saved = queries.owned(5, watermarks, {})
    return queries, json.loads(json.dumps(saved))


def made() -> HubQueries:
    return HubQueries(hub_streams({"R": "k", "S": "k"}), QuerySinks())


PAIRS, WIDE = query(["R.k = S.k"]), query(["R.k = S.k"], {"R": 20, "S": 20})


def resumed(saved: dict[str, Any]) -> HubQueries:
    queries = made()
    for name in ("one", "two"):
        start = StartElement(name, When(), WIDE, NullSink(), False, earlier=(PAIRS,))
        queries.give(start)
        queries.sinks.put(name, start.sink, WIDE.output_schema)
    SAVED(saved, "hub")
    queries.restore(saved, 5, True)
    return queries


def test_saved_queries_resume_as_they_were() -> None:
    before, saved = running()
    after = resumed(copy.deepcopy(saved))
    watermarks = Watermarks((80, 80), (0.0, 0.0), (30, 30), 30)
    for queries in (before, after):
        queries.begin(6, watermarks)
    assert [(t.number, t.start, t.warm, t.drain, t.splits) for t in before.versions(6)] == [
        (t.number, t.start, t.warm, t.drain, t.splits) for t in after.versions(6)
    ]
    # The watermark has passed the windows, so the version that waited begins.
    saves = [queries.owned(6, watermarks, {})[1] for queries in (before, after)]
    assert saves[0] == saves[1]
    assert [version["start"] for version in saves[0]["lives"]["one"]["versions"]] == [7]
    assert before.bounds() == after.bounds() == {7, 5}
    assert before.spans() == after.spans() == (20, 20)


Edit = Callable[[dict[str, Any]], Any]
EDITS: list[Edit] = [
    lambda saved: saved.pop("horizon"),
    lambda saved: saved.update(horizon=[None]),
    lambda saved: saved.update(more=1),
    lambda saved: saved["lives"].update(one={"versions": [], "successions": []}),
    lambda saved: saved["lives"]["one"]["versions"].reverse(),
    lambda saved: saved["lives"]["one"]["successions"].append([1, 0, "immediate"]),
    lambda saved: saved["lives"]["one"]["successions"].append([0, 9, "immediate"]),
    lambda saved: saved["lives"]["one"]["successions"].append([0, 1, "sudden"]),
    lambda saved: saved["lives"]["one"]["successions"].clear(),
    lambda saved: saved["lives"]["one"]["versions"][0].update(start=99),
    lambda saved: saved["lives"]["one"]["versions"][0].update(start=-1),
    lambda saved: saved["lives"]["one"]["versions"][0].update(number="0"),
    lambda saved: saved["lives"]["one"]["versions"][0].update(warm=1),
    lambda saved: saved["lives"]["one"]["versions"][0].update(drain=[99, [0, 0]]),
    lambda saved: saved["lives"]["one"]["versions"][0].update(drain=[5, [0]]),
    lambda saved: saved["lives"]["one"]["versions"][0].update(drain=[5, [0, 1 << 70]]),
    lambda saved: saved["lives"]["one"]["versions"][0]["query"].pop("streams"),
    lambda saved: saved["numbers"].clear(),
    lambda saved: saved["numbers"].update(one=1),
]


@pytest.mark.parametrize("edit", EDITS)
def test_saved_queries_that_were_forged_are_refused(edit: Edit) -> None:
    saved = running()[1]
    edit(saved)
    with pytest.raises((FormError, StreamingStateError)):
        resumed(saved)


def test_a_refused_restart_leaves_the_elements_for_another_attempt() -> None:
    saved = running()[1]
    queries = made()
    queries.give(StartElement("one", When(), WIDE, NullSink(), False, earlier=(PAIRS,)))
    for _ in range(2):
        with pytest.raises(SparkJoinError, match="'two', which was not started again"):
            queries.restore(saved, 5, True)
    queries.sinks.dropped.add("two")
    queries.restore(saved, 5, True)
    assert queries.waiting("one") == 0
    assert queries.lineage("two") is None


# Compaction


@given(st.lists(st.integers(1, 3), max_size=4 * MERGED), st.sets(st.integers(0, 70), max_size=5))
def test_links_on_both_sides_of_a_bound_are_not_merged(gaps: list[int], bounds: set[int]) -> None:
    batches = [sum(gaps[: k + 1]) for k in range(len(gaps))]
    chain = tuple(ManifestLink(batch, None, (make_segment(file=f"{batch:012d}-x", rows=5),)) for batch in batches)
    merged = [link.batch for link in mergeable(chain, Horizon(None, (None, None)), frozenset(bounds))]
    if merged:
        assert batches[batches.index(merged[0]) :][: len(merged)] == merged
        assert not any(merged[0] < bound <= merged[-1] for bound in bounds)
    elif not bounds:
        assert len(chain) < MERGED


# Engines of key groups


@pytest.mark.campaign(2)
@pytest.mark.parametrize("seed", range(12))
def test_a_live_engine_and_one_from_the_log_agree_with_the_nested_loop(seed: int) -> None:
    """Versions come and go; the engine from the log is made anew before each micro-batch."""
    chance = random.Random(seed)
    batches: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in "RST"}
    owned: dict[str, HubReferenceVersion] = {}
    asked: dict[str, eddy.Query] = {}
    numbers = iter(range(100))
    by_engine: list[dict[str, Counter[Any]]] = [{}, {}]
    sources = Sources([eddy.Stream(name, SCHEMA, time="t") for name in "RST"])
    live = GroupQueries(sources, EngineOptions(), times)
    for batch in range(8):
        for name, version in list(owned.items()):
            if version.stop is None and chance.random() < 0.25:
                # A version that drains stays until the end: the driver decides when it has ended.
                change = {"stop": batch} if version.drain is not None or chance.random() < 0.5 else {"drain": batch}
                owned[name] = HubReferenceVersion(**{**vars(version), **change})
        for _ in range(chance.choice([0, 1, 1, 2]) if batch else 2):
            names = chance.choice(["RS", "RS", "RST"])
            ranges = {name: chance.randrange(5, 40) for name in names}
            least, key = chance.choice([0, 40]), str(next(numbers))
            asked[key] = query([f"{name}.k = R.k" for name in names[1:]], ranges, least)
            keep = lambda row, least=least: row["v"] >= least  # noqa: E731
            owned[key] = HubReferenceVersion(
                HubReferenceQuery(ranges, {"r": ("R", "v"), "s": ("S", "v")}, keep), batch, chance.random() < 0.5
            )
        rows = {}
        for name, stream_batches in batches.items():
            moments = sorted(15 * batch + chance.randrange(15) for _ in range(20))
            stream_batches.append(
                [{"k": chance.randrange(4), "j": "x", "t": t, "v": chance.randrange(90)} for t in moments]
            )
            rows[name] = pa.Table.from_pylist(stream_batches[-1], schema=SCHEMA)
        versions = [
            (VersionTask(key, 0, version.start, version.warm, version.drain, None, False), asked[key])
            for key, version in owned.items()
            if version.stop is None
        ]

        def logged(until: int = batch) -> dict[str, pa.RecordBatch | None]:
            tables = {}
            for name, logged_batches in batches.items():
                placed = [
                    {**row, POSITION: number}
                    for number, batch_rows in enumerate(logged_batches[:until])
                    for row in batch_rows
                ]
                schema = SCHEMA.append(pa.field(POSITION, pa.int64()))
                tables[name] = pa.RecordBatch.from_pylist(placed, schema=schema) if until else None
            return tables

        watermark = 15 * batch
        for results, engine in zip(by_engine, (live, GroupQueries(sources, EngineOptions(), times)), strict=True):
            engine.adapt(versions, batch, logged, watermark, asked)
            for part in engine.push(rows, batch, watermark):
                pairs = zip(*(column.to_pylist() for column in part.results.columns), strict=True)
                results.setdefault(part.key, Counter()).update(pairs)
            assert not any(engine.late_counts.values())
    for key, reference in owned.items():
        wanted = reference.results(batches)
        for results in by_engine:
            assert results.get(key, Counter()) == wanted, (key, reference)
    assert sum(counts.total() for counts in by_engine[0].values()) > 200


def test_a_sink_is_prepared_for_the_query_that_it_serves(tmp_path: Path) -> None:
    """A sink has one schema: it is prepared again when a query with other columns begins, and not before."""
    seen: list[pa.Schema] = []

    class Recorded(NullSink):
        def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
            seen.append(schema)
            super().prepare(schema=schema, job=job, scratch=scratch)

    sinks, sink, other = QuerySinks(), Recorded(), Recorded()
    first, second = SCHEMA, pa.schema([("k", pa.int64())])
    sinks.make_ready("q", sink, first, [])
    sinks.put("q", sink, first)
    sinks.make_ready("q", other, second, [])  # waits for the end of the first query
    sinks.prepare(schema=SCHEMA, job="job", scratch=tmp_path)
    assert seen == [first, second]
    for schema in (second, first):
        sinks.make_ready("q", sink, schema, [])
        assert len(seen) in (2, 3)
        sinks.put("q", sink, schema)
        sinks.put("q", sink, schema)
    assert seen == [first, second, second, first]
    sinks.make_ready("q", other, second, [])
    sinks.put("q", other, second)
    assert len(seen) == 4


@pytest.mark.parametrize("published", [True, False])
def test_results_of_a_query_that_has_ended_come_to_its_own_sink_only(published: bool) -> None:
    queries, early, late = (
        made(),
        Watermarks((10, 10), (0.0, 0.0), (0, 0), 0),
        Watermarks((99, 99), (0.0, 0.0), (99, 99), 99),
    )
    queries.give(StartElement("one", When(), PAIRS, NullSink(), False))
    queries.begin(0, early)
    queries.owned(0, early, {})
    queries.give(StopElement("one", When(), "drain"))
    queries.begin(1, early)
    saved = json.loads(json.dumps(queries.owned(1, late, {})[1]))
    SAVED(saved, "hub")
    assert (list(saved["lives"]), list(saved["ended"])) == ([], ["one"])
    columns = eddy.Query(PAIRS.streams, PAIRS.on, select={"only": "R.v"})
    for asked, refused in ((PAIRS, False), (columns, not published)):
        queries = made()
        queries.give(StartElement("one", When(), asked, NullSink(), False))
        if refused:
            with pytest.raises(SparkJoinError, match="query 'one' of the checkpoint has ended with batch 1, whose"):
                queries.restore(saved, 1, published)
            queries.sinks.dropped.add("one")
        queries.restore(saved, 1, published)
        assert queries.waiting("one") == 1


def test_names_of_a_sink_that_two_queries_share_are_refused(tmp_path: Path) -> None:
    sinks, sink = QuerySinks(), NullSink()
    sinks.make_ready("one", sink, SCHEMA, [])
    sinks.put("one", sink, SCHEMA)
    with pytest.raises(SparkJoinError, match="query 'two': its sink is that of query 'one'"):
        sinks.make_ready("two", sink, SCHEMA, [])
    with pytest.raises(SparkJoinError, match="query 'two': its sink is that of query 'four'"):
        sinks.make_ready("two", waiting := NullSink(), SCHEMA, [("four", waiting)])
    with pytest.raises(SparkJoinError, match="query 'three' has results, and no sink"):
        sinks.publish(1, ["three/part-0.parquet"], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stop", "refused"), [("immediate", False), ("drain", True)])
def test_a_change_after_a_stop_that_waits_is_a_start(stop: Any, refused: bool) -> None:
    """The version that drains may still have results when the change takes effect."""
    queries = made()
    queries.give(StartElement("one", When(), PAIRS, NullSink(), False))
    queries.give(StopElement("one", When(5), stop))
    branch = eddy.Branch(PAIRS.streams[1:], PAIRS.on, "left")
    left = eddy.Query(PAIRS.streams[:1], branches=[branch], select={"r": "R.v", "s": "S.v"})
    change = ChangeElement("one", When(6), left, "graceful")
    if refused:
        with pytest.raises(InputError, match="'graceful' has no meaning for a query with branches"):
            queries.give(change)
    else:
        queries.give(change)


class MeetingSink(NullSink):
    """A sink that waits in `publish` for all others of its kind, and may fail then."""

    beside = True

    def __init__(self, met: threading.Barrier, fails: bool) -> None:
        self._met, self._fails = met, fails

    def publish(self, batch: int, files: Any, spark: Any) -> None:
        self._met.wait(10)
        if self._fails:
            raise OSError("no space")


def test_sinks_that_allow_it_publish_side_by_side_and_the_first_that_fails_is_named() -> None:
    sinks, met, alone = QuerySinks(), threading.Barrier(3), NullSink()
    for name, sink in {name: MeetingSink(met, name > "a") for name in "abc"}.items():
        sinks.put(name, sink, SCHEMA)
    sinks.put("z", alone, SCHEMA)
    sinks.serving = frozenset("abcz")
    with pytest.raises(OSError, match="no space"):
        sinks.publish(0, ["a/one"], cast("Any", None))
    assert sinks._title == "MeetingSink of query 'b'"
    for name in "bc":
        sinks.put(name, MeetingSink(met, False), SCHEMA)
    sinks.publish(0, ["a/one"], cast("Any", None))
    assert sinks._title == "QuerySinks"
