"""Adaptive filters accept the rows of a nested loop, and their order follows cost and selectivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.filters import adaptive as adaptive_filters
from eddy.filters import sampling
from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.profile import CallCost, Profile

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])


class ConditionClock:
    """A clock that advances only when a condition is evaluated."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def condition(
    clock: ConditionClock, column: str, per_row: float, per_call: float = 1e-6
) -> Callable[[pa.RecordBatch], Any]:
    """Return a function that reads a column of bool and takes time by the clock."""

    def asked(batch: pa.RecordBatch) -> Any:
        clock.now += per_call + per_row * len(batch)
        return batch[column]

    return asked


# Each condition in two forms: for the filter, and for one row.
FORMS: list[tuple[Any, Callable[[dict[str, Any]], bool | None]]] = [
    (pc.field("a") > 2, lambda row: None if row["a"] is None else row["a"] > 2),
    (pc.field("b") == "x", lambda row: None if row["b"] is None else row["b"] == "x"),
    (pc.is_valid(pc.field("b")), lambda row: row["b"] is not None),
    (pc.scalar(True), lambda row: True),
    (lambda batch: pc.less(batch["a"], 4), lambda row: None if row["a"] is None else row["a"] < 4),
    (lambda batch: pa.chunked_array([pc.is_null(batch["a"])]), lambda row: row["a"] is None),
    (lambda batch: np.array([text != "y" for text in batch["b"].to_pylist()], bool), lambda row: row["b"] != "y"),
    (eddy.Predicate(lambda batch: pc.equal(batch.column(0), 3), ["a"]), lambda row: row["a"] == 3),
    (lambda batch: pa.nulls(len(batch)), lambda row: None),
]
ROWS = st.fixed_dictionaries(
    {"a": st.sampled_from([3, 1, 2, 4, 5, None]), "b": st.sampled_from(["x", "y", None]), "n": st.just(0)}
)


@given(
    chosen=st.lists(st.sampled_from(range(len(FORMS))), max_size=5),
    batches=st.lists(st.lists(ROWS, max_size=40), max_size=6),
    adaptive=st.booleans(),
    share=st.sampled_from([0.0, 0.02, 0.9]),
    narrow=st.sampled_from([0.0, 1.0, None]),
    slice_rows=st.sampled_from([7, 65_536]),
)
def test_the_rows_accepted_are_those_of_a_nested_loop(
    chosen: list[int],
    batches: list[list[dict[str, Any]]],
    adaptive: bool,
    share: float,
    narrow: float | None,
    slice_rows: int,
) -> None:
    accepts = AdaptiveFilter([FORMS[k][0] for k in chosen], adaptive=adaptive, share=share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive_filters, "SLICE_ROWS", slice_rows)
        patch.setattr(sampling, "FIRST_ONE_IN", 1)
        if narrow is not None:
            # Always narrow the slice, or never.
            patch.setattr(AdaptiveFilter, "_pays", lambda *_: bool(narrow))
        for rows in batches:
            batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
            expected = [i for i, row in enumerate(rows) if all(FORMS[k][1](row) is True for k in chosen)]
            got = accepts.accepted(batch)
            assert got.dtype == np.int64
            assert got.tolist() == expected
            assert accepts.filter(batch).to_pylist() == [rows[i] for i in expected]
    assert sorted(figures["position"] for figures in accepts.stats()) == list(range(len(chosen)))


def flags(rng: np.random.Generator, shares: dict[str, float], rows: int) -> pa.RecordBatch:
    """Return columns of bool, each true for a share of the rows."""
    return pa.record_batch({name: pa.array(rng.random(rows) < share) for name, share in shares.items()})


def test_the_order_follows_drift() -> None:
    rng, clock = np.random.default_rng(1), ConditionClock()
    accepts = AdaptiveFilter([condition(clock, name, 1e-6) for name in "pqr"], names=list("pqr"), clock=clock)
    for _ in range(20):
        accepts.filter(flags(rng, {"p": 0.9, "q": 0.5, "r": 0.1}, 20_000))
    assert accepts.order == ("r", "q", "p")
    for _ in range(40):
        accepts.filter(flags(rng, {"p": 0.1, "q": 0.5, "r": 0.9}, 20_000))
    # The order of the others would save little.
    assert accepts.order[0] == "p"
    assert 2 <= accepts.reorders <= 8
    assert accepts.sample_seconds < 0.03 * accepts.seconds
    first = accepts.stats()[0]
    assert first["predicate"] == "p"
    assert first["selectivity"] == pytest.approx(0.1, abs=0.06)
    assert first["row_ns"] == pytest.approx(1000, rel=0.1)


def test_small_pushes_learn_too_and_sample_within_their_share() -> None:
    rng, clock = np.random.default_rng(2), ConditionClock()
    accepts = AdaptiveFilter([condition(clock, name, 1e-6) for name in "pq"], names=list("pq"), clock=clock)
    for _ in range(2_000):
        accepts.filter(flags(rng, {"p": 0.9, "q": 0.1}, 100))
    assert accepts.order == ("q", "p")
    assert accepts.sample_seconds < 0.03 * accepts.seconds


def test_cost_counts_as_much_as_what_is_dropped() -> None:
    rng, clock = np.random.default_rng(3), ConditionClock()
    dear, cheap = condition(clock, "dear", 1e-5), condition(clock, "cheap", 1e-7)
    accepts = AdaptiveFilter([dear, cheap], names=["dear", "cheap"], clock=clock)
    for _ in range(5):
        accepts.filter(flags(rng, {"dear": 0.1, "cheap": 0.8}, 20_000))
    assert accepts.order == ("cheap", "dear")


@pytest.mark.parametrize("rows", [200, 50_000])
def test_what_a_call_costs_does_not_count_where_every_order_makes_it(rows: int) -> None:
    rng, clock = np.random.default_rng(4), ConditionClock()
    slope, flat = condition(clock, "slope", 1e-6, 1e-5), condition(clock, "flat", 1e-8, 1e-3)
    accepts = AdaptiveFilter([slope, flat], names=["slope", "flat"], clock=clock, share=0.3)
    for _ in range(60):
        accepts.filter(flags(rng, {"slope": 0.5, "flat": 0.5}, rows))
    assert accepts.order == ("flat", "slope")


def test_conditional_rates_decide_behind_the_first_place() -> None:
    rng, clock = np.random.default_rng(5), ConditionClock()
    accepts = AdaptiveFilter([condition(clock, name, 1e-6) for name in "abc"], names=list("abc"), clock=clock)
    for _ in range(10):
        draws = rng.random(20_000)
        # b drops half of all rows, but none that a accepts; c drops fewer, and a accepts all of these.
        batch = pa.record_batch({"a": draws > 0.6, "b": draws > 0.5, "c": draws < 0.7})
        accepts.filter(batch)
    assert accepts.order == ("a", "c", "b")
    by_name = {figures["predicate"]: figures for figures in accepts.stats()}
    assert by_name["b"]["selectivity"] > 0.85
    assert by_name["b"]["selectivity_alone"] == pytest.approx(0.5, abs=0.1)


def test_equal_conditions_do_not_take_turns() -> None:
    rng, clock = np.random.default_rng(6), ConditionClock()
    names = [f"p{k}" for k in range(4)]
    accepts = AdaptiveFilter([condition(clock, name, 1e-6) for name in names], names=names, clock=clock)
    for _ in range(300):
        accepts.filter(flags(rng, dict.fromkeys(names, 0.5), 20_000))
    assert accepts.sampled > 10_000
    assert accepts.reorders <= 3


def test_rare_drops_move_nothing() -> None:
    rng, clock = np.random.default_rng(7), ConditionClock()
    names = ["p", "q", "r"]
    accepts = AdaptiveFilter([condition(clock, name, 1e-6) for name in names], names=names, clock=clock)
    for _ in range(200):
        accepts.filter(flags(rng, dict.fromkeys(names, 0.999), 20_000))
    assert accepts.reorders == 0


def test_a_fixed_order_samples_nothing_and_one_condition_has_no_profile() -> None:
    rng, clock = np.random.default_rng(8), ConditionClock()
    batch = flags(rng, {"p": 0.9, "q": 0.1}, 5_000)
    fixed = AdaptiveFilter([condition(clock, name, 1e-6) for name in "pq"], names=["p", "q"], adaptive=False)
    only = AdaptiveFilter(pc.field("q"))
    for _ in range(20):
        fixed.filter(batch)
        only.filter(batch)
    assert fixed.order == ("p", "q")
    assert fixed.sampled == only.sampled == 0
    (figures,) = only.stats()
    assert (figures["rows"], figures["accepted"]) == (100_000, 20 * batch["q"].true_count)
    assert figures["selectivity"] == pytest.approx(0.1, abs=0.02)


def test_a_condition_is_asked_about_fewer_rows_behind_one_that_drops() -> None:
    asked: list[int] = []

    def dear(batch: pa.RecordBatch) -> pa.Array:
        asked.append(len(batch))
        return pa.array([value % 2 == 0 for value in batch["n"].to_pylist()])

    accepts = AdaptiveFilter([pc.field("n") < 100, dear], adaptive=False)
    assert len(accepts.accepted(pa.record_batch({"n": range(50_000), "more": ["text"] * 50_000}))) == 50
    assert asked == [100]


def test_a_cost_is_that_of_a_call_and_that_of_a_row() -> None:
    cost = CallCost()
    for rows in (10, 1_000, 100_000, 10, 0):
        cost.note(rows, 2e-4 + 3e-8 * rows)
    assert cost.call_s == pytest.approx(2e-4, rel=0.01)
    assert cost.row_s == pytest.approx(3e-8, rel=0.01)
    cost.note(100_000, 60.0)
    assert cost.of(100_000) < 0.1, "a pause is no cost"
    for _ in range(300):
        cost.note(100_000, 1.0)
    assert cost.of(100_000) == pytest.approx(1.0, rel=0.1), "a cost that stays is one"


def test_an_empty_profile_changes_nothing() -> None:
    profile = Profile(2)
    assert profile.better([0, 1], [CallCost(), CallCost()], 10) is None
    assert profile.drops([1, 0]) == [0.0, 0.0]


BATCH = pa.record_batch({"a": [4, 8], "b": ["x", "y"], "n": [2, 0]}, schema=SCHEMA)


def explode(batch: pa.RecordBatch) -> Any:
    raise ValueError("no model was loaded")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda batch: pa.array([True]), ["1 values for 2 rows"]),
        (lambda batch: np.ones((2, 1), bool), ["ndarray of bool of shape (2, 1)", "one-dimensional"]),
        (lambda batch: batch["a"], ["Int64Array of int64", "boolean"]),
        (lambda batch: [True, False], ["list", "boolean"]),
        (lambda batch: None, ["NoneType"]),
        (lambda batch: batch["missing"], ["KeyError", "missing"]),
        (explode, ["ValueError: no model was loaded"]),
        (pc.field("a") / (pc.field("n") * 0) > 2, ["divide by zero"]),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_condition_that_fails_is_named(wrong: Any, words: list[str], count: int) -> None:
    wrong = eddy.Predicate(wrong, name="the wrong one")
    accepts = AdaptiveFilter([wrong, pc.field("n") != 0][:count], place="stream R: its filter")
    with pytest.raises(eddy.InputError) as raised:
        accepts.filter(BATCH)
    named = "the wrong one" if count == 2 or not isinstance(wrong.function, pc.Expression) else "its filter failed"
    for word in ["stream R", named, *words]:
        assert word in str(raised.value)
    several = count == 2 and not isinstance(wrong.function, pc.Expression)
    assert ("each is evaluated on any row" in str(raised.value)) == several


def test_an_error_of_a_function_is_the_cause() -> None:
    with pytest.raises(eddy.InputError) as raised:
        AdaptiveFilter(explode).filter(BATCH)
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdaptiveFilter("a > 1"), ["Expression", "str"]),
        (lambda: AdaptiveFilter([pc.field("a") > 1, 3]), ["condition 2", "int"]),
        (lambda: AdaptiveFilter(int), ["Expression", "type"]),
        (lambda: AdaptiveFilter([explode], names=["p", "q"]), ["1 predicates", "q"]),
        (lambda: AdaptiveFilter([explode, explode], names=["p", "p"]), ["two predicates", "'p'"]),
        (lambda: AdaptiveFilter(pc.field("z") > 1, schema=SCHEMA), ["z", "a, b, n"]),
        (lambda: AdaptiveFilter(eddy.Predicate(explode, ["z"]), schema=SCHEMA), ["'z'", "a, b, n"]),
        (lambda: AdaptiveFilter(explode, share=1), ["share"]),
        (lambda: eddy.Predicate(3), ["3"]),
        (lambda: eddy.Predicate(explode, name=""), ["name"]),
        (lambda: eddy.Predicate(explode, columns="a"), ["explode", "'a'"]),
        (lambda: eddy.Predicate(explode, columns=[]), ["explode", "empty"]),
        (lambda: eddy.Predicate(explode, columns=["a", "a"]), ["explode", "twice"]),
        (lambda: eddy.Predicate(pc.field("a") > 1, columns=["a"]), ["expression"]),
    ],
)
def test_what_is_no_condition_is_refused(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(eddy.QueryError) as raised:
        make()
    for word in words:
        assert word in str(raised.value)


def test_rows_without_the_columns_are_refused() -> None:
    accepts = AdaptiveFilter([pc.field("a") > 1, pc.field("z") > 1])
    with pytest.raises(eddy.InputError, match="z"):
        accepts.filter(BATCH)


def test_names_are_told_apart() -> None:
    accepts = AdaptiveFilter([explode, explode, pc.field("a") > 1])
    assert accepts.order == ("explode", "explode #2", "(a > 1)")
