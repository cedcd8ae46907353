"""Joins of many streams on one key: presence words stand for the states of strategies that store states."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given

import stairs.stems
from eddy import Query, Rows, Runtime, Stream
from eddy.fuzz.case import Case
from eddy.fuzz.draw import cases
from eddy.fuzz.play import play
from jisc.strategies import StrategyName
from stairs.kernels.presence import MANY

DERIVING: tuple[StrategyName, ...] = ("jisc", "eddy-jisc", "moving-state", "symmetric-hash")
NAMES = [f"s{i}" for i in range(MANY + 1)]
SCHEMA = pa.schema([("k", pa.int64())])
QUERY = Query([Stream(name, SCHEMA, Rows(6)) for name in NAMES], [f"{NAMES[0]}.k = {name}.k" for name in NAMES[1:]])


@pytest.mark.campaign(0)
@given(cases(["eddy", "mjoin", "cacq", *DERIVING], ["append", "changelog"], 4))
def test_joins_with_words_give_what_the_oracle_gives(case: Case) -> None:
    """Joins of few streams have words as well here: the oracle visits all combinations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stairs.stems, "MANY", 2)
        play(case)


def pushed(strategy: StrategyName, plans: list[str]) -> tuple[Runtime, list[pa.Table]]:
    """Push rows that have results, before and after each change of plan, one of which comes within a push."""
    runtime, rng = Runtime(QUERY, " ".join(NAMES), strategy=strategy, policy="fixed"), random.Random(7)
    tables = []
    for n, plan in enumerate([None, *plans]):
        if plan is not None:
            runtime.transition(plan, at=runtime.position + 100 if n % 2 else None)
        for _ in range(3):
            order = [rng.choice(NAMES) for _ in range(200)]
            keys = {name: [rng.randrange(4) for _ in range(order.count(name))] for name in NAMES}
            rows = {name: pa.record_batch({"k": pa.array(column, pa.int64())}) for name, column in keys.items()}
            tables.append(runtime.push(rows, [NAMES.index(name) for name in order]))
    return runtime, tables


@pytest.mark.parametrize("strategy", DERIVING)
def test_nothing_is_stored_and_a_transition_is_over_at_once(strategy: StrategyName) -> None:
    backwards, bushy = " ".join(NAMES[::-1]), f"({' '.join(NAMES[:4])}) ({' '.join(NAMES[4:])})"
    plans = [] if strategy == "symmetric-hash" else [backwards, bushy]
    runtime, tables = pushed(strategy, plans)
    assert runtime.stairs == []
    _, expected = pushed("mjoin", plans)
    assert sum(table.num_rows for table in expected) > 100
    assert [table.sort_by([(name, "ascending") for name in table.column_names]) for table in tables] == [
        table.sort_by([(name, "ascending") for name in table.column_names]) for table in expected
    ]
    for change in runtime.history().to_pylist():
        assert change["ended"] is not None
        assert change["promoted"] == change["intermediate"] == 0
    again = Runtime.restore(runtime.snapshot(), QUERY)
    assert again.stairs == []
    assert again.strategy == strategy


def test_a_state_that_the_caller_chose_is_stored() -> None:
    runtime = Runtime(QUERY, " ".join(NAMES), store=[f"{NAMES[0]} {NAMES[1]}"], policy="fixed")
    assert [stair.streams for stair in runtime.stairs] == [(0, 1)]
    moving = Runtime(QUERY, " ".join(NAMES), strategy="moving-state", store=[f"{NAMES[0]} {NAMES[1]}"])
    assert [stair.streams for stair in moving.stairs] == [(0, 1)]


def test_choosing_and_not_choosing_may_take_turns() -> None:
    """A transition to chosen states leaves presence words behind, and one to none of them stays with STAIRs."""
    runtime = Runtime(QUERY, " ".join(NAMES), strategy="moving-state")
    for k, store in enumerate(([f"{NAMES[0]} {NAMES[1]}"], [])):
        row = pa.record_batch({"k": pa.array([k], pa.int64())})
        assert [runtime.push({name: row}).num_rows for name in NAMES[1:]] == [0] * MANY
        runtime.transition(" ".join(NAMES), store=store)
        assert runtime.push({NAMES[0]: row}).num_rows == 1
        assert len(runtime.stairs) == len(store)


@pytest.mark.parametrize("strategy", ["jisc", "eddy", "cacq"])
def test_explain_says_what_stands_for_the_states(strategy: StrategyName) -> None:
    runtime = pushed(strategy, [])[0]
    assert runtime.explain().count("(presence words)") == (0 if strategy == "cacq" else MANY - 1)
