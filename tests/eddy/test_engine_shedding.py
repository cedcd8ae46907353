"""An engine sheds load: it runs cheaper versions of its queries while pushes are late, and the full ones otherwise."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import agg
from eddy.queries import engine as engine_module
from eddy.queries.changes import CHANGES, How

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])


def streams(window: int | None = 8) -> list[eddy.Stream]:
    kept = None if window is None else eddy.Range(window)
    return [eddy.Stream(name, SCHEMA, window=kept, time="t") for name in "RS"]


def joined(size: int, **more: Any) -> eddy.Query:
    return eddy.Query(streams(size), ["R.k = S.k"], select=["R.n", "S.n"], **more)


class TimedPushes:
    """TimedPushes to an engine of which the test says how long each takes, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: eddy.Engine) -> None:
        self.engine, self.now, self.seconds, self.reads, self.tick = engine, 0.0, 0.0, 0, 0
        monkeypatch.setattr(engine_module, "perf_counter", self.read)

    def read(self) -> float:
        self.reads += 1
        self.now += self.seconds * (self.reads % 2 == 0)
        return self.now

    def push(self, seconds: float, n_rows: int = 4) -> dict[str, pa.Table]:
        self.seconds, self.reads, self.tick = seconds, 0, self.tick + 1
        return self.engine.push(rows_of(self.tick, n_rows))


def rows_of(tick: int, n_rows: int) -> dict[str, list[dict[str, int]]]:
    rows = [{"k": i % 3, "t": tick, "n": tick * 1000 + i} for i in range(n_rows)]
    return {"R": rows, "S": rows[::2]}


def steps(engine: eddy.Engine) -> dict[str, int | None]:
    now: dict[str, int | None] = engine.metrics()["shedding"]["steps"]
    return now


def events(engine: eddy.Engine) -> list[tuple[str, str]]:
    return [(row["query"], row["event"]) for row in engine.history().to_pylist() if "start" not in row["event"]]


def started(monkeypatch: pytest.MonkeyPatch, **queries: eddy.Query) -> tuple[eddy.Engine, TimedPushes]:
    engine = eddy.Engine(streams())
    for name, query in queries.items():
        engine.start(name, query)
    return engine, TimedPushes(monkeypatch, engine)


def test_late_pushes_step_down_and_early_ones_up(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(timedelta(seconds=1), {"q": [full, narrow, None]}, patience=2, calm=3)
    assert engine.metrics()["shedding"] == {"deadline": 1.0, "seconds": 0.0, "step_seconds": 0.0, "steps": {"q": 0}}
    seconds = [0.9, 1.1, 0.9, 1.1, 1.1]  # two late pushes one after the other
    for took in seconds:
        pushes.push(took)
    assert steps(engine) == {"q": 1}
    assert engine["q"].query is narrow
    for took in (9, 1.1, 1.1):  # the first push after a step counts for nothing
        pushes.push(took)
    assert steps(engine) == {"q": 2}
    assert engine["q"].state == "paused"
    for took in (0.6, 0.6, 0.6, 0.4, 0.4, 0.4):  # the pause has halved the time
        pushes.push(took)
    assert steps(engine) == {"q": 1}
    assert engine["q"].state == "running"
    for _ in range(4):
        pushes.push(0.1)
    assert steps(engine) == {"q": 0}
    assert engine["q"].query is full
    assert events(engine) == [
        ("q", "step down, handover change"),
        ("q", "step down, pause"),
        ("q", "step up, resume"),
        ("q", "step up, handover change"),
    ]
    engine.shed_load(None)
    for _ in range(5):
        pushes.push(9)
    assert engine.metrics()["shedding"] is None
    assert engine["q"].query is full


def test_the_first_query_gives_way_first_and_is_restored_last(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [joined(size) for size in (8, 4, 2)]
    engine, pushes = started(monkeypatch, a=versions[0], b=versions[0])
    engine.shed_load(1, {"b": versions, "a": versions[:2]}, patience=1, calm=1)
    seen = []
    for took in [9] * 8 + [0.01] * 7:
        pushes.push(took)
        seen.append(tuple(steps(engine).values()))
    assert list(dict.fromkeys(seen[:8])) == [(1, 0), (2, 0), (2, 1)]
    assert list(dict.fromkeys(seen[8:])) == [(2, 0), (1, 0), (0, 0)]


COSTS = st.lists(st.sampled_from((0.2, 0.2, 0.7, 1.5, 1.5)), min_size=1, max_size=60)


@given(costs=COSTS, how=st.sampled_from(list(CHANGES)))
def test_steps_give_the_results_of_the_same_changes_by_hand(costs: list[float], how: How) -> None:
    ladder = [joined(8), joined(4, where=pc.field("R.n") > 3), joined(2)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        engine, pushes = started(monkeypatch, q=ladder[0])
        engine.shed_load(1, {"q": [*ladder, None]}, how=how, patience=1, calm=2)
        results = [pushes.push(took, 4 * (took != 0.7)) for took in costs]
    twin = eddy.Engine(streams())
    running = twin.start("q", ladder[0])
    step, elements = (
        0,
        {row["position"]: row["event"] for row in engine.history().to_pylist() if "step" in row["event"]},
    )
    for tick, given_out in enumerate(results):
        event = elements.pop(twin.position, "")
        step += ("step down" in event) - ("step up" in event)
        if "pause" in event:
            running.pause()
        elif "resume" in event:
            running.resume()
        elif event:
            running.change(ladder[step], how)
        assert twin.push(rows_of(tick + 1, 4 * (costs[tick] != 0.7))) == given_out
    assert set(elements) <= {twin.position}


def test_a_change_given_ahead_does_not_hold_the_steps_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, p=full, q=full)
    engine.shed_load(1, {name: [full, narrow] for name in "pq"}, patience=1)
    engine["p"].change(narrow, at=1_000_000)
    pushes.push(3)
    assert steps(engine) == {"p": None, "q": 1}


@pytest.mark.parametrize(("gain", "most"), [(4.0, 13), (1.05, 13)])
def test_a_load_between_two_versions_does_not_swing(monkeypatch: pytest.MonkeyPatch, gain: float, most: int) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, narrow]}, calm=5)
    for _ in range(2000):
        pushes.push(1.2 / (1 if steps(engine) == {"q": 0} else gain))
    assert 1 <= len(events(engine)) <= 2 * most
    for _ in range(1000):
        pushes.push(0.1 / (1 if steps(engine) == {"q": 0} else gain))
    assert steps(engine) == {"q": 0}


def test_pushes_without_rows_count_only_if_they_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, narrow]}, calm=5)
    for _ in range(3):
        pushes.push(5)
        pushes.push(0.01, 0)
    assert steps(engine) == {"q": 1}
    for _ in range(50):
        pushes.push(0.01, 0)
    assert events(engine) == [("q", "step down, handover change")]
    engine.shed_load(1, {"q": [full, narrow, None]})
    for _ in range(3):
        pushes.push(5, 0)
    assert steps(engine) == {"q": 2}


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_load_that_the_full_version_can_take_brings_it_back(monkeypatch: Any, seed: int) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, narrow]})
    chance = random.Random(seed)
    for n in range(3000):
        cost = 1.1 if n < 1000 else 0.5 * chance.lognormvariate(0, 0.4)
        pushes.push(cost / (1 if steps(engine) == {"q": 0} else 1.5), 1)
    assert steps(engine) == {"q": 0}
    assert len(events(engine)) < 60


def test_a_version_that_is_not_cheaper_is_left_again(monkeypatch: pytest.MonkeyPatch) -> None:
    full, worse = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, worse]})
    for load in [1.2] * 8 + [0.75] * 30:
        pushes.push(load if steps(engine) == {"q": 0} else load / 0.7)  # late there, and in time at the full version
    assert steps(engine) == {"q": 0}
    assert len(events(engine)) == 2


def test_a_change_under_way_holds_the_next_step_but_not_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither version has a result, so a graceful change does not end."""
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, p=full, q=full)
    engine.shed_load(1, {name: [full, narrow, None] for name in "pq"}, how="graceful", patience=1)
    seen = []
    for _ in range(20):
        pushes.seconds, pushes.reads = 9, 0
        engine.push({"R": [{"k": 0, "t": 50, "n": 0}]})
        seen.append(tuple(steps(engine).values()))
    assert list(dict.fromkeys(seen)) == [(1, 0), (1, 1), (2, 1), (2, 2)]
    assert seen.count((1, 1)) > 2


def test_a_late_push_counts_although_a_function_for_late_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, table: pa.Table) -> None:
        raise ValueError("no room")

    engine = eddy.Engine(streams(), late=fail)
    full, narrow = joined(8), joined(2)
    engine.start("q", full)
    pushes = TimedPushes(monkeypatch, engine)
    engine.shed_load(1, {"q": [full, narrow]}, patience=1)
    engine.push(rows_of(40, 4))
    with pytest.raises(eddy.LateRowsError):
        pushes.push(3)
    assert steps(engine) == {"q": 1}


def test_a_gain_that_no_longer_holds_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, narrow]}, calm=5)
    for took in [50.0] * 3 + [0.05] * 4:  # a thousandth of the cost: by the figures, the full version takes 37 s
        pushes.push(took)
    for _ in range(300):
        pushes.push(0.05)
    assert steps(engine) == {"q": 0}


def test_no_cheaper_version_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, narrow]}, patience=1)
    with caplog.at_level(logging.WARNING, "eddy"):
        for _ in range(9):
            pushes.push(3)
    assert [record.getMessage() for record in caplog.records] == [
        "pushes take longer than 1 s, the last one 3 s, and no query has a cheaper version to step to"
    ]


def test_a_refused_step_is_logged_once_and_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A version with a join of its own finds no room until another query has stopped."""
    full, (r, s, _) = joined(8), (*streams(2), None)
    lone = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "left")], select=["R.n", "S.n"])
    engine = eddy.Engine(streams())
    engine.start("q", full)
    engine.start("large", lone)
    engine.push(rows_of(0, 4))
    again = eddy.Engine.restore(
        engine.snapshot(), streams(), {"q": full, "large": lone}, max_bytes=engine.nbytes + 20_000
    )
    pushes = TimedPushes(monkeypatch, again)
    again.shed_load(1, {"q": [full, lone]}, how="immediate", patience=1)
    with caplog.at_level(logging.WARNING, "eddy"):
        for _ in range(5):
            pushes.push(3)
    (record,) = caplog.records
    assert "query 'q': a step down was refused: the query would take the engine" in record.getMessage()
    assert again["q"].query is full
    again["large"].stop()
    for _ in range(2):
        pushes.push(3)
    assert steps(again) == {"q": 1}


def test_a_pause_of_the_users_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    full = joined(8)
    engine, pushes = started(monkeypatch, q=full)
    engine.shed_load(1, {"q": [full, None]}, calm=2)
    engine["q"].pause()
    for _ in range(9):
        pushes.push(0.01)
    assert engine["q"].state == "paused"
    engine["q"].resume()
    for _ in range(3):
        pushes.push(9)
    assert (steps(engine), engine["q"].state) == ({"q": 1}, "paused")
    for _ in range(99):
        pushes.push(0.001)
    assert (steps(engine), engine["q"].state) == ({"q": 0}, "running")


def test_an_element_given_ahead_does_not_hold_a_step_up_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, p=full, q=full)
    engine.shed_load(1, {name: [full, narrow] for name in "pq"}, patience=1, calm=2)
    for _ in range(4):
        pushes.push(9)
    assert steps(engine) == {"p": 1, "q": 1}
    engine["q"].stop(at=1_000_000)
    for _ in range(99):
        pushes.push(0.01)
    assert steps(engine) == {"p": 0, "q": None}


def test_a_step_is_an_object_or_equal_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are compared by name, so two of one name are no two steps."""

    def filtered(least: int) -> eddy.Query:
        r, s = streams(8)
        return eddy.Query([replace(r, filter=lambda rows: pc.greater(rows["n"], least)), s], ["R.k = S.k"])

    full, narrow = filtered(0), filtered(5)
    engine, _ = started(monkeypatch, q=full)
    with pytest.raises(eddy.InputError, match="two of its steps are equal"):
        engine.shed_load(1, {"q": [full, narrow]})
    engine.shed_load(np.float32(0.5), {"q": (version for version in (full, joined(2)))})  # type: ignore[arg-type, dict-item]
    engine["q"].change(narrow)
    assert steps(engine) == {"q": None}


def test_other_versions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    full, narrow = joined(8), joined(2)
    engine, pushes = started(monkeypatch, q=full, paused=full, stopped=full)
    engine.shed_load(1, {name: [full, narrow, None] for name in engine.queries}, patience=1)
    mine = joined(5)
    engine["q"].change(mine)
    engine["paused"].pause()
    engine["stopped"].stop()
    for _ in range(9):
        pushes.push(3)
    assert steps(engine) == {"q": None, "paused": None, "stopped": None}
    assert engine["q"].query is mine
    assert engine["paused"].query is full
    engine["q"].change(narrow)
    for _ in range(3):
        pushes.push(3)
    assert steps(engine)["q"] == 2
    engine.finish()
    assert set(steps(engine).values()) == {None}


@pytest.mark.parametrize("at", [1, 2])
def test_a_restored_engine_continues_at_its_step(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    engine, pushes = started(monkeypatch, q=joined(8))
    full, narrow = engine["q"].query, joined(2)
    engine.shed_load(1, {"q": [full, narrow, None]}, patience=1, calm=1)
    for _ in range(2 * at):
        pushes.push(3)
    assert steps(engine) == {"q": at}
    again = eddy.Engine.restore(engine.snapshot(), streams(), {"q": joined(2)})
    again.shed_load(1, {"q": [joined(8), joined(2), None]}, patience=1, calm=1)
    assert steps(again) == {"q": at}
    assert again.push(rows_of(99, 4)) == engine.push(rows_of(99, 4))


COUNTED = eddy.Query(
    [eddy.Stream(name, SCHEMA, window=eddy.Rows(5), filter=pc.field("n") > 1) for name in "RS"], ["R.k = S.k"]
)
GROUPED = eddy.Query(streams(8), ["R.k = S.k"], group_by={"k": "R.k"}, aggregates={"n": agg.count()})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.shed_load(0, {"q": [FULL, NARROW]}), "deadline is a timedelta or seconds, more than 0, not 0"),
        (lambda e: e.shed_load(True, {"q": [FULL, NARROW]}), "not True"),
        (lambda e: e.shed_load("1 s", {"q": [FULL, NARROW]}), "not '1 s'"),
        (lambda e: e.shed_load(timedelta(-1), {"q": [FULL, NARROW]}), "deadline is"),
        (lambda e: e.shed_load(1, {"q": [FULL, NARROW]}, patience=0), "patience is a number of pushes"),
        (lambda e: e.shed_load(1, {"q": [FULL, NARROW]}, calm=1.5), "calm is a number of pushes, 1 or more, not 1.5"),
        (lambda e: e.shed_load(1, {"q": [FULL, NARROW]}, how="soon"), "how is one of 'immediate'"),
        (lambda e: e.shed_load(1), "steps has the versions of each query by its name"),
        (lambda e: e.shed_load(1, [FULL, NARROW]), "steps has the versions of each query"),
        (lambda e: e.shed_load(1, {"q": FULL}), "its steps are a list"),
        (lambda e: e.shed_load(None, {"q": [FULL, NARROW]}), "without a deadline there are no steps"),
        (lambda e: e.shed_load(1, {"q": [FULL, FULL, NARROW]}), "two of its steps are equal"),
        (lambda e: e.shed_load(1, {"q": [FULL, RENAMED]}), "do not fit into one table"),
        (lambda e: e.shed_load(1, {"q": [FULL, ENDLESS]}, how="drain-stream"), "would never end"),
        (lambda e: (e["q"].stop(), e.shed_load(1, {"q": [FULL, NARROW]})), "query 'q' is stopped"),
        (lambda e: e.shed_load(1, {"p": [FULL, NARROW]}), "there is no query 'p'; there are q"),
        (lambda e: e.shed_load(1, {"q": [FULL]}), "needs two steps at least"),
        (lambda e: e.shed_load(1, {"q": [FULL, None, NARROW]}), "None, a pause, can only be the last step"),
        (lambda e: e.shed_load(1, {"q": [None, None]}), "None, a pause, can only be the last step"),
        (lambda e: e.shed_load(1, {"q": [FULL, "narrow"]}), "a step is a Query or None, not str"),
        (lambda e: e.shed_load(1, {"q": [NARROW, joined(1)]}), "runs none of its steps"),
        (lambda e: e.shed_load(1, {"q": [joined(9), FULL]}), "does not keep those of stream 'R'"),
        (lambda e: e.shed_load(1, {"q": [FULL, GROUPED]}), "'handover' has no meaning for a query with groups"),
        (lambda e: e.shed_load(1, {"q": [FULL, COUNTED, None]}, how="immediate"), "has a Rows window and a filter"),
        (lambda e: e.shed_load(1, {"q": [FULL, OTHER]}, how="immediate"), "other"),
    ],
)
def test_steps_that_cannot_be_taken_are_refused(call: Callable[[eddy.Engine], None], message: str) -> None:
    engine = eddy.Engine(streams())
    engine.start("q", FULL)
    with pytest.raises(eddy.EddyError, match=message):
        call(engine)
    assert engine.metrics()["shedding"] is None


FULL, NARROW = joined(8), joined(2)
RENAMED = eddy.Query(streams(2), ["R.k = S.k"], select={"R.n": "CAST(R.n AS VARCHAR)"})
ENDLESS = eddy.Query([replace(stream, window=eddy.Unbounded()) for stream in streams()], ["R.k = S.k"])
OTHER = eddy.Query([eddy.Stream("other", SCHEMA)], group_by={"k": "other.k"}, aggregates={"n": agg.count()})
