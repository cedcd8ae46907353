"""`Runtime.trim`: results stay equal, and the memory that pushes make again is given back."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from jisc.strategies import STRATEGIES
from tests.cases import assert_same, text_rows

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
EAGER = ("moving-state", "stairs", "eddy-stairs", "symmetric-hash")


def streams() -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=eddy.Range(90), time="t") for name in "RSTU"]


ON = ["R.k = S.k", "S.k = T.k", "T.k = U.k"]
BETWEEN = ["R.k = S.k", "S.k < T.k", "T.k = U.k"]


def pushed(chance: random.Random, turn: int, rows: int) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        own = [{"k": chance.randrange(8), "t": 20 * turn + chance.randrange(20)} for _ in range(rows)]
        return pa.Table.from_pylist(own, schema=SCHEMA)

    return {name: table() for name in "RSTU"}


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
        rows = pushed(chance, turn, 10 if on == ON else 5)
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
    own = streams()[:3]
    query = eddy.Query(own[:2], ON[:1], branches=[eddy.Branch([own[2]], ON[1:2], "left")])
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
