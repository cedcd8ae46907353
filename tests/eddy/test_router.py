"""Times of decisions, good and bad decisions and their effects.

All but one with `decide_every`, so that nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.routing import pace, router
from eddy.routing.policies import POLICIES, Decision, View
from eddy.routing.view import tables_of
from jisc.plan.routes import compile_routes
from jisc.strategies import STRATEGIES
from tests.eddy.decision_cases import CHAIN, LONG, A, B, Watch, batches, push, texts, turns
from tests.eddy.queries import make_query


@pytest.fixture
def query() -> eddy.Query:
    return make_query(CHAIN, eddy.Rows(40))


# --- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 25, 37, 200])
def test_decisions_are_as_far_apart_as_asked_whatever_the_pushes(query: eddy.Query, rows: int) -> None:
    policy = Watch()
    runtime = eddy.Runtime(query, policy=policy, decide_every=100, count_only=True)
    for seed in range(200 // rows):
        push(runtime, seed, rows)
    total = 4 * rows * (200 // rows)
    # A decision that is due at the end of a push is taken at the beginning of the next.
    assert policy.asked == list(range(100, total, 100))
    assert runtime._pipeline.join.router.pace.decisions == len(policy.asked)


def by_fanout(view: View, n: int) -> Decision:
    """Decide by the last digit of the mean fan-outs: any difference between two samples shows."""
    plans = ("(((M Q) P) S) T", "(((M S) T) Q) P", "((P Q) M) (S T)")
    fans = [view.fanout(i, near.stream, near.by) for i in range(5) for near in view.neighbours(i)]
    return Decision(plans[sum(map(hash, fans)) % 3], reason=str(fans))


@pytest.mark.parametrize("policy", [lambda: "lottery", lambda: "a-greedy", lambda: Watch(by_fanout)])
def test_what_is_decided_does_not_depend_on_how_arrivals_are_split(policy: Callable[[], Any]) -> None:
    query = make_query(LONG, eddy.Rows(25))
    whole, split = (eddy.Runtime(query, policy=policy(), decide_every=60, ids_only=True) for _ in range(2))
    rows, order = batches(query, 3, 100), np.arange(500) % 5
    table = whole.push(rows, order)
    parts, taken = [], [0] * 5
    for start in range(0, 500, 52):
        part_order = order[start : start + 52]
        count = np.bincount(part_order, minlength=5).tolist()
        names = list(rows)
        parts.append(
            split.push({name: rows[name].slice(taken[i], count[i]) for i, name in enumerate(names)}, part_order)
        )
        taken = [a + b for a, b in zip(taken, count, strict=True)]
    figures = ["position", "reason", "old", "new", "stored"]
    assert whole.history().select(figures) == split.history().select(figures)
    assert texts(table) == texts(pa.concat_tables(parts))
    assert whole.history().num_rows >= 1 or whole.policy == "a-greedy"


def test_engines_of_equal_queries_compile_the_routes_of_a_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_routes(*args)

    monkeypatch.setattr("eddy.routing.view.compile_routes", counted)
    tables_of.cache_clear()
    ever = [0]
    for size in (40, 40, 50):
        runtime = eddy.Runtime(make_query(LONG, eddy.Rows(size)), policy="cost", decide_every=50, count_only=True)
        push(runtime, 0, 100)
        assert runtime._pipeline.join.router.pace.decisions
        ever.append(len(compiled))
    assert 0 < ever[1] == ever[2] < ever[3]


def test_a_change_by_hand_begins_the_count_anew(query: eddy.Query) -> None:
    policy = Watch()
    runtime = eddy.Runtime(query, policy=policy, decide_every=100, count_only=True)
    runtime.transition(B, at=150)
    push(runtime, 1, 100)
    assert policy.asked == [100, 250, 350]
    assert [view.settled for view in policy.views] == [False, False, True]


def test_the_second_decision_comes_soon_and_later_ones_ever_later() -> None:
    """By time: a millisecond for each thousand arrivals, and one for each decision; nothing changes."""
    asked, looks, ours = [0], 0, pace.Pace(None, 4)
    for now in count(1):
        ours.note(1_000, 0.001)
        if ours.look_due:
            looks += 1
            sampled = ours.looked(deciding=True)
            if ours.decision_due:
                assert sampled
                ours.decisions += 1
                ours.decided(changed=False, drifting=False)
                ours.last = 0.001
                asked.append(now)
        if len(asked) == 6:
            break
    between = np.diff(asked)
    wanted = [pace.FIRST, pace.AT_FIRST, pace.WORTH, 2 * pace.WORTH, 4 * pace.WORTH]
    # A decision follows a sample, and those are some milliseconds apart.
    assert (between >= wanted).all()
    assert (between <= np.add(wanted, 2_000 * pace.SAMPLE)).all()
    # Most looks are far from a decision, and take no sample.
    assert ours.samples < 6 * (pace.NEAR + 1) + looks / pace.RARELY
    assert ours.samples < looks


@pytest.mark.parametrize("every", [None, 1_000])
def test_arrivals_drift_only_where_time_decides(every: int | None) -> None:
    """A decision may differ while arrivals are slow, so what is decided with `decide_every` would depend on time."""
    ours, drifting = pace.Pace(every, 4), False
    for turn in range(100):
        # From half of the turns on, an arrival takes a hundred times as long.
        ours.note(1_000, 0.001 if turn < 50 else 0.1)
        if ours.look_due:
            ours.looked(deciding=True)
            drifting |= ours.drifting
            if ours.decision_due:
                ours.decisions += 1
                ours.decided(changed=False, drifting=ours.drifting)
                ours.last = 0.001
    assert drifting == (every is None)


def test_a_short_rest_of_a_push_is_taken_with_what_comes_before() -> None:
    ours = pace.Pace(None, 4)
    most = pace.FIRST_STRETCH
    assert [ours.stretch(left, careful=False) for left in (most // 2, 3 * most // 2, 2 * most)] == [
        most // 2,
        3 * most // 2,
        most,
    ]


def test_without_decisions_most_looks_take_no_sample() -> None:
    ours, taken = pace.Pace(None, 4), 0
    for _ in range(10 * pace.RARELY):
        ours.note(1_000, pace.SAMPLE)
        taken += ours.looked(deciding=False)
    assert taken == ours.samples <= pace.FIRST + 10


@pytest.mark.parametrize("streams", [4, 24])
def test_a_decision_may_take_longer_where_there_are_more_streams(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(router, "thread_time", lambda: float(next(clock)))
    watch = Watch()
    query = make_query({f"S{i:02}": "a" for i in range(streams)}, eddy.Rows(3))
    runtime = eddy.Runtime(query, policy=watch, count_only=True)
    for seed in range(20):
        push(runtime, seed, 2_000 // streams)
        runtime._pipeline.join.router.note(1, 1.0)  # as if pushes took long, so that a look is due
    assert watch.asked
    # By this clock every decision takes seconds; the bound on the counted time sets their distance.
    timing = runtime._pipeline.join.router.pace
    slow = pace.SLOW if timing.decisions > pace.EAGER else 1
    assert timing.last == pytest.approx(slow * pace.DECIDING * max(1, streams / pace.STREAMS))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fixed_decides_nothing(query: eddy.Query, strategy: str) -> None:
    runtime = eddy.Runtime(query, policy="fixed", strategy=strategy, decide_every=50, count_only=True)
    for seed in range(3):
        push(runtime, seed, 60)
    assert runtime._pipeline.join.router.pace.decisions == 0
    assert runtime.history().num_rows == 0
    # Samples are taken nevertheless, for `stats` and `explain`. A push is not split for them.
    assert runtime._pipeline.join.router.pace.samples == 2
    assert runtime.policy == "fixed"


def test_nobody_is_asked_without_statistics_or_where_plans_stay(query: eddy.Query) -> None:
    for options in ({"statistics": False}, {"strategy": "symmetric-hash"}):
        policy = Watch(turns)
        runtime = eddy.Runtime(query, policy=policy, decide_every=50, count_only=True, **options)  # type: ignore[arg-type]
        push(runtime, 1, 60)
        assert policy.asked == []
        assert runtime.history().num_rows == 0


@pytest.mark.campaign(1)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", ["eddy", "jisc", "cacq", "eddy-stairs", "eddy-jisc"])
def test_results_are_the_same_under_every_policy(policy: str, strategy: str) -> None:
    query = make_query(LONG, eddy.Rows(30))
    # Enough arrivals for a measurement of their cost.
    runtime = eddy.Runtime(query, policy=policy, strategy=strategy, decide_every=260, count_only=True)
    plain = eddy.Runtime(query, strategy="mjoin", count_only=True)
    for seed in range(16):
        assert push(runtime, seed, 50) == push(plain, seed, 50)
        runtime.check()
    asked = runtime.history()["reason"].to_pylist()
    assert all(reason.startswith(f"{policy}: ") for reason in asked)
    if policy in ("lottery", "bandit"):
        assert asked


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_policy_is_changed_between_pushes(query: eddy.Query, strategy: str) -> None:
    runtime = eddy.Runtime(query, A, policy="fixed", strategy=strategy, decide_every=50, count_only=True)
    plain = eddy.Runtime(query, strategy="mjoin", count_only=True)
    changes = STRATEGIES[strategy].changes
    for seed, policy in enumerate([*POLICIES, Watch(turns), "fixed", None]):
        plan = runtime.plan
        runtime.set_policy(policy)
        assert runtime.policy == (getattr(policy, "name", policy) or ("cost" if strategy == "eddy" else "fixed"))
        assert runtime.plan == plan
        before = runtime.changes
        assert push(runtime, seed, 60) == push(plain, seed, 60)
        runtime.check()
        reasons = runtime.history()["reason"].to_pylist()[before:]
        assert all(reason.startswith(f"{runtime.policy}: ") for reason in reasons)
        if isinstance(policy, Watch):
            # It is asked as often as from the start.
            assert len(policy.asked) == (4 if changes else 0)
            assert bool(reasons) == changes
    assert eddy.Runtime.restore(runtime.snapshot(), query).policy == runtime.policy


def test_each_join_follows_a_policy_of_its_own_and_all_of_them_or_none() -> None:
    r, s, t, _ = make_query(CHAIN, eddy.Rows(40)).streams
    branches = [eddy.Branch([r], ["R.a = S.a"], "left"), eddy.Branch([t], ["S.b = T.b"], "anti")]
    runtime = eddy.Runtime(eddy.Query([s], branches=branches), policy="fixed", output="changelog")
    joins = list(runtime._pipeline.all_joins())
    runtime.set_policy(Watch())
    made = {id(join.router.policy) for join in joins}
    assert len(made) == len(joins) == 2
    assert {join.router.policy.name for join in joins} == {"watch"}
    uncopied = Watch()
    uncopied.views = (view for view in ())  # type: ignore[assignment]
    for wrong, message in (("best", "no policy 'best'"), (Watch, r"write Watch\(\)"), (uncopied, "cannot be copied")):
        with pytest.raises(eddy.InputError, match=message):
            runtime.set_policy(wrong)  # type: ignore[arg-type]
        assert {id(join.router.policy) for join in joins} == made


# --- policies of the user --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [name for name, kind in STRATEGIES.items() if kind.changes])
def test_an_object_is_a_policy(query: eddy.Query, strategy: str) -> None:
    runtime = eddy.Runtime(query, A, policy=Watch(turns), strategy=strategy, decide_every=100, count_only=True)
    plain = eddy.Runtime(query, A, policy="fixed", count_only=True)
    assert runtime.policy == "watch"
    for seed in range(4):
        assert push(runtime, seed, 50) == push(plain, seed, 50)
    table = runtime.history()
    assert table["position"].to_pylist() == list(range(100, 800, 100))
    assert table["reason"].to_pylist() == [f"watch: turn {n}" for n in range(1, 8)]
    assert table["strategy"].to_pylist() == [strategy] * 7
    assert table["old"].to_pylist() == [A, B] * 3 + [A]
    assert table["new"].to_pylist() == [B, A] * 3 + [B]
    assert runtime.plan == B


def test_a_decision_says_what_is_stored(query: eddy.Query) -> None:
    kept = [Decision(B, ["S T"], "store"), Decision("((T S) U) R", None, "turn"), Decision(B, (), "no more")]
    policy = Watch(lambda view, n: kept[n - 1] if n <= 3 else None)
    runtime = eddy.Runtime(query, A, policy=policy, decide_every=100, count_only=True)
    push(runtime, 1, 120)
    assert runtime.history()["stored"].to_pylist() == ["S T", "S T", ""]
    assert [len(view.stored) for view in policy.views] == [0, 1, 1, 0]


def test_what_a_policy_sees_is_so(query: eddy.Query) -> None:
    policy = Watch()
    runtime = eddy.Runtime(query, A, policy=policy, decide_every=100, count_only=True)
    push(runtime, 1, 80)
    for view in policy.views:
        assert view.plan == A
        assert view.rows.tolist() == [min(view.position // 4, 40)] * 4
        assert view.shares.sum() == pytest.approx(1)
        assert (view.probed >= 0).all()
        assert view.room == float("inf")
        assert np.isnan(view.measured)  # too few arrivals for a measurement
    probed = sum(view.probed for view in policy.views)
    assert probed[:, 0].sum() <= runtime.metrics()["probes"]


WRONG = {
    "an unknown stream": (Decision("((R S) T) X"), eddy.PlanError, "there is no stream 'X'"),
    "a stream left out": (Decision("(R S) T"), eddy.PlanError, "lacks U"),
    "a cross product": (Decision("((R T) S) U"), eddy.PlanError, "no predicate connects"),
    "an unknown state": (Decision(A, ["R T"]), eddy.PlanError, "no inner state 'R T'"),
    "a text of states": (Decision(A, "R S"), eddy.PlanError, "a list of states"),
    "a text": (B, eddy.InputError, "policy 'watch' decided"),
    "a number": (5, eddy.InputError, "returns a Decision or None"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("within", [False, True], ids=["at the start of a push", "within one"])
def test_a_wrong_decision_is_an_error_and_the_push_has_taken_nothing(
    query: eddy.Query, wrong: str, within: bool
) -> None:
    decision, error, message = WRONG[wrong]
    policy = Watch(lambda view, n: decision if n == 1 else None)
    runtime = eddy.Runtime(query, A, policy=policy, decide_every=100, ids_only=True)
    twin = eddy.Runtime(query, A, policy="fixed", ids_only=True)
    first = 20 if within else 25
    assert push(runtime, 1, first) == push(twin, 1, first)
    before = runtime.metrics()
    with pytest.raises(error, match=message):
        push(runtime, 2, 30)
    assert runtime.position == 4 * first
    assert runtime.metrics() == {**before, "bytes": runtime.metrics()["bytes"], "states": runtime.metrics()["states"]}
    assert (runtime.plan, runtime.history().num_rows) == (A, 0)
    runtime.check()
    # Next time the policy decides for the present plan.
    assert push(runtime, 2, 30) == push(twin, 2, 30)


def test_a_state_cannot_be_stored_where_the_strategy_has_a_rule(query: eddy.Query) -> None:
    policy = Watch(lambda view, n: Decision(B, ["S T"]))
    runtime = eddy.Runtime(query, A, policy=policy, strategy="jisc", decide_every=100)
    with pytest.raises(eddy.PlanError, match="strategy 'jisc' decides by its own rule"):
        push(runtime, 1, 30)
    assert runtime.position == 0


@pytest.mark.parametrize("strategy", ["eddy", "jisc", "parallel-track"])
def test_what_a_policy_raises_takes_the_push_back(query: eddy.Query, strategy: str) -> None:
    def act(view: View, n: int) -> Decision:
        if n == 3:
            raise ZeroDivisionError("a defect of the policy")
        return turns(view, n)

    policy = Watch(act)
    runtime = eddy.Runtime(query, A, policy=policy, strategy=strategy, decide_every=50, ids_only=True)
    twin = eddy.Runtime(query, A, policy="fixed", ids_only=True)
    assert texts(push(runtime, 1, 10)) == texts(push(twin, 1, 10))
    saved = runtime.snapshot()
    # Decides twice within this push and fails the third time: both changes are taken back.
    with pytest.raises(ZeroDivisionError, match="a defect of the policy"):
        push(runtime, 2, 60)
    assert len(policy.asked) == 3
    assert (runtime.position, runtime.plan, runtime.history().num_rows) == (40, A, 0)
    assert runtime.snapshot() == saved
    runtime.check()
    for seed in (2, 3):
        assert texts(push(runtime, seed, 60)) == texts(push(twin, seed, 60))
        runtime.check()
    assert runtime.history().num_rows > 4
    assert all((view.probed >= 0).all() for view in policy.views)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("best", "no policy 'best'; choose one of fixed, lottery"),
        (object(), "a name and decide"),
        (Watch, r"write Watch\(\)"),
    ],
)
def test_what_is_no_policy(query: eddy.Query, policy: Any, message: str) -> None:
    with pytest.raises(eddy.InputError, match=message):
        eddy.Runtime(query, policy=policy)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "100"])
def test_what_is_no_number_of_arrivals(query: eddy.Query, every: Any) -> None:
    with pytest.raises(eddy.InputError, match="decide_every is a number of arrivals"):
        eddy.Runtime(query, decide_every=every)


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_a_restored_runtime_decides_on(query: eddy.Query) -> None:
    runtime = eddy.Runtime(query, policy="lottery", decide_every=50, max_bytes=1 << 24, count_only=True)
    push(runtime, 1, 60)
    again = eddy.Runtime.restore(runtime.snapshot(), query)
    assert (again.policy, again._pipeline.join.router.pace.every, again._pipeline.join.bound.max_bytes) == (
        "lottery",
        50,
        1 << 24,
    )
    assert again.history().num_rows == 0
    for seed in range(4):
        assert push(again, seed, 50) == push(runtime, seed, 50)
    assert again._pipeline.join.router.pace.decisions > 0


def test_a_policy_of_ones_own_is_given_again_at_a_restore(query: eddy.Query) -> None:
    runtime = eddy.Runtime(query, policy=Watch(), decide_every=50, count_only=True)
    push(runtime, 1, 60)
    saved = runtime.snapshot()
    with pytest.raises(eddy.SnapshotError, match="policy 'watch', which is none of"):
        eddy.Runtime.restore(saved, query)
    assert eddy.Runtime.restore(saved, query, policy=Watch()).policy == "watch"
    assert eddy.Runtime.restore(saved, query, policy="fixed").policy == "fixed"


def test_the_clock_is_read_once_in_a_while_and_what_is_not_measured_counts_as_what_was() -> None:
    ours = pace.Pace(None, 4)
    assert ours.unclocked <= 0
    ours.note(100, 100 * 1e-6)
    assert ours.unclocked == pytest.approx(pace.CLOCKED / 1e-6, abs=1)
    read = 0
    for _ in range(1_000):
        read += ours.unclocked <= 0
        ours.note(10, 10 * 2e-6 if ours.unclocked <= 0 else None)
    # The first 200 arrivals count as long as those before them.
    assert ours.undecided == pytest.approx(0.0001 + 0.0002 + 9_800 * 2e-6, rel=0.01)
    assert read == pytest.approx(9_800 * 2e-6 / (pace.CLOCKED + 10 * 2e-6), rel=0.05)
    ours.note(1, 0.5)
    assert ours.unclocked <= 0
