"""Key groups with a hot key are divided into fragments and gathered while the join runs; the results stay the same."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.fragments import Dealt, why_undealt
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.join_tasks import regrouped_states
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import GroupState
from tests.spark.streaming.test_splits import QUERIES, SCHEMA, SplitsRun
from tests.spark.test_split_tree import JOBS, KEYS, owners, rows_of, tree_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.campaign(0)
@pytest.mark.parametrize(("kind", "transport"), [("one key", "packed"), ("chain", "rows"), ("branch", "packed")])
def test_fragments_on_request(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, transport: str
) -> None:
    monkeypatch.setattr(compaction, "MERGED", 3)
    run = SplitsRun(spark, tmp_path, kind)
    run.keys = [7] * 8 + list(range(40))
    running = run.start(partitions=2, key_groups=2, transport=transport, keep=2)
    for _ in range(2):
        run.batch(running)
    running.fragment(0, "R")
    run.batch(running)
    running.fragment(1, "S", to=[0, 1])
    running.move(2, 1)
    run.batch(running)
    assert running.partition_map.groups == 5
    running.gather(0)
    running.forget_engines()  # they load what compaction has written
    run.batch(running)
    running.split(0)
    running.fragment(0, "S")
    run.batch(running)
    text, changes = running.explain(), running.history().to_pylist()
    running.stop()
    running = run.start(partitions=2, transport=transport, keep=2)
    for _ in range(2):
        run.batch(running)
    running.gather(1)
    for _ in range(2):
        run.batch(running)
    assert running.compaction_problem is None
    manifest = Checkpoint(tmp_path / "state").newest()
    run.end_of_time(running)
    running.stop()
    run.check()
    assert manifest is not None
    assert manifest.dealt == (Dealt(0, 1, 2),)
    assert "key group 0 is in fragments 0, 2: rows of S are dealt to them" in text
    assert [(change["kind"], change["group"], change["child"]) for change in changes if change["kind"] != "move"] == [
        ("fragment", 0, 2),
        ("fragment", 1, 3),
        ("fragment", 1, 4),
        ("gather", 0, 2),
        ("split", 0, 5),
        ("fragment", 0, 2),
    ]


GROUPS, STREAMS = st.integers(0, 1), st.integers(0, 1)
NUMBERED = [(n, n, n) for n in range(9)]
CHANGES = st.lists(st.tuples(st.sampled_from(("split", "fragment", "gather")), GROUPS, STREAMS), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(JOBS)), st.lists(st.tuples(GROUPS, STREAMS, st.just(2)), max_size=2), CHANGES, KEYS)
@example("one cell", [(0, 0, 2)], [("gather", 0, 0), ("split", 0, 0), ("fragment", 0, 0)], NUMBERED)
def test_a_state_stays_with_its_token_only_if_its_rows_stay(
    name: str, deals: list[tuple[int, int, int]], changes: list[tuple[str, int, int]], keys: list[tuple[int, ...]]
) -> None:
    """Any changes take effect with one batch; an engine whose token stays is not loaded from the log."""
    job = JOBS[name]
    before = tree = tree_of(job, [], deals)
    for kind, group, stream in changes:
        with contextlib.suppress(SparkJoinError):  # a group in fragments is not split, …
            if kind == "split":
                tree = tree.split(group, stream % tree.classes)
            else:
                tree = tree.gather(group) if kind == "gather" else tree.fragment(group, stream, 2)
    states = {group: GroupState(0, f"{group}", (), None, group) for group in open_groups(before)}
    regrouped = regrouped_states(states, before, tree)
    assert sorted(regrouped) == open_groups(tree)
    assert len({state.token for state in regrouped.values()}) == len(regrouped)
    kept = {group for group, state in regrouped.items() if states.get(group) == state}
    for stream in range(len(job.query.streams)):
        had, has = (owners(job, split_tree, before, stream, rows_of(keys)) for split_tree in (before, tree))
        assert [groups & kept for groups in had] == [groups & kept for groups in has]


def open_groups(tree: SplitTree) -> list[int]:
    return [group for group in range(tree.groups) if not tree.is_closed(group)]


def test_what_is_dealt_has_one_row_in_each_result() -> None:
    r, s, t = (eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in "RST")
    assert [why_undealt(QUERIES["chain"], stream) for stream in range(3)] == [None] * 3
    for how in ("left", "semi", "anti"):
        query = eddy.Query([r, s], ["R.k = S.k"], branches=[eddy.Branch([t], ["R.k = T.k"], how)])
        assert [why_undealt(query, stream) for stream in range(2)] == [None, None]
        assert "stream T is in a branch" in (why_undealt(query, 2) or "")
    full = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "full")])
    assert all("full outer join" in (why_undealt(full, stream) or "") for stream in range(2))
