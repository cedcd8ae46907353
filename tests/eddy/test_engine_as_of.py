"""Queries with versioned tables, or over final rows, in an engine: each gives what a runtime of its own gives.

A query that starts sees the versions from before, and the rows of streams from its start on; a warm start and a
handover see those from before, too.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import AsOf, Engine, Query, Range, Runtime, Stream, Table, Tumbling, VersionedTable, agg
from eddy.queries.kept import KeptTable

BID = pa.schema([("cur", pa.string()), ("at", pa.int64()), ("price", pa.int64()), ("no", pa.int64())])
RATE = pa.schema([("cur", pa.string()), ("at", pa.int64()), ("euros", pa.int64()), ("no", pa.int64())])
RATES = VersionedTable("rate", RATE, key="cur", time="at", ops="column")
CITY = pa.schema([("cur", pa.string()), ("name", pa.int64()), ("no", pa.int64())])
CITIES = Table("city", CITY, key="cur")
LATENESS = 4
STREAMS = {name: Stream(name, BID, window=Range(12), time="at") for name in ("bid", "ask")}
ON = ["bid.cur = rate.cur"]
SHOWN = {"at": "bid.at", "price": "bid.price", "euros": "rate.euros"}
PAIRS = [Stream("bid", BID, window=Range(12), time="at"), Stream("ask", BID, window=Range(9), time="at")]
OPEN = Stream("bid", BID, time="at")


def low(limit: int) -> VersionedTable:
    return VersionedTable("rate", RATE, key="cur", time="at", filter=pc.field("euros") < limit)


def asked(kind: str, limit: int) -> Query:
    """Return a query of some kind; rates from a limit on are none."""
    rates = low(limit)
    if kind == "inner":
        more = {**SHOWN, "x": pc.field("bid.price") * pc.field("rate.euros")}
        return Query([OPEN], as_of=[AsOf(rates, ON)], select=more)
    if kind == "nearest":
        nearest = AsOf(rates, ON, how="left", direction="nearest", tolerance=5)
        return Query([OPEN], as_of=[nearest], select=SHOWN)
    if kind == "pairs":
        left = AsOf(rates, ON, "bid.at", how="left")
        return Query(PAIRS, ["bid.cur = ask.cur"], as_of=[left], select={**SHOWN, "v": "ask.price"})
    if kind == "beside":
        valid = AsOf(rates, ON, "bid.at", how="left")
        return Query([PAIRS[0], CITIES], ["bid.cur = city.cur"], as_of=[valid], select={**SHOWN, "city": "city.name"})
    if kind == "windows":
        most = {"most": agg.max("bid.price")}
        best = Stream(
            "best", Query([OPEN], aggregates=most, group_window=Tumbling(10, time="bid.at")), time="window_end"
        )
        within = "bid.at BETWEEN best.window_end - 10 AND best.window_end"
        return Query([OPEN, best], ["bid.price = best.most", within], select={"at": "bid.at", "no": "bid.no"})
    if kind == "groups":
        sums = {"spent": agg.sum("rate.euros"), "n": agg.count()}
        window = Tumbling(10, time="bid.at")
        return Query([OPEN], as_of=[AsOf(rates, ON)], group_by=["bid.cur"], aggregates=sums, group_window=window)
    return Query([OPEN], as_of=[AsOf(rates, ON, how="left")], select=SHOWN)


KINDS = ["one stream", "inner", "nearest", "pairs", "groups", "beside", "windows"]


INPUTS = {**STREAMS, "rate": RATES, "city": CITIES}


class BidsAndRates:
    """Rows of streams and versions in a disorder that the lateness does not always cover."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.now, self.rows = draw, 0, 0

    def push(self) -> dict[str, list[dict[str, Any]]]:
        self.now += self.draw.randrange(8)
        # Versions come seldom, so that rows need some from the past.
        return {
            name: [self.row(name) for _ in range(self.draw.randrange(2 if name == "rate" else 5))] for name in INPUTS
        }

    def row(self, name: str) -> dict[str, Any]:
        draw = self.draw
        self.rows += 1
        if name == "city":
            return {"cur": draw.choice("abc"), "name": draw.randrange(3), "no": self.rows}
        row = {"cur": draw.choice("abcd"), "at": max(0, self.now - draw.randrange(14)), "no": self.rows}
        if name != "rate":
            return {**row, "price": draw.randrange(9)}
        return {**row, "euros": draw.randrange(9), "op": draw.choice(["c", "u", "d"])}


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(str(list(row.values())) for row in table.to_pylist())


class FollowedAsOf:
    """A query of the engine, and the runtime of its own that gets what it sees."""

    def __init__(
        self, kind: str, limit: int, output: str, warm: bool, before: list[tuple[dict[str, Any], int | None]]
    ) -> None:
        self.kind, self.output = kind, output
        query = asked(kind, limit)
        self.names = [stream.name for stream in query.streams]
        if kind != "windows":
            keep = query.stream("rate").filter
            with_ops = VersionedTable("rate", RATE, key="cur", time="at", ops="column", filter=keep)
            query = query.with_inputs({"rate": with_ops})
        self.runtime = Runtime(query, output=output)
        self.given: Counter[str] = Counter()
        self.wanted: Counter[str] = Counter()
        for rows, watermark in before:
            self.take(rows if warm else {name: rows.get(name, []) for name in ("rate", "city")}, watermark)
        if output == "append":
            self.wanted.clear()

    def take(self, rows: dict[str, Any], watermark: int | None) -> None:
        """Take what the query should give for a push: its rows, or what its changelog adds up to so far."""
        given = {name: rows[name] for name in self.names if rows.get(name)}
        # With a watermark that is given, its own clock stands still, which knows fewer streams than that of the engine.
        add(self.wanted, self.runtime.push(given, watermark=-1000 if watermark is None else watermark))

    def check(self, results: pa.Table) -> None:
        add(self.given, results)
        assert self.given == self.wanted, self.kind
        if self.output == "append":
            self.given, self.wanted = Counter(), Counter()


def add(counts: Counter[str], table: pa.Table) -> None:
    for row in table.to_pylist():
        sign = -1 if row.pop("op", "") in ("-D", "-U") else 1
        counts[str(list(row.values()))] += sign
        if not counts[str(list(row.values()))]:
            del counts[str(list(row.values()))]


class EngineOfVersions:
    """An engine, the rows that it has accepted, and its queries."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.arrivals = BidsAndRates(self.draw)
        self.engine = Engine([*INPUTS.values()], lateness=LATENESS, late="keep")
        self.before: list[tuple[dict[str, Any], int | None]] = []
        self.followed: dict[str, FollowedAsOf] = {}
        self.came = self.late = self.handovers = 0

    def start(self) -> None:
        kind, limit = self.draw.choice(KINDS), self.draw.randrange(4, 12)
        output = (
            "changelog"
            if kind == "beside" or (kind in ("one stream", "pairs") and self.draw.random() < 0.4)
            else "append"
        )
        warm = (
            (kind in ("pairs", "beside") or output == "append")
            and kind not in ("groups", "windows")
            and self.draw.random() < 0.5
        )
        name = f"{kind} {self.arrivals.rows}"
        if name not in self.followed:
            self.engine.start(name, asked(kind, limit), output=output, warm=warm)
            self.followed[name] = FollowedAsOf(kind, limit, output, warm, self.before)

    def change(self) -> None:
        name = self.draw.choice(sorted(self.followed))
        followed = self.followed[name]
        if followed.kind in ("groups", "windows") or (followed.kind, followed.output) == ("one stream", "changelog"):
            self.engine[name].stop()
            del self.followed[name]
            return
        limit = self.draw.randrange(4, 12)
        self.engine[name].change(asked(followed.kind, limit), "handover")
        given, changed = followed.given, FollowedAsOf(followed.kind, limit, followed.output, True, self.before)
        self.followed[name] = changed
        changed.given = given
        self.handovers += 1

    def push(self, rises: bool = False) -> None:
        """Push rows, or only raise the watermark."""
        if rises:
            self.take({}, self.engine.push({}, watermark=(self.engine.watermark or 0) + self.draw.randrange(4)))
            return
        rows = self.arrivals.push()
        if self.draw.random() < 0.2:
            with pytest.raises(eddy.InputError, match="no key"):
                self.engine.push(
                    {**rows, "rate": [*rows["rate"], {"cur": None, "at": 9, "euros": 1, "no": 0, "op": "c"}]}
                )
        results = self.engine.push(rows)
        for name, table in self.engine.late().items():
            numbers = set(table.column("no").to_pylist())
            self.late += len(numbers)
            rows[name] = [row for row in rows[name] if row["no"] not in numbers]
        self.take(rows, results)

    def take(self, rows: dict[str, Any], results: dict[str, pa.Table]) -> None:
        self.before.append((rows, self.engine.watermark))
        for name, followed in self.followed.items():
            followed.take(rows, self.engine.watermark)
            self.came += len(results[name])
            followed.check(results[name])

    def restore(self) -> None:
        saved, known = self.engine.snapshot(), self.engine.queries
        queries = {name: [version.query for version in query.versions] for name, query in known.items() if query.live}
        self.engine = Engine.restore(saved, [*INPUTS.values()], queries, late="keep")
        assert self.engine.snapshot() == saved


@pytest.mark.campaign(2)
@pytest.mark.parametrize("seed", range(8))
def test_queries_give_what_runtimes_of_their_own_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptTable, "LEAST", 3)
    played = EngineOfVersions(seed)
    for _ in range(120):
        choice = played.draw.random()
        if choice < 0.15:
            played.start()
        elif choice < 0.25 and played.followed:
            played.change()
        elif choice < 0.3:
            played.restore()
        elif choice < 0.4:
            played.push(rises=True)
        else:
            played.push()
    assert played.came > 20
    assert played.late
    assert played.handovers
    # The versions of the past are forgotten, apart from the last one of each key.
    kept = played.engine.joins.kept[2]
    kept.forget(played.engine.watermark or 0)
    assert kept.rows() is None or len(kept.rows()) < sum(len(rows.get("rate", ())) for rows, _ in played.before)


def test_what_a_row_was_given_at_its_arrival_is_not_looked_up_again() -> None:
    look_up = AsOf(CITIES, ["bid.cur = city.cur"])
    waiting = Query([OPEN], as_of=[AsOf(low(9), ON), look_up], select=["bid.at", "city.name"])
    engine = Engine([*INPUTS.values()])
    with pytest.raises(
        eddy.InputError, match="a warm start has no meaning for a query whose rows keep what was looked up"
    ):
        engine.start("q", waiting, warm=True)
    query = engine.start("q", waiting)
    for call in (lambda: query.change(waiting, "handover"), query.pause):
        with pytest.raises(eddy.InputError, match="whose rows keep what was looked up at their arrival"):
            call()
    followed = engine.start("w", Query([OPEN], as_of=[look_up]), output="changelog")
    at_once = Query(PAIRS[:1], as_of=[look_up])
    with pytest.raises(eddy.InputError, match="whose rows keep what was looked up at their arrival"):
        followed.change(Query([OPEN], as_of=[look_up]), "handover")
    engine.start("at once", at_once).change(at_once, "handover")


def test_final_rows_have_a_name_of_their_own() -> None:
    most = Query([OPEN], aggregates={"most": agg.max("bid.price")}, group_window=Tumbling(10, time="bid.at"))
    with pytest.raises(
        eddy.QueryError, match="stream bid has the rows of a query, and the engine has an input of this"
    ):
        Engine([*INPUTS.values()]).start("q", Query([Stream("bid", most, time="window_end")], select=["bid.most"]))


def test_a_push_is_atomic_in_a_changelog_with_versions() -> None:
    engine = Engine([OPEN, RATES])
    engine.start("q", asked("one stream", 9), output="changelog")
    engine.start("other", asked("one stream", 9))
    row = {"cur": "a", "at": 5, "no": 1}
    pushed = {"bid": [{**row, "price": 2}], "rate": [{**row, "euros": 3, "op": "c"}]}
    results = engine.push(pushed, atomic=True)
    assert results["q"].to_pylist() == [{"op": "+I", "at": 5, "price": 2, "euros": 3}]
    assert not len(results["other"])
