"""Segments of one flat array, compared with a list of lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stairs.memory.segments
from stairs.memory.segments import Segments, copy_ring, widen_ring

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
def test_a_renewed_segment_is_empty_and_the_others_are_as_they_were(sizes: list[int], data: st.DataObject) -> None:
    segments = filled(sizes)
    before = contents(segments)
    k, size = data.draw(st.integers(0, len(sizes) - 1)), data.draw(st.integers(0, 9))
    renewed = segments.renewed(k, size)
    expected = [[-1] * size if other == k else values for other, values in enumerate(before)]
    assert contents(renewed) == expected
    assert contents(segments) == before
    assert not np.shares_memory(renewed.array, segments.array)


@given(SIZES, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=9), st.sampled_from([1, 40, 1 << 18]))
def test_grown_segments_keep_their_elements_in_place_while_there_is_room(
    sizes: list[int], growths: list[tuple[int, int]], least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stairs.memory.segments, "LEAST_RESERVED", least)
        segments = filled(sizes)
        expected = contents(segments)
        for k, more in growths:
            if k >= len(sizes):
                continue
            before, room = contents(segments), segments.room[k]
            size = segments.size[k] + more
            grown = segments.grown(k, size, [3 * length + 7 for length in segments.size])
            assert np.shares_memory(grown.array, segments.array) == (size <= room and len(segments.array) > 0)
            assert contents(segments) == before
            expected[k] += [-1] * more
            segments = grown
            assert contents(segments) == contents(segments.copy()) == expected
            assert segments.dense().tolist() == [element for segment in expected for element in segment]
            assert segments.nbytes == segments.dense().nbytes
            assert segments.copy().room == segments.room


def test_segments_without_memory_for_their_room_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    segments, empty = Segments(np.int32, [1 << 16, 3], -1), np.empty

    def limited(n: int, dtype: type) -> np.ndarray:
        if n > 1 << 20:
            raise MemoryError
        return empty(n, dtype)

    monkeypatch.setattr(np, "empty", limited)
    grown = segments.grown(0, 1 << 17, [1 << 30, 3])
    assert grown.room == grown.size == [1 << 17, 3]
    assert contents(grown) == [[-1] * (1 << 17), [-1] * 3]


@given(old=st.integers(0, 5), more=st.integers(0, 3), low=st.integers(0, 200), share=st.floats(0, 1))
def test_a_widened_ring_has_each_element_in_its_new_slot_and_its_old_one(
    old: int, more: int, low: int, share: float
) -> None:
    ring, slots = np.full(1 << (old + more), -1), 1 << old
    numbers = np.arange(low, low + round(share * slots))
    ring[numbers % slots] = numbers
    widen_ring(ring, slots, low, low + len(numbers))
    assert (ring[numbers % len(ring)] == numbers).all()
    assert (ring[numbers % slots] == numbers).all()


@given(old=st.integers(0, 5), new=st.integers(0, 5), low=st.integers(0, 200), share=st.floats(0, 1))
def test_a_ring_keeps_its_elements_in_another(old: int, new: int, low: int, share: float) -> None:
    ring, other = np.full(1 << old, -1), np.full(1 << new, -1)
    numbers = np.arange(low, low + round(share * min(len(ring), len(other))))
    ring[numbers % len(ring)] = numbers
    copy_ring(other, ring, low, low + len(numbers))
    assert (other[numbers % len(other)] == numbers).all()
    assert np.count_nonzero(other >= 0) == len(numbers)
