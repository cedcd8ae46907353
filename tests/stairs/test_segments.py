"""Segments of one flat array, compared with a list of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stairs.memory.segments import Segments, copy_ring

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=5)


def filled(sizes: list[int]) -> Segments:
    """Return segments whose elements are pairwise different."""
    segments = Segments(np.int32, sizes, -1)
    segments.array[:] = np.arange(sum(sizes))
    return segments


def contents(segments: Segments) -> list[list[int]]:
    return [segments.view(k).tolist() for k in range(len(segments.size))]


@given(SIZES)
def test_new_segments_hold_the_fill_value_end_to_end(sizes: list[int]) -> None:
    segments = Segments(np.int64, sizes, 7)
    assert segments.array.dtype == np.int64
    assert contents(segments) == [[7] * size for size in sizes]
    assert segments.base == [sum(sizes[:k]) for k in range(len(sizes))]


def test_a_view_is_no_copy() -> None:
    segments = filled([2, 3])
    segments.view(1)[0] = 99
    assert segments.array.tolist() == [0, 1, 99, 3, 4]


@given(SIZES, st.data())
def test_a_resized_segment_is_empty_and_the_others_are_as_they_were(sizes: list[int], data: st.DataObject) -> None:
    segments = filled(sizes)
    before = contents(segments)
    k, size = data.draw(st.integers(0, len(sizes) - 1)), data.draw(st.integers(0, 9))
    grown = segments.resized(k, size)
    expected = [[-1] * size if other == k else values for other, values in enumerate(before)]
    assert contents(grown) == expected
    assert contents(segments) == before
    assert not np.shares_memory(grown.array, segments.array)


@given(old=st.integers(0, 5), new=st.integers(0, 5), low=st.integers(0, 200), share=st.floats(0, 1))
def test_a_ring_keeps_its_elements_in_another(old: int, new: int, low: int, share: float) -> None:
    one, other = np.full(1 << old, -1), np.full(1 << new, -1)
    numbers = np.arange(low, low + round(share * min(len(one), len(other))))
    one[numbers % len(one)] = numbers
    copy_ring(other, one, low, low + len(numbers))
    assert (other[numbers % len(other)] == numbers).all()
    assert np.count_nonzero(other >= 0) == len(numbers)
