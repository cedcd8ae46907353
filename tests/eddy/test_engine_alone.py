"""Queries with branches, and changelogs, in an engine: what each version gives is what a nested loop gives between its
bounds (`eddy.fuzz.changing.lone_oracle`)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.changing.lone_oracle import LoneVersion, OraclePush, branched, inner
from eddy.fuzz.oracle import OracleClock, OracleQuery, OracleStream
from eddy.queries.changes import CHANGES
from eddy.query.clock_rule import WatermarkOf
from tests.draws import fewer
from tests.eddy.drawn_branches import NAMES, SCHEMA, DrawnBranches, drawn, steps

WITH_N = SCHEMA.append(pa.field("n", pa.int64()))


class ReferencedEngine:
    """An engine and its references: by query the versions, with the streams of each."""

    def __init__(
        self, names: Sequence[str], timed: bool, lateness: int, keep: bool = True, of: WatermarkOf = "slowest"
    ) -> None:
        window = eddy.Unbounded() if keep else None
        streams = [eddy.Stream(n, WITH_N, window=window, time="t" if timed else None) for n in names]
        self.engine = eddy.Engine(streams, lateness=lateness if timed else 0, watermark=of)
        self.names, self.timed = list(names), timed
        self.clock = OracleClock(dict.fromkeys(names, lateness), of)
        self.versions: dict[str, list[tuple[list[str], LoneVersion]]] = {}
        self.parts: list[OraclePush] = []
        self.rows = 0

    def add(self, query: str, names: list[str], version: LoneVersion) -> None:
        """Note a version; its loop takes what arrived before if the start is warm."""
        for part in self.parts:
            version.push(part)
        self.versions.setdefault(query, []).append((names, version))

    def stop(self, query: str, at: int) -> None:
        for _, version in self.versions[query]:
            version.stop = at if version.stop is None else min(at, version.stop)

    def drain(self, query: str, at: int) -> None:
        for _, version in self.versions[query]:
            if version.start >= at:
                version.stop = at
            version.drain = at if version.drain is None else min(at, version.drain)

    def reload(self) -> None:
        """Continue with a restored engine."""
        saved = self.engine.snapshot()
        queries = {
            n: [version.query for version in query.versions] for n, query in self.engine.queries.items() if query.live
        }
        self.engine = eddy.Engine.restore(saved, self.engine.sources.streams, queries)
        assert self.engine.snapshot() == saved

    def push(self, arrivals: list[tuple[str, dict[str, Any]]]) -> None:
        """Push rows and compare the results of each query; the column n of a row is its position."""
        first, watermarks = self.engine.position, [self.watermark]
        batches: dict[str, list[dict[str, Any]]] = {}
        order, came = [], []
        for name, row in arrivals:
            order.append(self.names.index(name))
            late = self.timed and self.clock.tick(name, row["t"])
            row = {**row, "n": -1 if late else first + len(came)}
            batches.setdefault(name, []).append(row)
            if not late:
                came.append((name, row))
                watermarks.append(self.watermark)
        tables = self.engine.push({n: pa.RecordBatch.from_pylist(r, WITH_N) for n, r in batches.items()}, order)
        part = OraclePush(first, came, watermarks)
        self.parts.append(part)
        for query, versions in self.versions.items():
            wanted: Counter[Any] = Counter()
            for names, version in versions:
                ended, begun = version.push(part)
                for op, rows in (("-D", ended), ("+I", begun)):
                    wanted.update((op, self._shown(names, row)) for row in rows)
            if query in tables:
                got = Counter(map(self._given, tables[query].to_pylist()))
                assert got == wanted, f"{query}: {got - wanted} too many, {wanted - got} missing"
                self.rows += sum(got.values())
            else:
                assert not wanted

    @property
    def watermark(self) -> int | None:
        return self.clock.now

    def _shown(self, names: list[str], rows: Sequence[Any]) -> frozenset[tuple[str, int]]:
        return frozenset((name, row["n"]) for name, row in zip(names, rows, strict=True) if row is not None)

    def _given(self, row: dict[str, Any]) -> tuple[str, frozenset[tuple[str, int]]]:
        components = {(name, row[f"{name}.n"]) for name in self.names if row.get(f"{name}.n") is not None}
        return row.get("op", "+I"), frozenset(components)


def with_n(stream: eddy.Stream) -> eddy.Stream:
    return eddy.Stream(stream.name, WITH_N, window=stream.window, time=stream.time)


def rebuilt(branch: eddy.Branch) -> eddy.Branch:
    below = [rebuilt(sub_branch) for sub_branch in branch.branches]
    conditions = list(branch.conditions) or None
    return eddy.Branch([with_n(stream) for stream in branch.streams], branch.on, branch.how, below, where=conditions)


class DrawnQuery:
    """A drawn query for an engine and for the reference."""

    def __init__(self, case: DrawnBranches, lateness: int) -> None:
        streams, texts, branches = case.query_args
        self.query = eddy.Query(
            [with_n(stream) for stream in streams], texts, branches=[rebuilt(branch) for branch in branches]
        )
        self.case, self.lateness = case, lateness
        case.lateness = lateness
        self.timed = self.query.graph.timed
        self.names = [stream.name for stream in self.query.streams]
        self.counts = any(isinstance(stream.window, eddy.Rows) for stream in self.query.streams)

    def version(self, start: int, warm: bool, changelog: bool) -> LoneVersion:
        oracles = self.case.oracles(changelog)
        follow = branched(oracles[:1], self.timed) if len(oracles) == 1 else both(oracles, self.names, self.timed)
        return LoneVersion(follow, start, warm)


def both(oracles: Any, names: list[str], timed: bool) -> Any:
    """Return the loop of a full outer join: the rows of the second stream come with nulls for the first."""
    parts = [branched([oracle], timed) for oracle in oracles]

    def follow(part: OraclePush) -> Any:
        left, right = parts[0](part), parts[1](part)
        return tuple([*a, *((None, row[0]) for row in b)] for a, b in zip(left, right, strict=True))

    return follow


@fewer(2)
@given(st.data())
def test_versions_with_branches_give_what_nested_loops_give_between_their_bounds(data: st.DataObject) -> None:
    draw = data.draw
    first = draw(drawn())
    lateness = draw(st.sampled_from((0, 0, 3))) if "range" in first.kinds else 0
    output = draw(st.sampled_from(("append", "append", "changelog")))
    asked = [DrawnQuery(first, lateness), DrawnQuery(draw(drawn((first.kinds,))), lateness)]
    names = [name for name in NAMES if any(name in query.names for query in asked)]
    of = draw(st.sampled_from(("slowest", "slowest", "fastest")))
    run = ReferencedEngine(names, bool({"range", "derived"} & set(first.kinds)), lateness, of=of)
    for arrivals in steps(draw, names):
        at, chosen = run.engine.position + draw(st.integers(0, 12)), asked[draw(st.integers(0, 1))]
        kind = draw(st.sampled_from(("start", "warm", "change", "stop", "none")))
        may_warm = output == "append" and not chosen.counts
        free = [n for n, running in run.engine.queries.items() if at >= running.last_element]
        live = [n for n in free if run.engine[n].live]
        try:
            if kind in ("start", "warm") or (kind != "none" and not live):
                warm, name = kind == "warm" and may_warm, f"q{len(run.versions)}"
                run.engine.start(name, chosen.query, at=at, warm=warm, output=output)
                run.add(name, chosen.names, chosen.version(at, warm, output == "changelog"))
            elif kind == "change":
                changed = draw(st.sampled_from(free))
                goes_on = any(version.stop is None or version.stop > at for version in run.engine[changed].live)
                run.engine[changed].change(chosen.query, "handover" if may_warm else "immediate", at=at)
                run.stop(changed, at)
                run.add(changed, chosen.names, chosen.version(at, may_warm and goes_on, output == "changelog"))
            elif kind == "stop":
                run.engine[live[0]].stop(at=at)
                run.stop(live[0], at)
        except eddy.InputError as problem:
            if "would never be known" not in str(problem):  # rows without a partner would wait for ever
                raise
        run.push(arrivals)
        run.engine.check()
        if draw(st.integers(0, 4)) == 4:
            run.reload()


ELEMENTS = ("immediate", "drain", "drain-stream", "none", "none", "none")


@pytest.mark.parametrize("seed", range(25))
def test_changelogs_of_inner_joins_start_change_and_drain(seed: int) -> None:
    chance = random.Random(seed)
    timed = seed % 3 != 2
    run = ReferencedEngine("RST", timed, chance.choice((0, 2)) if timed else 0, keep=False)
    for number in range(12):
        at = run.engine.position + chance.randrange(9)
        names, query, oracle = inner_query(chance, timed)
        live = [n for n, running in run.engine.queries.items() if running.live and at >= running.last_element]
        how = chance.choice(ELEMENTS)
        if number == 0 or not live:
            run.engine.start(f"q{number}", query, at=at, output="changelog")
            run.add(f"q{number}", names, LoneVersion(inner(oracle), at))
        elif how == "drain":
            run.engine[live[0]].stop("drain", at=at)
            run.drain(live[0], at)
        elif how != "none":
            run.engine[live[0]].change(query, how, at=at)  # type: ignore[arg-type]
            (run.stop if how == "immediate" else run.drain)(live[0], at)
            run.add(live[0], names, LoneVersion(inner(oracle), at))
        clock = run.engine.position // 5
        run.push([_arrival(chance, clock) for _ in range(chance.randrange(8, 20))])
        run.engine.check()
        if chance.random() < 0.2:
            run.reload()
    assert run.rows > 10
    if timed:  # time ends all drains, and each result of a version that drained was taken back
        for query, engine_query in run.engine.queries.items():
            if engine_query.state == "draining":
                run.push([(name, {"a": None, "b": None, "t": 10_000, "v": 0, "p": ""}) for name in run.names])
                assert run.engine[query].state == "stopped"


def _arrival(chance: random.Random, clock: int) -> tuple[str, dict[str, Any]]:
    row = {"a": chance.randrange(2), "b": chance.randrange(3), "t": clock + chance.randrange(-2, 3), "v": 0, "p": ""}
    return chance.choice("RST"), row


def inner_query(chance: random.Random, timed: bool) -> tuple[list[str], eddy.Query, OracleQuery]:
    """Return a random inner join for an engine and for the reference."""
    names, key = chance.sample("RST", chance.choice((2, 2, 3))), chance.choice("ab")
    sizes = [chance.randrange(2, 9) for _ in names]
    window = eddy.Range if timed else eddy.Rows
    kind: Any = "range" if timed else "rows"
    time = "t" if timed else None
    streams = [eddy.Stream(n, WITH_N, window=window(size), time=time) for n, size in zip(names, sizes, strict=True)]
    query = eddy.Query(streams, [f"{names[0]}.{key} = {n}.{key}" for n in names[1:]])
    oracle_streams = [OracleStream(n, kind, size, time) for n, size in zip(names, sizes, strict=True)]
    return names, query, OracleQuery(oracle_streams, [((names[0], key), (n, key)) for n in names[1:]])


def left(seconds: int = 5) -> eddy.Query:
    r, s = (eddy.Stream(n, WITH_N, window=eddy.Range(seconds), time="t") for n in "RS")
    return eddy.Query([r], branches=[eddy.Branch([s], ["R.a = S.a"], "left")])


def rowed() -> eddy.Query:
    r, s = (eddy.Stream(n, WITH_N, window=eddy.Rows(3)) for n in "RS")
    return eddy.Query([r], branches=[eddy.Branch([s], ["R.a = S.a"], "anti")])


def plain() -> eddy.Query:
    return eddy.Query([eddy.Stream(n, WITH_N, window=eddy.Range(5), time="t") for n in "RS"], ["R.a = S.a"])


@pytest.mark.parametrize("how", CHANGES)
def test_kinds_without_a_meaning_are_refused(how: Any) -> None:
    engine = eddy.Engine([eddy.Stream(name, WITH_N, time="t") for name in "RS"])
    append, log, inner_log = engine.start("a", left()), engine.start("l", left(), output="changelog"), None
    inner_log = engine.start("i", plain(), output="changelog")
    queries = [(append, {"immediate", "handover"}), (log, {"immediate"}), (inner_log, {"immediate", "drain-stream"})]
    for query, kinds in queries:
        if how in kinds:
            query.change(query.query, how)
            continue
        before = engine.history()
        wanted = f"'{how}' has no meaning for a (changelog|query with branches)|a handover .* does not keep"
        with pytest.raises(eddy.InputError, match=wanted):
            query.change(query.query, how)
        assert engine.history().equals(before)


def test_other_refusals() -> None:
    engine = eddy.Engine([eddy.Stream(name, WITH_N, time="t") for name in "RS"])
    query = engine.start("a", left())
    plan = query.plan
    query.transition("S R")
    assert (plan, query.plan) == ("R S", "S R")
    assert [join["queries"] for join in engine.metrics()["joins"]] == [["a"]]
    assert "join of R S for a alone" in engine.explain()
    query.change(left(9))
    again = eddy.Engine.restore(engine.snapshot(), engine.sources.streams, {"a": [left(), left(9)]})
    assert again.snapshot() == engine.snapshot()
    with pytest.raises(eddy.InputError, match="a drain has no meaning for a query with branches"):
        query.stop("drain")
    with pytest.raises(eddy.InputError, match=r"a warm start of a changelog .* does not keep those of stream 'R'"):
        engine.start("b", plain(), warm=True, output="changelog")
    with pytest.raises(eddy.InputError, match=r"cannot start warm with a Rows window \(stream 'R'\)"):
        engine.start("b", rowed(), warm=True)
    with pytest.raises(eddy.InputError, match="output is one of 'append', 'changelog', 'upsert', not 'log'"):
        engine.start("b", plain(), output="log")  # type: ignore[arg-type]
    with pytest.raises(eddy.InputError, match="'graceful' has no meaning for a query with branches"):
        engine.start("b", plain()).change(left(), "graceful")
    assert {name: running.state for name, running in engine.queries.items()} == {"a": "running", "b": "running"}


def test_a_push_that_fails_changes_no_join() -> None:
    def fragile(batch: pa.RecordBatch) -> pa.Array:
        if 7 in batch["v"].to_pylist():
            raise ZeroDivisionError("seven")
        return pc.greater_equal(batch["v"], 0)

    def failing() -> eddy.Query:
        return eddy.Query([eddy.Stream(n, WITH_N, eddy.Range(5), "t", filter=fragile) for n in "RS"], ["R.a = S.a"])

    tried, calm = (eddy.Engine([eddy.Stream(n, WITH_N, time="t", window=eddy.Range(50)) for n in "RS"]) for _ in "12")
    row = {"a": 1, "b": 1, "v": 1, "p": "", "n": 0}
    for engine in (tried, calm):
        engine.start("left", left())
        engine.start("log", plain(), output="changelog")
        engine.push({"R": [{**row, "t": 1}]})
        engine.start("warm", left(), warm=True)
    tried.start("fragile", failing(), output="changelog")
    second = {"R": [{**row, "t": 2, "v": 7}], "S": [{**row, "t": 3}]}
    with pytest.raises(eddy.InputError, match="seven"):
        tried.push(second)
    tried["fragile"].stop()
    for batches in (
        second,
        {"R": [{**row, "a": 2, "t": 9}]},
        {n: [{**row, "a": k, "t": 20}] for k, n in ((4, "R"), (3, "S"))},
    ):
        tables, wanted = tried.push(batches), calm.push(batches)
        assert {n: tables[n].to_pylist() for n in wanted} == {n: table.to_pylist() for n, table in wanted.items()}
    assert tried["warm"].n_results == 3
    assert tried["log"].n_results == 4


@pytest.mark.parametrize("how", ["handover", "immediate"])
def test_of_two_changes_at_one_position_the_second_takes_the_first_back(how: Any) -> None:
    """The version between them has given nothing, so the answer is that of one handover, or of one after a change."""
    schema = pa.schema([("a", pa.int64()), ("n", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Unbounded()) for name in "RS"]

    def limited(limit: int) -> eddy.Query:
        return eddy.Query(streams, ["R.a = S.a"], select={"n": "R.n"}, where=pc.field("R.n") < limit)

    engines = [eddy.Engine(streams) for _ in range(2)]
    row = {"a": 1, "n": 0}
    for engine in engines:
        engine.start("q", limited(5), output="changelog")
        engine.push({"R": [{**row, "n": n} for n in range(9)]})
        engine.push({"S": [row]})
    engines[0]["q"].change(limited(7), how)
    for engine in engines:
        engine["q"].change(limited(2), "handover")
    tables = (engine.push({"R": [{**row, "n": 1}]})["q"].to_pylist() for engine in engines)
    given, wanted = (sorted((row["op"], row["n"]) for row in table) for table in tables)
    assert wanted == [("+I", 1), *(("-D", n) for n in (2, 3, 4))]
    if how == "handover":
        assert given == wanted
    else:  # an immediate change takes nothing back, so its answer begins anew
        assert given == [("+I", n) for n in (0, 1, 1)]


def test_a_handover_takes_back_what_a_warm_start_gave_for_rows_that_one_stream_alone_has() -> None:
    schema = pa.schema([("a", pa.int64()), ("t", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Range(10), time="t") for name in "RS"]
    engine = eddy.Engine(streams)

    def limited(limit: int) -> eddy.Query:
        return eddy.Query(streams, ["R.a = S.a"], select={"r": "R.t", "s": "S.t"}, where=pc.field("S.t") < limit)

    engine.push({"R": [{"a": 1, "t": 9}]}, watermark=0)
    engine.push({"S": [{"a": 1, "t": 0}]}, watermark=0)
    # The row of S leaves its window, and that of R, which came before it, stays.
    engine.push({"S": [{"a": 1, "t": 15}]}, watermark=15)
    engine.start("q", limited(20), output="changelog", warm=True)
    assert engine.push({}, watermark=15)["q"].to_pylist() == [{"op": "+I", "r": 9, "s": 15}]
    engine["q"].change(limited(12), "handover")
    assert engine.push({"R": [{"a": 2, "t": 16}]}, watermark=15)["q"].to_pylist() == [{"op": "-D", "r": 9, "s": 15}]
