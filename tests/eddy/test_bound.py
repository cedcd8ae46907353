"""The bound on bytes: stored states are dropped, windows are not; a refused push leaves everything as it was."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.routing.plan_change import NO_ROOM
from eddy.routing.policies import Decision, View
from jisc.plan.states import states_of
from jisc.strategies import STRATEGIES
from tests.cases import Arrival, BatchedPush, JoinCase, StreamCase

STORING = [name for name in STRATEGIES if name not in ("eddy", "mjoin", "cacq")]
PLAN = "((R S) T) U"
ALL = ["R S", "R S T"]
KINDS = {"number": pa.int64(), "text": pa.string()}


class All:
    """A policy that stores every state, whatever the room."""

    name = "all"

    def decide(self, view: View) -> Decision | None:
        return Decision(view.tree, states_of(view.tree, view.masks), "all of them")


class BoundedPair:
    """A runtime with a bound, and one without bound and states (`mjoin`) that gets the pushes accepted by the first."""

    def __init__(self, window: int | None = 100, kind: str = "number", payload: bool = False, **options: Any) -> None:
        self.kind, self.random = kind, random.Random(5)
        key = KINDS[kind]
        schema = pa.schema([("k", key), ("p", pa.string() if payload else pa.int64())])
        size: tuple[Any, ...] = ("unbounded", 0) if window is None else ("rows", window)
        streams = tuple(StreamCase(name, schema, *size) for name in "RSTU")
        pairs = tuple((((a, "k"), (b, "k")),) for a, b in zip("RST", "STU", strict=True))
        select = tuple((name, (name, "p")) for name in "RSTU")
        self.case = JoinCase(streams, pairs, select if payload else None)
        self.payload = payload
        options = {"plan": PLAN, "policy": "fixed", "ids_only": not payload, **options}
        self.runtime = eddy.Runtime(self.case.query(), **options)
        self.other = eddy.Runtime(self.case.query(), strategy="mjoin", ids_only=not payload)

    @property
    def used(self) -> int:
        """The bytes that count, computed from scratch."""
        runtime = self.runtime
        return runtime._pipeline.join.bound.base() + runtime._pipeline.join.strategy.nbytes

    def rows(self, n: int, keys: int, first: int = 0) -> list[Arrival]:
        """Return n rows, streams in turn."""
        values = [first + self.random.randrange(keys) for _ in range(n)]
        long = "x" * 100
        return [
            (k % 4, {"k": f"key {value}" if self.kind == "text" else value, "p": f"{long}{k}" if self.payload else k})
            for k, value in enumerate(values)
        ]

    def push(self, rows: list[Arrival]) -> None:
        """Push rows, compare the results, check the bytes."""
        batched, order = BatchedPush(tuple(rows)), [i for i, _ in rows]
        table = self.runtime.push(batched.batches(self.case), order)
        other = self.other.push(batched.batches(self.case), order)
        keys = [(name, "ascending") for name in other.column_names]
        assert table.sort_by(keys).equals(other.sort_by(keys))
        if self.runtime.position < 200:
            self.runtime.check()
        limit = self.runtime._pipeline.join.bound.max_bytes
        assert self.used == self.runtime._pipeline.join.bound.used
        assert limit is None or self.used <= limit

    def refused(self, rows: list[Arrival]) -> str:
        """Push rows for which there is no room; return the error message."""
        before = self.runtime.position, self.runtime.plan, self.runtime.scheduled()
        batched = BatchedPush(tuple(rows))
        with pytest.raises(eddy.CapacityError) as error:
            self.runtime.push(batched.batches(self.case), [i for i, _ in rows])
        assert (self.runtime.position, self.runtime.plan, self.runtime.scheduled()) == before
        self.runtime._pipeline.join.modules.check()
        assert self.used <= self.runtime._pipeline.join.bound.max_bytes
        return str(error.value)

    @property
    def reasons(self) -> list[str]:
        return list(self.runtime.history()["reason"].to_pylist())


def needed(**options: Any) -> int:
    """Return the bytes of a new runtime."""
    return BoundedPair(**options).used


def test_a_bound_that_is_large_enough_changes_nothing() -> None:
    free = BoundedPair(store=ALL, policy="cost", decide_every=40)
    bound = BoundedPair(store=ALL, policy="cost", decide_every=40, max_bytes=10_000_000)
    for _ in range(20):
        for pair in (free, bound):
            pair.push(pair.rows(40, 12))
    assert bound.runtime.history()["stored"].equals(free.runtime.history()["stored"])
    assert bound.runtime.plan == free.runtime.plan
    assert bound.runtime._pipeline.join.strategy.stored == free.runtime._pipeline.join.strategy.stored
    assert NO_ROOM not in bound.reasons
    assert bound.used == free.used


@pytest.mark.parametrize("size", [8, 80, 800])
def test_stored_states_make_way_for_windows(size: int) -> None:
    """Windows outgrow the bound between pushes or within one: states are dropped, results stay right."""
    free = BoundedPair(window=400)
    for _ in range(-(-1600 // size)):
        free.push(free.rows(size, 500))
    pair = BoundedPair(window=400, store=ALL, max_bytes=free.used + 100)
    for _ in range(-(-1600 // size)):
        pair.push(pair.rows(size, 500))
    assert pair.runtime.stairs == []
    assert pair.reasons == [NO_ROOM, NO_ROOM]
    assert pair.runtime.history()["stored"].to_pylist()[-1] == ""
    for _ in range(4):
        pair.push(pair.rows(60, 40))


def test_a_state_that_outgrows_the_bound_within_a_push_goes_and_the_push_is_done_again() -> None:
    pair = BoundedPair(window=200, store=["R S"])
    room = pair.used + 40_000
    pair = BoundedPair(window=200, store=["R S"], max_bytes=room)
    pair.push(pair.rows(40, 40))
    assert len(pair.runtime.stairs) == 1
    # 150 times 150 entries under one key, which no tuple of T has.
    rows = [(k % 2, {"k": 7, "p": k}) for k in range(300)]
    pair.push(rows)
    assert pair.runtime.stairs == []
    assert pair.reasons == [NO_ROOM]


def test_of_two_states_the_one_that_fits_may_stay() -> None:
    pair = BoundedPair(window=None, store=ALL)
    pair = BoundedPair(window=None, store=ALL, max_bytes=pair.used + 60_000)
    pair.push([(k % 2, {"k": k % 3, "p": k}) for k in range(30)])
    # R S T grows, R S does not.
    pair.push([(2, {"k": k % 3, "p": k}) for k in range(200)])
    assert pair.reasons == [NO_ROOM]
    assert len(pair.runtime.stairs) == 1
    assert pair.runtime.stairs[0].streams == (0, 1)


@pytest.mark.parametrize("every", [1, 5, 30])
def test_a_policy_that_stores_whatever_room_there_is(every: int) -> None:
    """Decisions within a push never make the push fail."""
    for more in (0, 800, 3_000, 6_000, 20_000, 60_000):
        free = BoundedPair(window=100)
        for _ in range(12):
            free.push(free.rows(50, 60))
        pair = BoundedPair(window=100, policy=All(), decide_every=every, max_bytes=free.used + more)
        for _ in range(12):
            pair.push(pair.rows(50, 60))
        for _ in range(4):
            pair.push(pair.rows(50, 3))
        assert any(reason.endswith(NO_ROOM) for reason in pair.reasons) or more > 6_000


def test_states_scheduled_in_a_push_are_left_out_when_there_is_no_room() -> None:
    pair = BoundedPair(window=50)
    pair = BoundedPair(window=50, max_bytes=pair.used + 300)
    pair.push(pair.rows(20, 20))
    pair.runtime.transition("((U T) S) R", at=30, store=["T U", "S T U"])
    pair.push(pair.rows(40, 20))
    assert pair.runtime.plan == "((U T) S) R"
    assert pair.runtime.stairs == []
    assert pair.reasons == [f"asked for; {NO_ROOM}"]


def test_states_asked_for_now_are_refused_when_there_is_no_room() -> None:
    pair = BoundedPair(window=50)
    pair = BoundedPair(window=50, max_bytes=pair.used + 300)
    pair.push(pair.rows(20, 20))
    with pytest.raises(eddy.CapacityError, match="max_bytes"):
        pair.runtime.transition("((U T) S) R", store=["T U", "S T U"])
    assert pair.runtime.plan == PLAN
    assert pair.runtime.history().num_rows == 0
    pair.push(pair.rows(40, 20))
    pair.runtime.transition("((U T) S) R", store=[])
    pair.push(pair.rows(40, 20))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("payload", [False, True])
def test_windows_alone_that_outgrow_the_bound(kind: str, payload: bool) -> None:
    """Rows, keys, strings or payload exceed the bound: refused without a loss; smaller pushes still work."""
    for keys in (3, 10_000):
        pair = BoundedPair(window=None, kind=kind, payload=payload)
        pair = BoundedPair(window=None, kind=kind, payload=payload, max_bytes=pair.used + 60_000, count_only=False)
        pair.push(pair.rows(20, keys * 10, first=50))
        message = pair.refused(pair.rows(8_000, 10_000))
        assert "max_bytes is" in message
        assert "narrow the windows" in message
        taken = refusals = 0
        while refusals < 5:
            rows = pair.rows(8, keys * 10, first=100_000)
            try:
                pair.push(rows)
                taken += 1
            except eddy.CapacityError:
                refusals += 1
                # Rings may have grown for the push, within the bound.
                assert pair.used <= pair.runtime._pipeline.join.bound.max_bytes
            if taken > 60:
                break
        assert taken > 5


def test_small_windows_are_not_stuck_after_a_push_with_many_keys() -> None:
    """Key directories that a refused push would have enlarged are as before."""
    pair = BoundedPair(window=16)
    pair = BoundedPair(window=16, max_bytes=pair.used + 2_500)
    pair.push(pair.rows(30, 10))
    used = pair.used
    # As many rows as the rings have slots, each with a new key, again and again.
    for first in range(0, 40_000, 1_000):
        rows = pair.rows(150, 1_000, first=first + 1_000)
        try:
            pair.push(rows)
        except eddy.CapacityError:
            assert pair.used == used
        pair.push(pair.rows(10, 10))
        used = pair.used


@pytest.mark.parametrize("strategy", STORING)
def test_other_strategies_are_refused_with_the_state_as_before(strategy: str) -> None:
    pair = BoundedPair(window=300, strategy=strategy)
    pair = BoundedPair(window=300, strategy=strategy, max_bytes=pair.used + 30_000)
    pair.push(pair.rows(40, 30))
    message = pair.refused([(k % 2, {"k": 7, "p": k}) for k in range(240)])
    assert "max_bytes" in message
    for _ in range(6):
        pair.push(pair.rows(20, 30))
    if STRATEGIES[strategy].changes:
        pair.runtime.transition("((S T) R) U")
        pair.push(pair.rows(20, 30))
        pair.runtime.transition("((S T) U) R", at=pair.runtime.position + 3)
        pair.push(pair.rows(20, 30))


@pytest.mark.parametrize("strategy", [name for name in STORING if STRATEGIES[name].changes])
def test_a_transition_that_there_is_no_room_for(strategy: str) -> None:
    """R S is small; S T, which has one key, is large."""
    pair = BoundedPair(window=100, strategy=strategy)
    pair = BoundedPair(window=100, strategy=strategy, plan="((R S) U) T", max_bytes=pair.used + 30_000)
    pair.push([(1 + k % 2, {"k": 7, "p": k}) for k in range(180)])
    before = pair.runtime.history().num_rows
    try:
        pair.runtime.transition("((S T) R) U")
        changed = True
    except eddy.CapacityError:
        changed = False
        assert pair.runtime.plan == "((R S) U) T"
        assert pair.runtime.history().num_rows == before
    assert changed == (strategy in ("jisc", "eddy-jisc", "parallel-track"))
    pair.push(pair.rows(8, 5, first=100))
    if changed and strategy != "parallel-track":
        # The key is promoted on its first probe.
        pair.refused([(0, {"k": 7, "p": 1})])
        pair.push(pair.rows(8, 5, first=100))


def test_background_promotion_keeps_to_the_bound() -> None:
    pair = BoundedPair(window=100)
    pair = BoundedPair(window=100, store=["R S"], plan="(R S) (T U)", background=50, max_bytes=pair.used + 9_000)
    for _ in range(10):
        pair.push([(k % 2, {"k": k % 9, "p": k}) for k in range(20)])
        pair.runtime.transition("(R S) (T U)", store=["R S"] if pair.runtime.position % 40 else [])
    assert pair.used <= pair.runtime._pipeline.join.bound.max_bytes


def test_a_restored_runtime_keeps_the_bound() -> None:
    pair = BoundedPair(window=400, store=ALL)
    pair = BoundedPair(window=400, store=ALL, max_bytes=pair.used + 20_000)
    pair.push(pair.rows(100, 50))
    pair.runtime = eddy.Runtime.restore(pair.runtime.snapshot(), pair.case.query())
    assert len(pair.runtime.stairs) == 2
    for _ in range(6):
        pair.push(pair.rows(100, 50))
    pair.refused(pair.rows(4_000, 3_000))
    again = eddy.Runtime.restore(pair.runtime.snapshot(), pair.case.query(), strategy="mjoin")
    assert again._pipeline.join.bound.max_bytes == pair.runtime._pipeline.join.bound.max_bytes


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, "1", True])
def test_no_number_of_bytes(max_bytes: Any) -> None:
    with pytest.raises(eddy.InputError, match="max_bytes"):
        BoundedPair(max_bytes=max_bytes)


def test_what_a_bound_counts() -> None:
    """Windows, keys, payload and states count; results do not, nor does a large push that left nothing."""
    pair = BoundedPair(window=20, store=ALL)
    pair.push(pair.rows(400, 5))
    metrics = pair.runtime.metrics()
    assert pair.used < metrics["bytes"]
    assert pair.used >= sum(state["bytes"] for state in metrics["states"].values())
    assert np.isinf(pair.runtime._pipeline.join.modules.allowance.limit)


@pytest.mark.campaign(9)
@pytest.mark.parametrize("output", ["append", "changelog"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0, 4.0, 10.0])
def test_nbytes_stays_within_the_bound_after_each_push(output: str, grouped: bool, factor: float) -> None:
    """Check all that `nbytes` counts: late rows and the room of the last push, also after a refused push."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("p", pa.string())])
    streams = [eddy.Stream(name, schema, window=eddy.Range(50), time="t") for name in "RST"]
    counted: dict[str, Any] = {"group_by": ["R.k"], "aggregates": {"c": eddy.agg.count(), "m": eddy.agg.max("S.p")}}
    if output == "append":
        counted["group_window"] = eddy.Tumbling(40)
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], **(counted if grouped else {}))
    least = eddy.Runtime(query, output=output).nbytes  # type: ignore[arg-type]
    with pytest.raises(eddy.InputError, match=r"max_bytes=\d.*: without any row .* takes"):
        eddy.Runtime(query, output=output, max_bytes=least - 1)  # type: ignore[arg-type]
    most = int(least * factor)
    runtime = eddy.Runtime(query, output=output, max_bytes=most)  # type: ignore[arg-type]
    chance, refused, late = random.Random(1), 0, 0
    for n in range(60):
        rows = {
            name: [
                {"k": chance.randrange(20), "t": n * 3 - 60 * (chance.random() < 0.1), "p": "x" * chance.randrange(40)}
                for _ in range(chance.randrange(1, 30))
            ]
            for name in "RST"
        }
        before = runtime.position, runtime.late_counts, runtime.watermark
        try:
            runtime.push(rows)
        except eddy.CapacityError:
            refused += 1
            assert (runtime.position, runtime.late_counts, runtime.watermark) == before
            runtime.check()
        assert runtime.nbytes <= most
        late = max(late, runtime.metrics()["late_bytes"])
    assert refused == 0 if factor == 10 else refused or factor > 2
    assert late or factor < 2
    runtime.finish()
