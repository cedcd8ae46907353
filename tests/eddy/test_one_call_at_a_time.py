"""Two calls never work on one runtime at once: from two threads, or from a function that the runtime calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.pipeline.turn import Turn
from eddy.routing.policies import Decision, View

SCHEMA = pa.schema([("k", pa.int64())])


def query(where: Any = None, **stream: Any) -> eddy.Query:
    streams = [eddy.Stream("R", SCHEMA, window=eddy.Rows(10), **stream), eddy.Stream("S", SCHEMA, window=eddy.Rows(10))]
    return eddy.Query(streams, ["R.k = S.k"], where=where)


def rows(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": list(keys)}, schema=SCHEMA)


CALLS: dict[str, Callable[[eddy.Runtime], Any]] = {
    "push": lambda runtime: runtime.push({"S": rows(1)}),
    "load": lambda runtime: runtime.load({}),
    "transition": lambda runtime: runtime.transition("S R"),
    "snapshot": lambda runtime: runtime.snapshot(),
    "late": lambda runtime: runtime.late(),
    "metrics": lambda runtime: runtime.metrics(),
    "stats": lambda runtime: runtime.stats(),
    "explain": lambda runtime: runtime.explain(),
    "history": lambda runtime: runtime.history(),
    "check": lambda runtime: runtime.check(),
    "last_push": lambda runtime: runtime.last_push(),
    "max_bytes": lambda runtime: setattr(runtime, "max_bytes", 1 << 30),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_function_does_not_call_its_runtime_back(call: str) -> None:
    refused: list[str] = []

    def where(batch: pa.RecordBatch) -> pa.Array:
        if not refused:
            with pytest.raises(eddy.StateError) as error:
                CALLS[call](runtime)
            refused.append(f"at {runtime.position}, {error.value}")
        return pc.is_valid(batch["R.k"])

    runtime = eddy.Runtime(query(eddy.Predicate(where, columns=["R.k"])))
    assert runtime.push({"R": rows(1, 2)}).num_rows == 0
    refused.clear()
    assert runtime.push({"S": rows(1)}).num_rows == 1
    assert len(refused) == 1
    assert refused[0].startswith(f"at 2, {call}: this runtime is in the middle of another call")
    runtime.check()
    assert runtime.position == 3
    assert runtime.push({"S": rows(2, 2)}).num_rows == 2


def test_a_filter_that_pushes_loses_nothing_silently() -> None:
    def keep(batch: pa.RecordBatch) -> pa.Array:
        if nested:
            nested.pop()
            runtime.push({"S": rows(1)})
        return pc.is_valid(batch["k"])

    nested = [True]
    runtime = eddy.Runtime(query(filter=keep))
    with pytest.raises(eddy.InputError, match="push: this runtime is in the middle of another call") as error:
        runtime.push({"R": rows(1)})
    assert isinstance(error.value.__cause__, eddy.StateError)
    assert runtime.position == 0
    runtime.push({"R": rows(1)})
    assert runtime.push({"S": rows(1)}).num_rows == 1


def test_a_policy_does_not_call_its_runtime_back() -> None:
    class Meddling:
        name = "meddling"

        def decide(self, view: View) -> Decision | None:
            runtime.push({"S": rows(1)})
            return None

    runtime = eddy.Runtime(query(), policy=Meddling(), decide_every=1)
    runtime.push({"R": rows(1)})
    with pytest.raises(eddy.StateError, match="a policy"):
        runtime.push({"R": rows(1)})
    assert runtime.position == 1
    runtime.check()


def test_threads_take_turns_or_are_refused() -> None:
    runtime = eddy.Runtime(query(), count_only=True)
    taken, refused, matched, problems = [0, 0], [0, 0], [0, 0], []
    begin = threading.Barrier(2)

    def work(n: int) -> None:
        begin.wait()
        for _ in range(200):
            try:
                table = runtime.push({"RS"[n]: rows(*range(10))})
                taken[n] += 1
                matched[n] += table["count"][0].as_py()
            except eddy.StateError as error:
                refused[n] += "another thread" in str(error)
            except BaseException as error:
                problems.append(error)
                raise

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not problems
    runtime.check()
    assert runtime.position == 10 * sum(taken)
    assert runtime.pushes == sum(taken)
    assert taken[0] + refused[0] == taken[1] + refused[1] == 200
    # Each push matches the ten rows of the other stream, once there are any.
    assert sum(matched) >= 10 * (sum(taken) - max(taken)) - 10


def test_a_turn_whose_holder_runs_no_more_is_free() -> None:
    turn = Turn()

    def lost() -> None:
        turn.take(sys._getframe(), "push")

    lost()
    turn.take(sys._getframe(), "push")
    with pytest.raises(eddy.StateError, match="in the middle of another call"):
        lost()
    turn.give_back()
    lost()
