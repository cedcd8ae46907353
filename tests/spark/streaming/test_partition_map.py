"""The map from key groups to partitions: even, and changed by the fewest moves."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.driver.partition_map import KeyGroupMove, PartitionMap


@st.composite
def maps(draw: st.DrawFn, most: int = 40) -> PartitionMap:
    groups = draw(st.integers(1, most))
    n = draw(st.integers(1, groups))
    return PartitionMap(tuple(draw(st.lists(st.integers(0, n - 1), min_size=groups, max_size=groups))), n)


def sizes(partition_map: PartitionMap) -> list[int]:
    return [partition_map.partitions.count(partition) for partition in range(partition_map.n)]


def test_even_gives_runs_of_neighbours() -> None:
    assert PartitionMap.even(7, 3) == PartitionMap((0, 0, 0, 1, 1, 2, 2), 3)


@given(maps())
def test_even_is_even(partition_map: PartitionMap) -> None:
    even = PartitionMap.even(partition_map.groups, partition_map.n)
    assert max(sizes(even)) - min(sizes(even)) <= 1
    assert (even.groups, even.n) == (partition_map.groups, partition_map.n)


@given(maps(), st.data())
def test_the_moves_between_two_maps_make_one_of_the_other(partition_map: PartitionMap, data: st.DataObject) -> None:
    partitions = st.lists(
        st.integers(0, partition_map.n - 1), min_size=partition_map.groups, max_size=partition_map.groups
    )
    other = PartitionMap(tuple(data.draw(partitions)), partition_map.n)
    moves = partition_map.moved(other)
    assert moves == sorted(moves)
    assert all(partition_map.partitions[move.group] == move.sender != move.receiver for move in moves)
    assert partition_map.with_moves({move.group: move.receiver for move in moves}) == other
    assert partition_map.moved(partition_map) == []


@given(maps(), st.data())
def test_another_number_of_partitions_is_even_by_the_fewest_moves(
    partition_map: PartitionMap, data: st.DataObject
) -> None:
    n = data.draw(
        st.integers(1, partition_map.groups).filter(lambda n: n != partition_map.n or partition_map.groups == 1)
    )
    after = partition_map.with_partitions(n)
    if n == partition_map.n:
        assert after is partition_map
        return
    least, more = divmod(partition_map.groups, n)
    assert after.n == n
    assert Counter(sizes(after)) == Counter({least: n - more} | ({least + 1: more} if more else {}))
    # A partition keeps its groups up to its new size; the others move.
    had = Counter(partition_map.partitions)
    kept = max(
        sum(min(had[partition], least + (partition in larger)) for partition in range(n))
        for larger in itertools.islice(itertools.combinations(range(n), more), 5000)
    )
    assert len(partition_map.moved(after)) <= partition_map.groups - kept


def test_more_and_fewer_partitions() -> None:
    two = PartitionMap.even(8, 2)
    four = two.with_partitions(4)
    assert two.moved(four) == [
        KeyGroupMove(2, 0, 2),
        KeyGroupMove(3, 0, 2),
        KeyGroupMove(6, 1, 3),
        KeyGroupMove(7, 1, 3),
    ]
    assert {move.sender for move in four.moved(four.with_partitions(3))} == {3}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: PartitionMap((0, 2), 2), "key group 1 cannot be in partition 2; .* from 0 to 1"),
        (lambda: PartitionMap((0, -1), 2), "key group 1 cannot be in partition -1"),
        (lambda: PartitionMap((0,), 0), "0 partitions"),
        (lambda: PartitionMap((), 1), "needs at least 1 key group"),
        (lambda: PartitionMap.even(4, 0), "0 partitions"),
        (lambda: PartitionMap.even(4, 5), "5 partitions for 4 key groups.* at most 4"),
        (lambda: PartitionMap.even(4, 2).with_partitions(5), "5 partitions for 4 key groups"),
        (lambda: PartitionMap.even(4, 2).with_partitions(0), "0 partitions"),
        (lambda: PartitionMap.even(4, 2).with_moves({4: 0}), "key group 4 does not exist; .* from 0 to 3"),
        (lambda: PartitionMap.even(4, 2).with_moves({3: 2}), "key group 3 cannot be in partition 2"),
        (
            lambda: PartitionMap.even(4, 2).moved(PartitionMap.even(5, 2)),
            "4 key groups cannot become a map of 5 by moves",
        ),
    ],
)
def test_what_cannot_be(call: Any, says: str) -> None:
    with pytest.raises(SparkJoinError, match=says):
        call()
