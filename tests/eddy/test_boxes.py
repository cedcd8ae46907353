"""Boxes: the subtree that a transition changes. Parallel Track runs both versions of it, and nothing else, twice."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy import Query, Range, Rows, Runtime, Stream
from jisc.plan.box import read_box, smallest_box
from jisc.plan.tree import parse
from jisc.strategies import STRATEGIES
from stairs.descriptors import E_PROMOTED
from stairs.graph import JoinGraph
from tests.eddy.live_engines import SavedRuntime

NAMES = "RSTUV"
KEYS = pa.schema([("k", pa.int64())])
OLD, NEW = "(((R S) T) U) V", "(((R T) S) U) V"
STORING = ("jisc", "moving-state", "stairs", "parallel-track", "eddy")
UPPER = ["R S T", "R S T U"]


def query(window: int = 8) -> Query:
    streams = [Stream(name, KEYS, window=Rows(window)) for name in NAMES]
    return Query(streams, [f"R.k = {name}.k" for name in NAMES[1:]])


def graph() -> JoinGraph:
    return query().graph


def started(strategy: str, plan: str = OLD, **options: Any) -> Runtime:
    chosen = {"store": ["R S", *UPPER]} if strategy == "eddy" else {}
    return Runtime(query(), plan, strategy=strategy, policy="fixed", ids_only=True, **chosen, **options)  # type: ignore[arg-type]


def push(runtime: Runtime, random: Random, rows: int) -> list[tuple[int, ...]]:
    order = [random.randrange(5) for _ in range(rows)]
    batches = {
        name: pa.record_batch({"k": [random.randrange(3) for _ in range(order.count(i))]}, schema=KEYS)
        for i, name in enumerate(NAMES)
    }
    table = runtime.push(batches, order)
    return sorted(zip(*(table[name].to_pylist() for name in NAMES), strict=True))


def by_streams(runtime: Runtime) -> dict[str, list[Any]]:
    stairs: dict[str, list[Any]] = {}
    for stair in runtime.stairs:
        stairs.setdefault(" ".join(NAMES[j] for j in stair.streams), []).append(stair)
    return stairs


@pytest.mark.parametrize(
    ("old", "new", "box"),
    [
        ("(R S) T", "R (S T)", "R S T"),
        ("((R S) T) U", "((R T) S) U", "R S T"),
        ("((R S) T) U", "((R S) U) T", "R S T U"),
        ("((R S) T) (U V)", "((S T) R) (V U)", "R S T"),
        ("((R S) T) ((U V) W)", "((R T) S) ((U W) V)", "R S T U V W"),
        ("((R S) T) U", "U (T (S R))", ""),
    ],
)
def test_the_smallest_box(old: str, new: str, box: str) -> None:
    names = tuple(name for name in "RSTUVW" if name in old)
    bits = smallest_box(parse(old, names), parse(new, names))
    assert " ".join(name for j, name in enumerate(names) if bits >> j & 1) == box


def test_a_named_box_may_be_larger_and_not_smaller() -> None:
    old, new = parse(OLD, tuple(NAMES)), parse(NEW, tuple(NAMES))
    assert read_box("((R S) T)", old, new, graph()) == 0b111
    assert read_box("U T S R", old, new, graph()) == 0b1111
    for text, message in (
        ("R S", "'R S' is no subtree with a join in the plan '\\(\\(\\(R T\\) S\\) U\\) V'"),
        ("R X", "there is no stream 'X'"),
        ("V", "no subtree"),
    ):
        with pytest.raises(eddy.PlanError, match=message):
            read_box(text, old, new, graph())
    swapped = parse("(((R S) T) V) U", tuple(NAMES))
    with pytest.raises(eddy.PlanError, match=r"also differ outside of it; the smallest box is 'R S T U V'"):
        read_box("R S T", old, swapped, graph())


def test_a_box_is_refused_for_a_later_change() -> None:
    runtime = started("parallel-track")
    with pytest.raises(eddy.InputError, match="at=7 is later: leave one out"):
        runtime.transition(NEW, 7, box="R S T")
    with pytest.raises(eddy.PlanError, match="is a subtree as text"):
        runtime.transition(NEW, box=3)  # type: ignore[arg-type]
    assert runtime.plan == OLD
    runtime.check()


@pytest.mark.parametrize("strategy", STORING)
def test_unchanged_subtrees_are_never_rebuilt(strategy: str) -> None:
    """The states above the box are the same objects before and after, and no key of them is promoted again."""
    random, runtime = Random(1), started(strategy)
    push(runtime, random, 60)
    before = by_streams(runtime)
    promoted = {name: int(before[name][0].state[E_PROMOTED]) for name in UPPER}
    runtime.transition(NEW, store=["R T", *UPPER] if strategy == "eddy" else None)
    after = by_streams(runtime)
    for name in UPPER:
        assert [stair is before[name][0] for stair in after[name]] == [True]
        assert after[name][0].state[E_PROMOTED] == promoted[name]
    runtime.check()
    push(runtime, random, 60)
    runtime.check()


def test_parallel_track_runs_two_tracks_for_the_box_only() -> None:
    random, runtime = Random(2), started("parallel-track")
    other, again = started("mjoin"), Random(2)
    for step in range(12):
        if step == 4:
            done = runtime.transition(NEW)
            assert done is not None
            assert (done.kept, done.complete) == (2, 3)
            assert sorted(by_streams(runtime)) == ["R S", "R S T", "R S T U", "R T"]
        assert push(runtime, random, 12) == push(other, again, 12)
        runtime.check()
    assert sorted(by_streams(runtime)) == ["R S T", "R S T U", "R T"]
    (change,) = runtime.history().to_pylist()
    assert change["ended"] is not None
    assert change["duplicates"] > 0


def test_subtrees_within_a_box_are_shared_unless_the_box_has_a_name() -> None:
    for box, names in ((None, ["R S", "R S T", "R S T U", "R S U"]), ("R S T U V", ["R S", "R S", "R S T U"])):
        runtime, random = started("parallel-track"), Random(3)
        push(runtime, random, 60)
        runtime.transition("(((R S) U) T) V", box=box)
        stair_names = [name for name, stairs in by_streams(runtime).items() for _ in stairs]
        assert sorted(stair_names) == sorted(names if box is None else [*names, "R S T", "R S T U", "R S U"])
        other, again = started("mjoin"), Random(3)
        push(other, again, 60)
        for _ in range(10):
            assert push(runtime, random, 12) == push(other, again, 12)
            runtime.check()


def test_transitions_overlap_and_plans_that_are_the_same_begin_no_track() -> None:
    random, runtime, other, again = Random(4), started("parallel-track"), started("mjoin"), Random(4)
    for plan in (OLD, NEW, "V (U (S (T R)))", "(((R T) U) S) V", OLD, "((R S) T) (U V)", *[OLD] * 15):
        runtime.transition(plan)
        assert push(runtime, random, 9) == push(other, again, 9)
        runtime.check()
    assert all(transition["ended"] is not None for transition in runtime.history().to_pylist())


@pytest.mark.parametrize("box", [None, "R S T U V"])
def test_a_box_with_two_versions_moves_to_another_process(box: str | None, tmp_path: Path) -> None:
    random, other, again = Random(9), started("mjoin"), Random(9)
    saved = SavedRuntime(tmp_path / "engine", started("parallel-track", purge="paper"))
    push(saved.runtime, random, 60)
    push(other, again, 60)
    saved.runtime.transition(NEW, box=box)
    while saved.runtime.history()["ended"][0].as_py() is None:
        runtime = saved.again(query())
        runtime.check()
        assert push(runtime, random, 6) == push(other, again, 6)
        runtime.check()
    assert sorted(by_streams(saved.runtime)) == ["R S T", "R S T U", "R T"]
    saved.leave()


@pytest.mark.parametrize(("purge", "least", "most"), [("exact", 100, 110), ("paper", 200, 220)])
def test_a_stage_lasts_one_window_or_two_as_in_the_paper(purge: str, least: int, most: int) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    streams = [Stream(name, schema, window=Range(100), time="t") for name in "RST"]
    join = Query(streams, ["R.k = S.k", "S.k = T.k"])
    runtime = Runtime(join, "(R S) T", strategy="parallel-track", policy="fixed", purge=purge, ids_only=True)  # type: ignore[arg-type]
    for time in range(400):
        if time == 150:
            runtime.transition("(R T) S")
        if time == 300:
            # It is not known within the stage how long it has lasted, and continues as before.
            with pytest.raises(eddy.InputError):
                runtime.push({"R": pa.record_batch({"k": ["a"], "t": [1]})})
        row = pa.record_batch({"k": [time % 3], "t": [time]}, schema=schema)
        runtime.push({"RST"[time % 3]: row})
    (change,) = runtime.history().to_pylist()
    assert least < change["ended"] - 150 < most


def test_purge_is_for_plans_that_run_side_by_side() -> None:
    with pytest.raises(eddy.InputError, match="purge='paper' is for strategy 'parallel-track'; strategy 'jisc'"):
        started("jisc", purge="paper")
    with pytest.raises(eddy.InputError, match="choose one of 'exact', 'paper'"):
        started("parallel-track", purge="never")
    runtime = Runtime.restore(started("parallel-track", purge="paper").snapshot(), query())
    assert runtime._pipeline.join.strategy.purge == "paper"
    assert Runtime.restore(runtime.snapshot(), query(), strategy="mjoin").strategy == "mjoin"


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_takes_a_box(strategy: str) -> None:
    if not STRATEGIES[strategy].changes:
        return
    random, runtime, other, again = Random(6), started(strategy), started("mjoin"), Random(6)
    for step in range(6):
        if step == 2:
            runtime.transition(NEW, box="R S T")
        assert push(runtime, random, 20) == push(other, again, 20)
    runtime.check()


def test_moving_state_of_a_join_with_more_than_two_inputs() -> None:
    """R, S and T are one operator, then a tree, then another tree, then one operator; what is above it stays."""
    random, other, again = Random(7), started("mjoin"), Random(7)
    runtime = started("moving-state", store=UPPER)
    push(runtime, random, 60)
    push(other, again, 60)
    before = by_streams(runtime)
    assert sorted(before) == UPPER
    for plan, store, recomputed in (
        (OLD, ["R S", *UPPER], 1),
        (NEW, ["R T", *UPPER], 1),
        (OLD, UPPER, 0),
        (NEW, None, 0),
    ):
        done = runtime.transition(plan, store=store)
        assert done is not None
        assert (done.kept, done.recomputed) == (2, recomputed)
        assert sorted(by_streams(runtime)) == sorted(store or UPPER)
        assert all(by_streams(runtime)[name][0] is before[name][0] for name in UPPER)
        for _ in range(3):
            assert push(runtime, random, 12) == push(other, again, 12)
            runtime.check()
    # R S was chosen for an earlier plan, and is no state of this one.
    runtime.transition("(((S T) R) U) V")
    runtime = Runtime.restore(runtime.snapshot(), query())
    assert sorted(by_streams(runtime)) == UPPER
    assert push(runtime, random, 12) == push(other, again, 12)
    assert sorted(by_streams(Runtime.restore(runtime.snapshot(), query(), OLD))) == ["R S", *UPPER]
    with pytest.raises(eddy.PlanError, match="has no inner state 'S T'"):
        runtime.transition(OLD, store=["S T"])


def test_states_are_chosen_for_a_later_change_too() -> None:
    runtime = started("moving-state")
    runtime.transition(NEW, 5, store=["R S T"])
    push(runtime, Random(8), 20)
    assert sorted(by_streams(runtime)) == ["R S T"]
