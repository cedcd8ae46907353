"""A user changes the plan and the policy of the engines of a running join, and the results stay the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.routing.policies import Decision, View
from eddy.spark import Hub, Source, SparkJoinError, join
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import make_job
from eddy.spark.streaming.driver.engine_requests import EngineRequests
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from eddy.spark.streaming.state.manifest import GroupState
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, await_rows, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
GROUPS = 4
PLANS = "(R S) T", "(S T) R", "(R T) S"


def query() -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(60), time="t") for name in "RST"]
    return eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], lateness=60)


class RequestsRun:
    """A running join to whose streams a test adds files."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA, T=SCHEMA)
        self.chance = random.Random(5)

    def start(self, **how: Any) -> StreamingJoinQuery:
        joined = join(query(), self.inputs.frames(self.spark), checkpoint=self.root / "state", key_groups=GROUPS, **how)
        return joined.writeStream.toParquet(self.root / "out")

    def batch(self, running: StreamingJoinQuery, keys: int = 40, rows: int = 30) -> dict[int, dict[str, Any]]:
        """Add a file to each stream and wait for it; return the figures of each key group that ran."""
        number = len(self.inputs.tables["R"])
        draw, before = self.chance.randrange, running.batches().num_rows
        made = {
            name: [{"k": draw(keys), "t": 40 * number + draw(50), "n": draw(10**9)} for _ in range(rows)]
            for name in "RST"
        }
        self.inputs.add_together(made, running)
        await_rows(running, 3 * rows, before)
        figures = running.groups()
        newest = figures.filter(pc.is_in(figures["batch"], running.batches()["batch"][before:].combine_chunks()))
        return {row["group"]: row for row in newest.to_pylist()}

    def check(self) -> None:
        expected = text_rows(join(query(), self.inputs.batch_frames(self.spark)).toArrow())
        assert len(expected) > 100
        assert_same(results(self.root / "out"), expected, "with requests")


def plans(figures: dict[int, dict[str, Any]]) -> list[str]:
    return [row["plan"] for _, row in sorted(figures.items())]


@pytest.mark.campaign(1)
@pytest.mark.parametrize("strategy", ["eddy", "jisc", "moving-state"])
def test_plans_change_on_the_live_state_and_stay_after_a_restart(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    run = RequestsRun(spark, tmp_path)
    options = {"partitions": 2, "rebalance": "off", "policy": "fixed", "strategy": strategy}
    running = run.start(**options)
    assert plans(run.batch(running)) == [PLANS[0]] * GROUPS
    running.transition("( (S T) R )")
    figures = run.batch(running)
    assert plans(figures) == [PLANS[1]] * GROUPS
    assert {(row["source"], row["transitions"], row["reason"]) for row in figures.values()} == {
        ("live", 1, "asked for")
    }
    figures = run.batch(running)
    assert {(row["source"], row["transitions"], row["reason"]) for row in figures.values()} == {("live", 0, None)}
    running.transition(PLANS[0])
    running.transition(PLANS[2], groups=[1, 2])
    # Groups without rows in this batch keep the request.
    ran = run.batch(running, keys=2)
    assert 0 < len(ran) < GROUPS
    wanted = [PLANS[0], PLANS[2], PLANS[2], PLANS[0]]
    assert all(row["plan"] == wanted[group] for group, row in ran.items())
    figures = run.batch(running)
    assert plans(figures) == wanted
    assert {group for group, row in figures.items() if row["transitions"]} == set(range(GROUPS)) - ran.keys()
    running.transition(PLANS[1], groups=0)
    run.batch(running, keys=2)
    running.stop()
    running = run.start(**options)
    figures = run.batch(running)
    assert plans(figures) == [PLANS[1], *wanted[1:]]
    assert {row["source"] for row in figures.values()} == {"loaded"}
    running.stop()
    running = run.start(**{**options, "plan": PLANS[2]})
    run.batch(running, keys=2)
    assert plans(run.batch(running)) == [PLANS[2]] * GROUPS, "other options of a restart count, for idle groups as well"
    running.stop()
    run.check()


class Turning:
    """A policy that always wants another plan."""

    name = "turning"

    def decide(self, view: View) -> Decision:
        return Decision(PLANS[(PLANS.index(view.plan) + 1) % 3] if view.plan in PLANS else PLANS[0], reason="a turn")


@pytest.mark.campaign(1)
@pytest.mark.parametrize("memory", [None, 60_000])
def test_the_policy_of_all_engines_changes(spark: SparkSession, tmp_path: Path, memory: int | None) -> None:
    run = RequestsRun(spark, tmp_path)
    running = run.start(partitions=2, rebalance="off", policy="fixed", memory=memory)
    for _ in range(2):
        figures = run.batch(running, 4000, 8000)
    assert {row["reason"] for row in figures.values()} == {None}
    running.set_policy(Turning())
    assert "turning" in running.explain()
    figures = run.batch(running, 4000, 8000)
    # Those of the last group in each worker were not spilled.
    assert {row["source"] for row in figures.values()} == ({"live"} if memory is None else {"loaded"})
    turned = set()
    for _ in range(20):
        turned |= {group for group, row in figures.items() if row["reason"] == "turning: a turn"}
        if len(turned) == GROUPS:
            break
        figures = run.batch(running, 4000, 8000)
    assert len(turned) == GROUPS
    running.set_policy("fixed")
    figures = run.batch(running, 4000, 8000)
    now = plans(figures)
    figures = run.batch(running, 4000, 8000)
    assert plans(figures) == now
    assert {row["source"] for row in figures.values()} == ({"live"} if memory is None else {"mapped"})
    running.stop()
    run.check()


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = RequestsRun(spark, tmp_path)
    running = run.start(policy="fixed")
    run.batch(running)
    refused = {
        "X": (eddy.PlanError, "(R S) X"),
        "plan": (eddy.PlanError, None),
        "key group 4 does not exist": (SparkJoinError, PLANS[1], 4),
        "key group -1 does not exist": (SparkJoinError, PLANS[1], [0, -1]),
        "key group True": (SparkJoinError, PLANS[1], True),
        "key group 'all'": (SparkJoinError, PLANS[1], ["all"]),
    }
    for message, (kind, *arguments) in refused.items():
        with pytest.raises(kind, match=message):
            running.transition(*arguments)  # type: ignore[arg-type]
    unsent = Turning()
    unsent.view = (nothing for nothing in ())  # type: ignore[attr-defined]
    for policy, message in (
        ("best", "no policy 'best'"),
        (Turning, r"write Turning\(\)"),
        (unsent, "cannot be copied"),
    ):
        with pytest.raises(eddy.EddyError, match=message):
            running.set_policy(policy)  # type: ignore[arg-type]
    assert plans(run.batch(running)) == [PLANS[0]] * GROUPS
    running.stop()
    other = RequestsRun(spark, tmp_path / "other")
    running = other.start(strategy="symmetric-hash")
    with pytest.raises(eddy.PlanError, match="symmetric-hash"):
        running.transition(PLANS[1])
    running.stop()
    sources = [
        Source(eddy.Stream(name, SCHEMA, time="t"), other.inputs.frame(spark, name), "k") for name in ("R", "S", "T")
    ]
    hub = Hub(spark, sources, tmp_path / "hub", lateness=60)
    hub.start("all", eddy.Query(query().streams, query().on), tmp_path / "all")
    running = hub.run()
    for call in (lambda: running.transition(PLANS[1]), lambda: running.set_policy("fixed")):
        with pytest.raises(SparkJoinError, match="queries of a hub share engines"):
            call()
    running.stop()


@pytest.mark.parametrize("seed", range(20))
def test_a_request_takes_effect_once_in_each_group(seed: int) -> None:
    """Against a model: of the requests since the newest committed batch of a group, the last one counts."""
    chance, job = random.Random(seed), make_job(query(), options=EngineOptions(), partitions=GROUPS)
    requests = EngineRequests("a job", job)
    asked: list[tuple[str, set[int] | None]] = []
    seen: dict[int, int] = {}
    states: dict[int, GroupState] = {}

    def last(group: int, since: int) -> str | None:
        requested = [plan for plan, groups in asked[since:] if groups is None or group in groups]
        return requested[-1] if requested else None

    for batch in range(60):
        for _ in range(chance.randrange(3)):
            plan = chance.choice(PLANS)
            groups = None if chance.random() < 0.4 else set(chance.sample(range(GROUPS), chance.randrange(GROUPS)))
            requests.transition(plan, groups)
            asked.append((plan, groups))
        before = requests.states(states)
        assert {group: state.plan for group, state in before.items()} == {
            group: last(group, seen[group]) or state.plan for group, state in states.items()
        }
        fresh = [group for group in range(GROUPS) if group not in states]
        assert [requests.first_plan(group) for group in fresh] == [last(group, 0) for group in fresh]
        counted = len(asked)
        if chance.random() < 0.5:
            requests.transition(PLANS[0], None)
            asked.append((PLANS[0], None))
        if chance.random() < 0.3:
            continue  # The batch failed, and is planned again.
        states = before
        for group in range(GROUPS):
            if group in states or chance.random() < 0.1:
                # The policy of the engine may have changed the plan.
                state = states.get(group, GroupState(batch, "", (), requests.first_plan(group)))
                states[group] = replace(state, plan=chance.choice(PLANS) if chance.random() < 0.2 else state.plan)
                seen[group] = counted
        requests.committed(states)


def test_a_plan_is_of_one_join_of_several() -> None:
    r, s, t = query().streams
    branched = eddy.Query(
        [s], branches=[eddy.Branch([r], ["R.k = S.k"], "left"), eddy.Branch([t], ["S.k = T.k"], "semi")]
    )
    options = EngineOptions(plan="S R; S T")
    requests = EngineRequests("a job", make_job(branched, options=options, partitions=GROUPS))
    assert requests.first_plan(0) is None
    requests.transition("T S", None)
    requests.transition("R S", [1])
    states = requests.states({group: GroupState(0, "", (), "S R; S T") for group in (0, 1)})
    assert [state.plan for state in states.values()] == ["S R; T S", "R S; T S"]
    requests.committed(states)
    assert requests.states(states) == states
    # What was requested for all groups counts for those that come later, and so do the options for another join.
    requests.transition("R S", [3])
    states = requests.states({2: GroupState(0, "", (), None)})
    assert (states[2].plan, requests.first_plan(0), requests.first_plan(3)) == (None, "S R; T S", "R S; T S")
    requests.transition("R S", [2])
    assert requests.states(states)[2].plan == "R S; S T"


def test_a_semicolon_may_be_part_of_a_name() -> None:
    names = "a b", "c;d", "e"
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(60), time="t") for name in names]
    on = [(f'"{names[0]}".k', f'"{names[1]}".k'), (f'"{names[1]}".k', "e.k")]
    semicolon = eddy.Query(streams, [" = ".join(pair) for pair in on])
    requests = EngineRequests("a job", make_job(semicolon, options=EngineOptions(), partitions=GROUPS))
    requests.transition('("c;d" e) "a b"', None)
    plan = requests.first_plan(0)
    assert plan is not None
    assert EngineOptions().runtime(semicolon, plan).plan == plan
