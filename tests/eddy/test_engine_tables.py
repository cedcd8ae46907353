"""Queries over tables in an engine: after each push, the changelog of each has led to the answer that DuckDB finds.

A query that starts sees its tables as they are, and the rows of streams from its start on; a warm start and a handover
see those from before, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import Branch, Engine, Query, Runtime, Stream, Table, Top, Unbounded, agg
from jisc.strategies import STRATEGIES
from tests.eddy.answers import CASES, ROWS, AnswerFeed, rows
from tests.eddy.test_interrupts import Seen, traced

STREAMS = [Stream(name, ROWS, window=Unbounded()) for name in "rs"]
TABLE = Table("t", ROWS, key="k", ops="column")
NAMES = ("r", "s", "t")


def low(limit: int) -> Table:
    return Table("t", ROWS, key="k", ops="column", filter=pc.field("v") < limit)


VARIED: list[tuple[Callable[[int], Query], str]] = [
    (
        lambda limit: Query([STREAMS[0], low(limit)], ["r.k = t.k"], select={"v": "r.v", "w": "t.v"}),
        "SELECT r.v, t.v AS w FROM r JOIN t ON r.k = t.k WHERE t.v < {0}",
    ),
    (
        lambda limit: Query([low(limit)], group_by={"g": "t.g"}, aggregates={"n": agg.count(), "x": agg.sum("t.x")}),
        "SELECT g, count(*) AS n, sum(x) AS x FROM t WHERE v < {0} GROUP BY g",
    ),
    (
        # Without ops: the engine reads what a change does.
        lambda limit: Query(
            [STREAMS[0]],
            branches=[Branch([replace(low(limit), ops=None)], ["r.k = t.k"], "left")],
            select={"v": "r.v", "w": "t.v"},
        ),
        "SELECT r.v, b.v AS w FROM r LEFT JOIN (SELECT * FROM t WHERE v < {0}) b ON r.k = b.k",
    ),
    (
        lambda limit: Query(
            [Table("d", Query([low(limit)], group_by={"g": "t.g"}, aggregates={"n": agg.count()})), STREAMS[1]],
            ["d.g = s.g"],
            select={"v": "s.v", "n": "d.n"},
        ),
        "SELECT s.v, n FROM s JOIN (SELECT g, count(*) AS n FROM t WHERE v < {0} GROUP BY g) d ON d.g = s.g",
    ),
    (
        lambda limit: Query(
            [STREAMS[0], low(limit)], ["r.k = t.k"], select={"v": "t.v"}, top=Top(2, "t.g", ["t.v desc", "r.v"])
        ),
        "SELECT v FROM (SELECT t.v, ROW_NUMBER() OVER (PARTITION BY t.g ORDER BY t.v DESC NULLS LAST, r.v NULLS LAST)"
        " AS rn FROM r JOIN t ON r.k = t.k WHERE t.v < {0}) WHERE rn <= 2",
    ),
    (
        lambda limit: Query(
            [Stream("r", ROWS, window=Unbounded(), filter=pc.field("v") < limit), STREAMS[1]],
            ["r.k = s.k"],
            select={"v": "r.v", "w": "s.v"},
        ),
        "SELECT r.v, s.v AS w FROM r JOIN s ON r.k = s.k WHERE r.v < {0}",
    ),
]


class FollowedQuery:
    """A query of the engine, with what its rows have led to.

    since   the position from which it sees rows of streams
    begins  the position of the arrival before which its newest control element takes effect
    before  the answers of versions that have stopped, and were not taken back
    """

    def __init__(self, text: str, since: int, begins: int) -> None:
        self.text, self.since, self.begins = text, since, begins
        self.kind: int | None = None
        self.shown: Counter[str] = Counter()
        self.before: Counter[str] = Counter()

    def take(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            sign = -1 if row.pop("op") in ("-D", "-U") else 1
            self.shown[str(list(row.values()))] += sign
        self.shown = Counter({row: n for row, n in self.shown.items() if n})


class PlacedFeed(AnswerFeed):
    """Rows with the positions of their arrivals."""

    def __init__(self, draw: Random) -> None:
        super().__init__(draw)
        self.places: dict[str, list[int]] = {"r": [], "s": []}

    def placed(self, position: int) -> tuple[dict[str, list[dict[str, Any]]], list[int]]:
        """Return the rows of a push and their order."""
        push = self.push(set(NAMES))
        order = [i for i, name in enumerate(NAMES) for _ in push.get(name, ())]
        self.draw.shuffle(order)
        for place, i in enumerate(order, position):
            if i < 2:
                self.places[NAMES[i]].append(place)
        return push, order

    def answer_since(self, text: str, since: int) -> Counter[str]:
        feed = AnswerFeed(self.draw)
        feed.table = self.table
        feed.given = {
            name: [row for row, place in zip(given, self.places[name], strict=True) if place >= since]
            for name, given in self.given.items()
        }
        return feed.answer(text)


class EngineOfTables:
    """An engine and what its queries should give."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.feed = draw, PlacedFeed(draw)
        self.engine = Engine([*STREAMS, TABLE], strategy=draw.choice(sorted(STRATEGIES)))
        self.followed: dict[str, FollowedQuery] = {}
        self.came = self.handovers = 0

    def push(self) -> None:
        engine = self.engine
        push, order = self.feed.placed(engine.position)
        if self.draw.random() < 0.2:
            with pytest.raises(eddy.InputError, match="no key"):
                engine.push({**push, "t": [*push.get("t", ()), {**rows(self.draw, 1)[0], "k": None, "op": "c"}]})
        results = engine.push(push, order)
        engine.check()
        for name, followed in self.followed.items():
            if name in results:
                self.came += len(results[name])
                followed.take(results[name])
                if engine.position >= followed.begins:
                    self.compare(name)

    def compare(self, name: str) -> None:
        followed = self.followed[name]
        wanted = followed.before + self.feed.answer_since(followed.text, followed.since)
        assert followed.shown == wanted, f"{name}: {followed.text}"

    def start(self) -> None:
        draw, name = self.draw, f"q{len(self.followed)}"
        warm = draw.random() < 0.3
        at = self.engine.position + (draw.randrange(6) if draw.random() < 0.3 else 0)
        if draw.random() < 0.5:
            query, text = draw.choice(list(CASES.values()))
            kind = None
        else:
            kind = draw.randrange(len(VARIED))
            query, text = self.varied(kind)
        self.engine.start(name, query, at=at, warm=warm, output="changelog")
        self.followed[name] = FollowedQuery(text, 0 if warm else at, at)
        self.followed[name].kind = kind

    def varied(self, kind: int) -> tuple[Query, str]:
        make, text = VARIED[kind]
        limit = self.draw.randrange(5, 31)
        return make(limit), text.format(limit)

    def change(self) -> None:
        now = self.engine.position
        running = [
            n
            for n, running_query in self.engine.queries.items()
            if running_query.state == "running" and running_query.last_element <= now
        ]
        varied = [n for n in running if self.followed[n].kind is not None]
        if not varied:
            return
        name = self.draw.choice(varied)
        followed, handover = self.followed[name], self.draw.random() < 0.7
        assert followed.kind is not None
        query, text = self.varied(followed.kind)
        if not handover:
            # What the old version gave stays.
            followed.before = Counter(followed.shown)
        self.engine[name].change(query, "handover" if handover else "immediate")
        self.handovers += handover
        followed.text, followed.begins = text, self.engine.position
        followed.since = 0 if handover else followed.begins

    def stop(self) -> None:
        name = self.draw.choice(sorted(self.followed))
        query = self.engine.queries.get(name)
        if query is not None and query.live and query.last_element <= self.engine.position:
            query.stop()

    def reload(self) -> None:
        saved = self.engine.snapshot()
        queries = {
            n: [version.query for version in running.versions]
            for n, running in self.engine.queries.items()
            if running.live
        }
        self.engine = Engine.restore(saved, [*STREAMS, TABLE], queries)
        assert self.engine.snapshot() == saved

    def transition(self) -> None:
        live = [n for n, running in self.engine.queries.items() if running.state == "running"]
        for name in live:
            plan = self.engine[name].plan
            if plan in ("r t", "t r", "r s", "s r") and STRATEGIES[self.engine.options["strategy"]].changes:
                self.engine[name].transition(plan[::-1])


def play(draw: Random, steps: int) -> EngineOfTables:
    """Push rows and give control elements at random; compare after each push."""
    game = EngineOfTables(draw)
    for _ in range(steps):
        chance = draw.random()
        if chance < 0.25 or not game.followed:
            game.start()
        elif chance < 0.5:
            game.change()
        elif chance < 0.55:
            game.stop()
        elif chance < 0.65:
            game.reload()
        elif chance < 0.75:
            game.transition()
        game.push()
    return game


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(12))
def test_each_query_follows_its_answer(seed: int) -> None:
    game = play(Random(seed), 25)
    assert game.came > 50
    assert game.handovers


@pytest.mark.campaign(0)
def test_queries_follow_their_answers() -> None:
    """For planted defects, of which each is found by one of these seeds."""
    for seed in range(100, 105):
        play(Random(seed), 25)


ENVELOPES = Table("t", ROWS, key="k", ops="debezium", version="lsn", tombstones=30)
LOOKED_UP = Query([STREAMS[0]], as_of=[eddy.AsOf(TABLE, ["r.k = t.k"])], select={"k": "r.k", "v": "t.v"})
LEFT = Query([STREAMS[0]], branches=[Branch([TABLE], ["r.k = t.k"], "left")], select={"k": "r.k", "v": "t.v"})
OUTPUTS: dict[str, tuple[Query, str]] = {
    "looked up": (LOOKED_UP, "append"),
    "left": (LEFT, "changelog"),
    "top": (VARIED[4][0](20), "changelog"),
    "groups of groups": (CASES["groups of groups"][0], "upsert"),
    "groups": (VARIED[1][0](20), "upsert"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_engine_gives_what_a_runtime_gives(name: str) -> None:
    """Push by push, in the same order, atomic pushes among them."""
    query, output = OUTPUTS[name]
    draw, feed = Random(name), PlacedFeed(Random(name))
    engine, runtime = Engine([*STREAMS, TABLE]), Runtime(query, output=output)  # type: ignore[arg-type]
    engine.start("q", query, output=output)  # type: ignore[arg-type]
    used = [input_name for input_name in NAMES if query.inputs({input_name: []})]
    came = 0
    for _ in range(50):
        push, order = feed.placed(engine.position)
        atomic = draw.random() < 0.3
        results = engine.push(push, order, atomic=atomic)["q"]
        places = [used.index(NAMES[i]) for i in order if NAMES[i] in used]
        rows = {input_name: given for input_name, given in push.items() if input_name in used}
        if runtime.derived:
            wanted = runtime.push(rows)
        else:
            wanted = runtime.push(rows, places, atomic=atomic and "t" in used)
        assert results.schema.equals(wanted.schema)
        assert sorted(map(str, results.to_pylist())) == sorted(map(str, wanted.to_pylist()))
        came += len(results)
    assert came > 8


def envelopes(draw: Random, lsn: int) -> list[dict[str, Any]]:
    """Return changes of Debezium, some of them stale, some that change the key."""
    changes = []
    for row in rows(draw, draw.randrange(5)):
        row["k"] = row["k"] or 4
        version = {"source": {"lsn": lsn + draw.randrange(-20, 10)}}
        if draw.random() < 0.3:
            changes.append({"op": "d", "before": row, "after": None, **version})
        elif draw.random() < 0.2:
            changes.append({"op": "u", "before": {**row, "k": row["k"] % 4 + 1}, "after": row, **version})
        else:
            changes.append({"op": "c", "before": None, "after": row, **version})
    return changes


def test_stale_changes_and_envelopes() -> None:
    """The engine reads the changes once: queries see what a runtime over the table sees."""
    draw = Random(3)
    streams = [STREAMS[0], ENVELOPES]
    engine = Engine(streams)
    seen = Table("t", ROWS, key="k", filter=pc.field("v") < 25)
    query = Query([STREAMS[0], seen], ["r.k = t.k"], select={"v": "r.v", "w": "t.v"})
    runtime_query = Query(
        [STREAMS[0], Table("t", ROWS, key="k", ops="debezium", version="lsn", tombstones=30, filter=seen.filter)],
        ["r.k = t.k"],
        select={"v": "r.v", "w": "t.v"},
    )
    runtime = Runtime(runtime_query, output="changelog")
    engine.start("q", query, output="changelog")
    shown: list[Counter[str]] = [Counter(), Counter()]
    for number in range(60):
        push = {"t": envelopes(draw, 4 * number), "r": rows(draw, draw.randrange(3))}
        if number % 10 == 5:
            with pytest.raises(eddy.InputError):
                engine.push({**push, "t": [*push["t"], {"op": "?"}]}, None)
        order = [1] * len(push["t"]) + [0] * len(push["r"])
        for fold, table in zip(shown, (engine.push(push, order)["q"], runtime.push(push, order)), strict=True):
            for row in table.to_pylist():
                fold[str((row["v"], row["w"]))] += -1 if row["op"] in ("-D", "-U") else 1
        assert +shown[0] == +shown[1] == shown[0]
        assert engine.late_counts["t"] == runtime.late_counts["t"]
        if number % 7 == 3:
            saved = engine.snapshot()
            engine = Engine.restore(saved, streams, {"q": query})
            assert engine.snapshot() == saved
    assert engine.late_counts["t"] > 10
    with pytest.raises(eddy.SnapshotError, match="stream t, table: by k; ops debezium; version lsn; tombstones 30"):
        Engine.restore(engine.snapshot(), [STREAMS[0], Table("t", ROWS, key="k", ops="debezium")], {"q": query})


@pytest.mark.campaign(0)
def test_an_exception_at_each_line() -> None:
    """A push happens for the tables, their versions and all queries, or for none."""
    draw, seen = Random(5), Seen(frozenset(("kernels", "push", "dialect", "show", "plan", "strategies")))
    streams = [STREAMS[0], ENVELOPES]
    calm, tried = (Engine(streams) for _ in range(2))
    joined = [Query([STREAMS[0], Table("t", ROWS, key="k", filter=pc.field("v") < n)], ["r.k = t.k"]) for n in (9, 25)]
    for engine in (calm, tried):
        engine.start("join", joined[0], output="changelog")
        engine.start("over", CASES["groups of groups"][0], output="changelog")
    interrupted = 0
    for number in range(40):
        push = {"t": envelopes(draw, 4 * number), "r": rows(draw, draw.randrange(3))}
        order = [1] * len(push["t"]) + [0] * len(push["r"])
        if number % 5 == 2:
            for engine in (calm, tried):
                engine["join"].change(joined[number % 2], "handover")
        wanted, known = calm.push(push, order), tried.last_push()
        # Stale changes do not arrive, so the position says nothing of a push of them.
        while tried.last_push() is known:
            traced(lambda: tried.push(push, order), seen)  # noqa: B023
            interrupted += 1
        last = tried.last_push()
        assert last is not None
        assert {n: sorted(map(str, table.to_pylist())) for n, table in last.results.items()} == {
            n: sorted(map(str, table.to_pylist())) for n, table in wanted.items()
        }
        assert tried.late_counts == calm.late_counts
    assert interrupted > 190


@pytest.mark.parametrize(
    ("streams", "query", "options", "message"),
    [
        ([TABLE], None, {}, ""),
        ([Table("d", CASES["groups of groups"][0])], None, {}, "start a query over its answer: Table"),
        ([Table("t", ROWS, key="k", filter=pc.field("v") > 1)], None, {}, "a filter belongs to the streams of a query"),
        ([Stream("t", ROWS)], Query([TABLE, STREAMS[0]], ["r.k = t.k"]), {}, "a stream of the engine, and a table of"),
        (
            [TABLE],
            Query([STREAMS[0], Stream("t", ROWS, window=Unbounded())], ["r.k = t.k"]),
            {},
            "a table of the engine",
        ),
        (
            [TABLE],
            Query([Table("t", ROWS, key="v"), STREAMS[0]], ["r.k = t.k"]),
            {},
            "its key is v, and that of the engi",
        ),
        (
            [Table("t", ROWS, key="k")],
            Query([Table("t", ROWS, key="k", ops="debezium"), STREAMS[0]], ["r.k = t.k"]),
            {"output": "changelog"},
            "its ops is 'debezium', and that of the engine None; leave it out",
        ),
        ([TABLE], VARIED[0][0](9), {"output": "append"}, "output=.changelog"),
        ([TABLE], OUTPUTS["groups"][0], {"output": "upsert", "warm": True}, "no meaning for rows by key"),
    ],
)
def test_what_an_engine_refuses(streams: list[Stream], query: Query | None, options: Any, message: str) -> None:
    given = [stream for stream in STREAMS if stream.name not in {replacement.name for replacement in streams}]

    def started() -> None:
        Engine([*given, *streams]).start("q", query or VARIED[1][0](9), **(options or {"output": "changelog"}))

    if message:
        with pytest.raises((eddy.QueryError, eddy.InputError), match=message):
            started()
    else:
        started()


def test_results_that_stay_are_not_handed_over() -> None:
    """The rows of their windows do not tell which of them there are."""
    timed = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    windows = [Stream(name, timed, window=eddy.Range(5), time="t") for name in "ab"]
    engine = Engine([replace(stream, window=Unbounded()) for stream in windows])
    final = Query(windows, ["a.k = b.k"], expiry="final")
    started = engine.start("q", final, output="changelog")
    with pytest.raises(eddy.InputError, match=r"'handover' has no meaning for a changelog; .* 'drain-stream'"):
        started.change(final, "handover")
    with pytest.raises(eddy.InputError, match="a warm start has no meaning for results that stay"):
        engine.start("w", final, output="changelog", warm=True)
    over = Query([Table("d", Query(windows, ["a.k = b.k"], group_by=["a.k"], aggregates={"n": agg.count()}))])
    assert over.expiry != "final"


def test_rows_that_look_a_table_up_with_windows_of_rows() -> None:
    """The rows of the table come first, whatever the windows of streams are."""
    streams = [Stream(name, ROWS, window=eddy.Rows(3)) for name in "rs"]
    query = Query(streams, ["r.k = s.k"], as_of=[eddy.AsOf(TABLE, ["r.k = t.k"])], select=["t.v"])
    engine = Engine([*STREAMS, TABLE])
    row = {"k": 1, "g": "a", "v": 5, "x": 0.0}
    engine.push({"t": [{**row, "op": "c"}]})
    engine.start("q", query)
    assert engine.push({"r": [row], "s": [row]}, [0, 1])["q"].to_pylist() == [{"t.v": 5}]


@pytest.mark.parametrize(
    ("column", "value", "message"), [("op", "?", "an unknown operation"), ("k", None, "a change without a key")]
)
def test_an_altered_table_is_refused(column: str, value: Any, message: str) -> None:
    engine = Engine([*STREAMS, TABLE])
    engine.push({"t": [{"k": n, "g": "a", "v": n, "x": 0.0, "op": "c"} for n in range(3)]})
    kept = engine.joins.kept[2]
    (batch,) = kept.batches
    rows = [{**row, column: value} for row in batch.to_pylist()]
    kept.resume([pa.RecordBatch.from_pylist(rows, batch.schema)], [None], kept.count, kept.end, 0)
    with pytest.raises(eddy.SnapshotError, match=message):
        Engine.restore(engine.snapshot(), [*STREAMS, TABLE], {})


def test_a_table_takes_few_chunks_and_twice_its_rows() -> None:
    """However small the pushes are, and however often its rows change."""
    engine, kept = Engine([*STREAMS, TABLE]), 0
    for n in range(5000):
        engine.push({"t": [{"k": n % 50, "g": "a", "v": n, "x": 0.0, "op": "d" if n % 50 == 7 else "c"}]})
        batches = engine.joins.kept[2].batches
        assert len(batches) < 14
        kept = max(kept, sum(map(len, batches)))
    assert 1024 < kept < 1200
    row_store = engine.joins.kept[2].rows()
    assert row_store is not None
    assert sorted(row_store["v"].to_pylist()) == [n for n in range(4950, 5000) if n % 50 != 7]
