"""`Runtime.trim`: results stay equal, and the memory that pushes make again is given back."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import eddy
import stairs.stems
from jisc.strategies import STRATEGIES
from tests.cases import assert_same, text_rows
from tests.eddy.test_interrupts import Seen, traced
from tests.eddy.test_tables import TableMachine

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
EAGER = ("moving-state", "stairs", "eddy-stairs", "symmetric-hash")


def streams() -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=eddy.Range(90), time="t") for name in "RSTU"]


ON = ["R.k = S.k", "S.k = T.k", "T.k = U.k"]
BETWEEN = ["R.k = S.k", "S.k < T.k", "T.k = U.k"]


def pushed(chance: random.Random, turn: int, rows: int) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        records = [{"k": chance.randrange(8), "t": 20 * turn + chance.randrange(20)} for _ in range(rows)]
        return pa.Table.from_pylist(records, schema=SCHEMA)

    return {name: table() for name in "RSTU"}


@pytest.fixture
def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings have two slots or more, so that they grow and shrink all the time."""
    monkeypatch.setattr(stairs.stems, "FIRST_ROOM", 2)


def test_queries_of_tables_give_back_memory() -> None:
    pair = [eddy.Stream(name, SCHEMA, window=eddy.Range(9), time="t") for name in "RS"]
    source = eddy.Query(pair, ["R.k = S.k"], group_by={"k": "R.k"}, aggregates={"n": eddy.agg.count()})
    outer = eddy.Query([eddy.Table("d", source)], aggregates={"m": eddy.agg.max("d.n")})
    runtime = eddy.Runtime(outer, output="changelog")
    runtime.push({"R": [{"k": k, "t": 0} for k in range(20_000)]})
    runtime.push({name: [{"k": 1, "t": 1_000}] for name in "RS"})
    before, spare = runtime.nbytes, runtime.spare_bytes
    runtime.trim()
    assert before - spare <= runtime.nbytes < before - 8 * 20_000


@pytest.mark.usefixtures("small_rings")
@pytest.mark.parametrize("on", [ON, BETWEEN])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_results_stay_equal_under_every_strategy(strategy: str, on: list[str]) -> None:
    chance = random.Random(9)
    options: dict[str, Any] = {"store": ["R S", "R S T"]} if strategy == "eddy" else {}
    plans = ["((R S) T) U", "R (S (T U))"]
    trimmed, other = (
        eddy.Runtime(eddy.Query(streams(), on), plans[0], strategy=strategy, policy="fixed", **options)
        for _ in range(2)
    )
    for turn in range(8):
        if turn % 3 == 2 and strategy != "symmetric-hash":
            trimmed.transition(plans[turn % 2])
        # Some pushes are small, so that rings can shrink after them.
        rows = pushed(chance, turn, (10 if on == ON else 5) if turn % 4 < 2 else 1)
        assert_same(text_rows(trimmed.push(rows)), text_rows(other.push(rows)), f"turn {turn}")
        before, spare, states, plan = trimmed.nbytes, trimmed.spare_bytes, len(trimmed.stairs), trimmed.plan
        trimmed.trim()
        assert before - spare <= trimmed.nbytes <= before
        assert (len(trimmed.stairs), trimmed.plan) == (states, plan)
        trimmed.check()
        if strategy in EAGER:
            assert all(stair.proven for stair in trimmed.stairs)
        elif turn > 2:
            assert not any(stair.proven for stair in trimmed.stairs)


def test_the_bytes_of_states_and_results_are_given_back() -> None:
    chance, runtime = random.Random(2), eddy.Runtime(eddy.Query(streams(), ON), strategy="jisc")
    for turn in range(5):
        runtime.push(pushed(chance, turn, 24))
    before = runtime.nbytes
    runtime.trim()
    assert runtime.nbytes < before / 2
    runtime.trim()
    runtime.check()


def test_a_query_with_branches_is_trimmed_in_all_its_joins() -> None:
    inputs = streams()[:3]
    query = eddy.Query(inputs[:2], ON[:1], branches=[eddy.Branch([inputs[2]], ON[1:2], "left")])
    chance = random.Random(4)
    trimmed, other = eddy.Runtime(query, strategy="jisc"), eddy.Runtime(query, strategy="jisc")
    for turn in range(8):
        rows = pushed(chance, turn, 12)
        del rows["U"]
        assert_same(text_rows(trimmed.push(rows)), text_rows(other.push(rows)), f"turn {turn}")
        before, spare = trimmed.nbytes, trimmed.spare_bytes
        trimmed.trim()
        assert before - spare <= trimmed.nbytes <= before
        trimmed.check()


BURST, KEYS = 3000, 5
WIDE = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("t", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("n", pa.int16())]
)
FORMS = "rows", "range", "table"
BY_KEY, TWO = ["R.k = S.k"], ["R.k = S.k", "R.n <= S.n", "R.t <= S.t"]


def wide_row(number: int) -> dict[str, Any]:
    """Return a row whose values follow from its number; some are null."""
    kept = number % 7 > 0
    return {
        "id": number % BURST,
        "k": number % KEYS,
        "t": number // 10,
        "s": f"row {number}" if kept else None,
        "b": number % 2 == 0 if kept else None,
        "n": number % 100 if kept else None,
    }


class Burst:
    """A runtime over R, in one of the FORMS, and S, and the rows of R that live, which a plain loop joins.

    keep   number of rows of R that live after `settle`
    """

    def __init__(self, form: str, on: list[str], keep: int = 9, **options: Any) -> None:
        self.form, self.on, self.keep = form, on, keep
        self.number, self.rows = 0, list[dict[str, Any]]()
        there = eddy.Stream("S", WIDE, window=eddy.Rows(1) if form != "range" else eddy.Range(0), time="t")
        here: eddy.Stream
        if form == "table":
            here = eddy.Table("R", WIDE, key="id", ops="column")
        elif form == "rows":
            here = eddy.Stream("R", WIDE, window=eddy.Rows(keep), time="t")
        else:
            here = eddy.Stream("R", WIDE, window=eddy.Range(5), time="t")
        select = [f"R.{name}" for name in WIDE.names] + ["S.id"]
        self.runtime = eddy.Runtime(eddy.Query([here, there], on, select=select), output="changelog", **options)

    def push(self, rows: int) -> None:
        """Push rows of R with the next numbers."""
        made = [wide_row(self.number + n) for n in range(rows)]
        self.number += rows
        batch = pa.Table.from_pylist(made, schema=WIDE)
        if self.form == "table":
            batch = batch.append_column("op", pa.array(["c"] * rows))
            ids = {row["id"] for row in made}
            self.rows = [row for row in self.rows if row["id"] not in ids]
        self.runtime.push({"R": batch})
        self.rows += made

    def settle(self) -> None:
        """Let all rows but the last ones end."""
        if self.form == "table":
            ended, self.rows = self.rows[: -self.keep], self.rows[-self.keep :]
            self.runtime.push({"R": [{**row, "op": "d"} for row in ended]})
        elif self.form == "rows":
            self.rows = self.rows[-self.keep :]
        else:
            self.number += 10_000
            self.rows = []
            self.push(self.keep)

    def check(self) -> None:
        """Push a row of S, and compare its results with those of a plain loop over the rows of R."""
        self.number += KEYS
        row = {**wide_row(self.number), "n": 60, "k": self.number % KEYS, "t": self.number // 10}
        if self.form == "range":
            # The rows that are too old for a result with this one.
            self.rows = [partner for partner in self.rows if row["t"] - partner["t"] <= 5]
        changes = self.runtime.push({"S": pa.Table.from_pylist([row], schema=WIDE)})
        new = changes.filter(pa.compute.equal(changes["op"], "+I")).drop_columns("op")
        expected = [
            {**{f"R.{name}": value for name, value in partner.items()}, "S.id": row["id"]}
            for partner in self.rows
            if partner["k"] == row["k"]
            and (
                self.on == BY_KEY
                or (partner["n"] is not None and partner["n"] <= row["n"] and partner["t"] <= row["t"])
            )
        ]
        assert sorted(map(str, new.to_pylist())) == sorted(map(str, expected))
        self.runtime.check()


@pytest.mark.parametrize("strategy", ["jisc", "mjoin", "eddy-stairs"])
@pytest.mark.parametrize("on", [BY_KEY, TWO], ids=["keys", "comparisons"])
@pytest.mark.parametrize("form", FORMS)
def test_rings_that_a_burst_enlarged_are_given_back(form: str, on: list[str], strategy: str) -> None:
    burst = Burst(form, on, strategy=strategy)
    runtime = burst.runtime
    for turn in range(3):
        burst.push(BURST)
        burst.settle()
        burst.check()
        before, spare = runtime.nbytes, runtime.spare_bytes
        contents = runtime.snapshot()
        runtime.trim()
        runtime.check()
        assert runtime.snapshot() == contents
        assert before - spare <= runtime.nbytes < before / 2, (turn, before, spare, runtime.nbytes)
        assert max(runtime._pipeline.join.modules.capacity) == 64
        assert runtime.spare_bytes < 20_000
        # Rings grow again, with numbers that begin anywhere.
        for rows in (1, 70, 3):
            burst.push(rows)
            if form == "rows":
                burst.settle()
            burst.check()


def test_rings_keep_what_the_next_pushes_need() -> None:
    burst = Burst("table", BY_KEY, keep=100)
    burst.push(BURST)
    burst.settle()
    burst.runtime.trim()
    capacity = burst.runtime._pipeline.join.modules.capacity
    assert capacity[0] == 256
    burst.push(100)
    burst.check()
    assert burst.runtime._pipeline.join.modules.capacity == capacity


@pytest.mark.campaign(0)
@pytest.mark.parametrize("form", FORMS)
def test_an_exception_at_each_line_of_a_trim(form: str) -> None:
    seen, done = Seen(), False
    while not done:
        burst = Burst(form, BY_KEY)
        burst.push(BURST)
        burst.settle()
        done = traced(lambda burst=burst: burst.runtime.trim() or True, seen) is not None
        burst.runtime.check()
        burst.check()
        burst.push(70)
        if form == "rows":
            burst.settle()
        burst.check()
        burst.runtime.trim()
        burst.check()
    assert len(seen) > 50


@pytest.mark.campaign(0)
@pytest.mark.usefixtures("small_rings")
def test_any_changes_of_tables_with_rings_that_grow_and_shrink() -> None:
    run_state_machine_as_test(TableMachine, settings=settings(stateful_step_count=12))
