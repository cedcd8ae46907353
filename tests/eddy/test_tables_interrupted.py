"""An exception at any line of a push that changes tables: the push did not happen, or it did, in whole."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.fuzz.oracle import OracleClock
from eddy.fuzz.table_oracle import TableInput, TableOracle
from jisc.strategies import STRATEGIES
from tests.eddy.test_interrupts import TRIED, WITHOUT_STRATEGY, Seen, traced

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.int64()), ("z", pa.int64())])
PLANS = ("(R T) S", "(S T) R", "(R T) S", "R T S")
COLUMNS = ("R.b", "S.a", "T.b")
PREDICATES = [(("R", "a"), "=", ("T", "a")), (("T", "b"), "=", ("S", "b"))]


def broken(batch: pa.RecordBatch) -> pa.Array:
    """Reject no result, and raise if one has a row of R with the text "bad"."""
    if pc.any(pc.equal(batch["R.b"], "bad")).as_py():
        raise ValueError("a bad row")
    return pc.is_valid(batch["R.b"])


Arrival = tuple[str, dict[str, Any]]


def net(rows: list[Arrival]) -> list[Arrival]:
    """Return what arrives of an atomic push: the last change of each key, in order, then the rows."""
    last = dict[tuple[str, int], Arrival]()
    for name, row in rows:
        if name != "S":
            last.pop((name, row["t"]), None)
            last[name, row["t"]] = name, row
    return [*last.values(), *(arrival for arrival in rows if arrival[0] == "S")]


class InterruptedTables:
    """A runtime over two tables and a stream, its oracle, and random pushes.

    bad   share of the changes of R that make a push fail, once they are in a result
    """

    def __init__(self, strategy: str, bad: float) -> None:
        versions: dict[str, Any] = {"version": "z", "tombstones": 1}
        tables = [eddy.Table(name, SCHEMA, key="t", ops="column", **versions) for name in "RT"]
        stream = eddy.Stream("S", SCHEMA, window=eddy.Range(4), time="t")
        query = eddy.Query(
            [*tables, stream],
            ["R.a = T.a", "T.b = S.b"],
            select=COLUMNS,
            where=eddy.Predicate(broken, ["R.b"]),
            watermark="fastest",
        )
        self.runtime = eddy.Runtime(query, PLANS[0], strategy=strategy, output="changelog", renumber_at=60)
        inputs = [TableInput(name, ("t",), **versions) for name in "RT"] + [TableInput("S", span=4, time="t")]
        self.oracle, self.clock = TableOracle(inputs, PREDICATES), OracleClock({"S": 0}, "fastest")
        self.sum = Counter[tuple[Any, ...]]()
        self.random, self.plans, self.now = random.Random(3), cycle(PLANS), 0
        self.bad = bad

    def arrivals(self) -> list[Arrival]:
        """Return changes of a few keys, and rows."""
        arrivals = []
        for _ in range(self.random.randrange(1, 9)):
            name = self.random.choice("RRTTTS")
            self.now += name == "S" and self.random.random() < 0.5
            row = {"a": self.random.choice([1, 2, None]), "b": self.random.choice(["x", "a text of many bytes"])}
            row["t"] = self.now if name == "S" else self.random.randrange(4)
            row["z"] = self.now + self.random.randrange(4)
            if name == "R" and self.random.random() < self.bad:
                row["b"] = "bad"
            arrivals.append((name, row if name == "S" else {**row, "op": self.random.choice("uuud")}))
        return arrivals

    def follow(self, arrivals: list[Arrival]) -> bool:
        """Take rows in the oracle; return whether a bad one is in a result."""
        bad = False
        for name, row in arrivals:
            if name != "S" or not self.clock.tick(name, row["t"]):
                changes = self.oracle.arrive(name, row, row.get("op") == "d", self.clock.now)
                bad = bad or any(self.oracle.row("R", result[0])["b"] == "bad" for _, result in changes)
        return bad

    def push(self, attempt: Callable[[Callable[[], pa.Table]], pa.Table | None]) -> int:
        """Push rows until the push happens; return the number of tries, 0 if it fails.

        attempt   makes the push; an interrupted push is repeated
        """
        rows, runtime, tries, atomic = self.arrivals(), self.runtime, 0, self.random.random() < 0.3
        batches: dict[str, list[dict[str, Any]]] = {}
        for name, row in rows:
            batches.setdefault(name, []).append(row)
        order = ["RTS".index(name) for name, _ in rows]
        before = copy.deepcopy((self.oracle, self.clock))
        results, at = set(self.oracle.answer), (runtime.position, runtime.pushes)
        rows = [arrival for arrival in rows if not self.oracle.is_stale(*arrival, arrival[1].get("op") == "d")]
        fails = self.follow(net(rows) if atomic else rows)
        if atomic:
            # What comes and goes within the push is not filtered.
            fails = any(self.oracle.row("R", result[0])["b"] == "bad" for _, result in self.oracle.since(results))
        while runtime.pushes == at[1]:
            tries += 1
            try:
                attempt(lambda: runtime.push(batches, order, atomic=atomic))
            except eddy.InputError:
                assert fails
                assert (runtime.position, runtime.pushes) == at
                self.oracle, self.clock = before
                runtime.check()
                return 0
            runtime.check()
            assert runtime.position == at[0] or runtime.pushes > at[1]
        assert not fails
        last = runtime.last_push()
        assert last is not None
        for row in last.results.to_pylist():
            self.sum[tuple(row[column] for column in COLUMNS)] += 1 if row["op"] in ("+I", "+U") else -1
        wanted = Counter[tuple[Any, ...]]()
        for r, t, s in self.oracle.answer:
            rows_of = {"R": self.oracle.row("R", r), "T": self.oracle.row("T", t), "S": self.oracle.row("S", s)}
            wanted[tuple(rows_of[column[0]][column[2:]] for column in COLUMNS)] += 1
        assert +self.sum == wanted
        return tries


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", TRIED)
def test_an_exception_at_each_line(strategy: str) -> None:
    play, quiet = InterruptedTables(strategy, 0.03), 0
    seen = Seen() if strategy == "jisc" else Seen(WITHOUT_STRATEGY)
    while quiet < 10:
        runtime = play.runtime
        if STRATEGIES[strategy].changes and not runtime.scheduled() and play.random.random() < 0.3:
            runtime.transition(next(play.plans), at=runtime.position + play.random.randrange(1, 4))
        quiet = quiet + 1 if play.push(lambda push: traced(push, seen)) == 1 else 0
    assert len(seen) > (200 if seen.past else 300)


def test_the_answer_follows_the_oracle_under_each_strategy() -> None:
    """Without interrupts, and with many changes of plan."""
    for strategy in TRIED:
        play = InterruptedTables(strategy, 0)
        for number in range(40):
            if STRATEGIES[strategy].changes and number % 4 == 3:
                play.runtime.transition(next(play.plans))
            assert play.push(lambda push: push()) == 1
            play.runtime.check()


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", TRIED)
def test_a_failed_push_leaves_tables_as_they_were(strategy: str) -> None:
    play, failed = InterruptedTables(strategy, 0.2), 0
    for _ in range(150):
        before = play.random.getstate()
        if play.push(lambda push: push()) == 0:
            failed += 1
            kept = play.runtime.snapshot()
            play.random.setstate(before)
            assert play.push(lambda push: push()) == 0
            assert play.runtime.snapshot() == kept
    assert failed > 10
