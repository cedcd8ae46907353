"""The grid: exactly one cell sees each result, the choice is the cheapest, the description is right."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eddy.placement.shares import Shares, _factorizations, choose


def query(*classes: dict[str, str]) -> Any:
    """Return a stand-in with the attributes that `choose` reads: streams with names, classes with columns."""
    streams = sorted({name for columns in classes for name in columns})
    made = tuple(
        SimpleNamespace(columns={name: ((column,),) for name, column in columns.items()}) for columns in classes
    )
    return SimpleNamespace(
        streams=tuple(SimpleNamespace(name=name) for name in streams), classes=made, partition_classes=made
    )


STAR = query({"F": "a", "A": "a"}, {"F": "b", "B": "b"}, {"F": "c", "C": "c"})
CHAIN = query({"R": "a", "S": "a"}, {"S": "b", "T": "b"}, {"T": "c", "U": "c"})
ONE_KEY = query({"R": "a", "S": "a", "T": "a", "U": "k"})


def cells(shares: Shares, stream: int, values: dict[int, int]) -> set[int]:
    """Return the partitions of a tuple with these class values; the value stands for its hash."""
    base = sum(values[c] % shares.counts[c] * shares.strides[c] for c in shares.has[stream])
    return {base + int(offset) for offset in shares.offsets(stream)}


@st.composite
def grids(draw: st.DrawFn) -> tuple[Any, int]:
    n = draw(st.integers(2, 6))
    names = [f"s{i}" for i in range(n)]
    members = draw(st.lists(st.sets(st.sampled_from(names), min_size=2), min_size=1, max_size=4))
    for i, name in enumerate(names):  # every stream has a class
        members[i % len(members)].add(name)
    return query(*(dict.fromkeys(some, "k") for some in members)), draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 30]))


@given(grids(), st.data())
def test_a_result_meets_in_exactly_one_cell(grid: tuple[Any, int], data: st.DataObject) -> None:
    q, partitions = grid
    shares = choose(q, partitions)
    assert shares.partitions == partitions
    values = {c: data.draw(st.integers(0, 50)) for c in range(len(q.classes))}
    met = set(range(partitions))
    for stream in range(len(q.streams)):
        stream_cells = cells(shares, stream, values)
        assert len(stream_cells) == shares.copies(stream)
        met &= stream_cells
    assert len(met) == 1


def sent(shares: Shares) -> float:
    return sum(w * shares.copies(i) for i, w in enumerate(shares.weights))


@given(grids(), st.lists(st.integers(1, 100), min_size=6, max_size=6))
def test_no_grid_of_as_many_cells_copies_less(grid: tuple[Any, int], rows: list[int]) -> None:
    q, partitions = grid
    weights = {stream.name: rows[i] for i, stream in enumerate(q.streams)}
    best = choose(q, partitions, weights)
    for counts in _factorizations(partitions, len(q.classes)):
        other = Shares(best.streams, best.classes, counts, best.has, best.weights)
        assert sent(best) <= sent(other) * (1 + 1e-12)


def test_one_class_is_partitioned_by_key() -> None:
    shares = choose(ONE_KEY, 6)
    assert shares.volume() == 1.0
    assert shares.describe() == "6 partitions by key: R.a = S.a = T.a = U.k"


def test_small_streams_are_sent_to_all() -> None:
    shares = choose(STAR, 8, {"F": 1000, "A": 900, "B": 1, "C": 1})
    assert shares.counts == (8, 1, 1)
    text = shares.describe()
    assert "by key: A.a = F.a" in text or "by key: F.a = A.a" in text
    assert "B: 8 copies of each tuple, routed by nothing (it is sent to all)" in text


def test_a_chain_becomes_a_hypercube() -> None:
    shares = choose(CHAIN, 4)
    assert shares.counts == (2, 1, 2)
    text = shares.describe()
    assert text.startswith("4 partitions, a hypercube: 2 shares of [R.a = S.a] x 2 shares of [T.c = U.c]")
    assert "2.00 copies of a tuple on average" in text


def test_one_partition() -> None:
    assert choose(CHAIN, 1).describe() == "one partition: all streams meet in one engine"


def test_very_many_classes_are_dealt_greedily() -> None:
    long_chain = query(*({f"s{i:03}": "b", f"s{i + 1:03}": "a"} for i in range(127)))
    shares = choose(long_chain, 64)
    assert shares.partitions == 64
    assert "(128 streams)" not in shares.describe()
    whole = query({f"s{i:03}": "k" for i in range(128)})
    assert "… (128 streams)" in choose(whole, 64).describe()


def test_strides_number_the_cells() -> None:
    shares = Shares(("R",), ("a", "b", "c"), (2, 3, 4), ((0, 1, 2),), (1.0,))
    seen = {cells(shares, 0, {0: a, 1: b, 2: c}).pop() for a, b, c in itertools.product(range(2), range(3), range(4))}
    assert seen == set(range(24))
