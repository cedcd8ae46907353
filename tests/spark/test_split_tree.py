"""The tree of splits: every result meets in one group, and rows find their group when written and when read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.partitioning.pieces import Splitter
from eddy.spark.partitioning.split_tree import MAX_DEPTH, MAX_SPLITS, GroupSplit, SplitTree, own_rows

SCHEMA = pa.schema([(name, pa.int64()) for name in "abcn"])


def job_of(streams: str, on: list[str], groups: int) -> Job:
    return make_job(eddy.Query([eddy.Stream(name, SCHEMA) for name in streams], on), partitions=groups)


JOBS = {
    "one class": job_of("RST", ["R.a = S.a", "S.a = T.a"], 3),
    "chain": job_of("RST", ["R.a = S.a", "S.b = T.b"], 4),
    "star": job_of("FAB", ["F.a = A.a", "F.b = B.b"], 6),
    "one cell": job_of("RS", ["R.a = S.a"], 1),
    "cycle": job_of("RST", ["R.a = S.a", "S.b = T.b", "T.c = R.c"], 8),
}


def tree_of(job: Job, splits: list[tuple[int, int]], deals: Sequence[tuple[int, int, int]] = ()) -> SplitTree:
    """Return a tree of about these splits, with some groups in fragments: (group, stream, number of fragments)."""
    tree = SplitTree(job.shares.partitions, len(job.shares.counts))
    for group, along in splits:
        along %= tree.classes
        if tree.depth(group % tree.groups, along) < MAX_DEPTH:
            tree = tree.split(group % tree.groups, along)
    for group, stream, parts in deals:
        if tree.deal_of(group % tree.groups) is None:
            tree = tree.fragment(group % tree.groups, stream % len(job.query.streams), parts)
    return tree


def rows_of(keys: list[tuple[int, ...]]) -> pa.RecordBatch:
    """Return rows with these values of a, b and c; n numbers them."""
    columns = [pa.array([key[k] for key in keys], pa.int64()) for k in range(3)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(range(len(keys)), pa.int64())], schema=SCHEMA)


def written(job: Job, tree: SplitTree, stream: int, rows: pa.RecordBatch) -> tuple[int, dict[int, Any]]:
    """Return with how many splits rows are written, and the rows of each group of that time."""
    splitter = Splitter(job, stream, tree)
    kept = job.query.streams[stream].schema
    pieces = [*splitter.add(rows.select(kept.names)), *splitter.finish()]
    return splitter.splits, {piece.cell + off: piece.tuples for piece in pieces for off in splitter.offsets}


def owners(job: Job, tree: SplitTree, earlier: SplitTree, stream: int, rows: pa.RecordBatch) -> list[set[int]]:
    """Return the groups of each row, numbered by `n`, if it is written with the splits of an earlier tree."""
    splits, groups = written(job, earlier, stream, rows)
    row_groups: list[set[int]] = [set() for _ in range(rows.num_rows)]
    for group, group_rows in groups.items():
        for leaf in tree.descendants(group, splits):
            assert tree.origin(leaf, splits) == group
            for n in own_rows(job, tree, leaf, stream, splits, group_rows).column("n").to_pylist():
                assert leaf not in row_groups[n]
                row_groups[n].add(leaf)
    return row_groups


SPLITS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2)), max_size=12)
DEALS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2), st.integers(2, 4)), max_size=4)
KEYS = st.lists(st.tuples(*[st.integers(-50, 50)] * 3), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(JOBS)), SPLITS, DEALS, st.data(), KEYS)
def test_each_result_meets_in_one_group_whenever_its_rows_were_written(
    name: str,
    splits: list[tuple[int, int]],
    deals: list[tuple[int, int, int]],
    data: st.DataObject,
    keys: list[tuple[int, ...]],
) -> None:
    job = JOBS[name]
    tree = tree_of(job, splits, deals)
    rows, streams = rows_of(keys), range(len(job.query.streams))
    places = []
    for stream in streams:
        earlier = SplitTree(tree.cells, tree.classes, tree.splits[: data.draw(st.integers(0, len(tree.splits)))])
        now = owners(job, tree, tree, stream, rows)
        assert owners(job, tree, earlier, stream, rows) == now, "rows of before a split are found"
        assert all(now)
        # Of the copies of a row, one is the first.
        assert all(sum(tree.is_first(job.shares, stream, group) for group in groups) == 1 for groups in now)
        places.append(now)
    for n, m in itertools.product(range(len(keys)), repeat=2):
        if keys[n] == keys[m]:
            # Rows with the same values of all classes are the components of a result.
            assert len(set.intersection(*(by_row[m if i else n] for i, by_row in enumerate(places)))) == 1


@given(SPLITS)
def test_lineage(splits: list[tuple[int, int]]) -> None:
    tree = tree_of(JOBS["chain"], splits)
    for made in range(len(tree.splits) + 1):
        then = range(tree.cells + made)
        families = [tree.descendants(group, made) for group in then]
        assert sorted(itertools.chain(*families)) == list(range(tree.groups))
        assert all(
            tree.origin(member, made) == group
            for group, family in zip(then, families, strict=True)
            for member in family
        )


def test_a_group_is_in_fragments_until_it_is_gathered_and_the_places_stay() -> None:
    job = JOBS["one class"]
    rows = rows_of([(1, 2, n) for n in range(3000)])
    (group,) = written(job, SplitTree(3, 1), 0, rows)[1]
    tree = SplitTree(3, 1).fragment(group, 0, 3)
    parts = [own_rows(job, tree, fragment, 0, 0, rows) for fragment in tree.fragments(group)]
    assert all(900 < part.num_rows < 1100 for part in parts)
    copies = [own_rows(job, tree, fragment, 1, 0, rows) for fragment in tree.fragments(group)]
    assert all(copied is rows for copied in copies)
    with pytest.raises(SparkJoinError, match=f"key group {group} cannot be split while it is in fragments"):
        tree.split(group, 0)
    with pytest.raises(SparkJoinError, match=f"key group {group} is in fragments; gather it first"):
        tree.fragment(group, 0, 2)
    gathered = tree.gather(group)
    assert gathered.descendants(group, 0) == [group]
    assert gathered.is_closed(3)
    for attempt in (lambda: gathered.split(3, 0), lambda: gathered.fragment(3, 0, 2)):
        with pytest.raises(SparkJoinError, match=f"key group 3 .*kept for a fragment of key group {group}"):
            attempt()
    with pytest.raises(SparkJoinError, match="key group 3 is not in fragments"):
        gathered.gather(3)
    # The rows of another split of the group are dealt to its old places.
    again = gathered.split(group, 0).fragment(group, 1, 2)
    assert again.fragments(group) == [group, 3]
    assert again.descendants(group, 0) == [group, 3, 5]


def test_a_split_divides_many_keys_about_evenly() -> None:
    job = JOBS["one cell"]
    tree = SplitTree(1, 1).split(0, 0).split(0, 0).split(1, 0)
    _, groups = written(job, tree, 0, rows_of([(k, 0, 0) for k in range(4000)]))
    counts = Counter({group: group_rows.num_rows for group, group_rows in groups.items()})
    assert counts.keys() == {0, 1, 2, 3}
    assert all(900 < count < 1100 for count in counts.values())


def test_a_grid_of_twice_the_share_is_a_grid_with_all_cells_split() -> None:
    rows = rows_of([(k, 0, 0) for k in range(500)])
    small, large = (job_of("RS", ["R.a = S.a"], cells) for cells in (3, 6))
    tree = SplitTree(3, 1).split(0, 0).split(1, 0).split(2, 0)
    _, split = written(small, tree, 0, rows)
    _, doubled = written(large, SplitTree(6, 1), 0, rows)
    for cell in range(3):
        assert split[cell].equals(doubled[2 * cell])
        assert split[3 + cell].equals(doubled[2 * cell + 1])


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ([(3, 0)], "key group 3 does not exist; .* from 0 to 2"),
        ([(0, 0), (4, 0)], "key group 4 does not exist; .* from 0 to 3"),
        ([(-1, 0)], "key group -1 does not exist"),
        ([(0, 2)], "key group 0 cannot be split along class 2: the query has 1 classes"),
        ([(0, 0)] * (MAX_DEPTH + 1), "key group 0 cannot be split again"),
        ([(0, 0)] + [(3, 0)] * MAX_DEPTH, "key group 3 cannot be split again"),
        ([(0, 0)] * (MAX_SPLITS + 1), f"at most {MAX_SPLITS}"),
    ],
)
def test_splits_that_cannot_be(splits: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(SparkJoinError, match=says):
        SplitTree(3, 1, tuple(GroupSplit(*split) for split in splits))
