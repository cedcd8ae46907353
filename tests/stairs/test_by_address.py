"""Named tuples of arrays that kernels get by address: the kernel finds the same ones, and only the right kinds pass."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType

from stairs.kernels.accelerate import jit
from stairs.kernels.by_address import Descriptions, TupleDescription, kinds_of, opened
from stairs.memory.arena import Batch, Chunk, Cubes, Input
from stairs.memory.scratch import Scratch

pytestmark = pytest.mark.versions


@jit
def add_up(chunk_at: int, input_at: int, order: np.ndarray) -> int:
    """Return a sum over arrays of one to three axes, and increase an element of each."""
    chunk, batch = opened(Chunk, chunk_at, ()), opened(Batch, input_at, (order,))
    total = 1000 * chunk.levels.shape[1] + chunk.levels[1, 2, 3] + chunk.streams[2, 1] + chunk.owners[4]
    total += 10_000 * len(batch.input) + batch.input[1] + batch.dead[0] + batch.order[2]
    chunk.levels[1, 2, 3] += 1
    batch.dead[0] += 1
    return int(total)


def test_a_kernel_finds_the_arrays_of_the_newest_tuple() -> None:
    chunk, known, order = Scratch(3, 1, 0).chunk, Descriptions(), np.array([5, 6, 7], np.uint8)
    chunk.levels[1, 2, 3], chunk.streams[2, 1], chunk.owners[4] = 40, 3, 2
    clock = np.zeros(1, np.int64)
    first = Input(np.arange(2), np.ones(1, np.uint8), clock)
    other = Input(np.arange(8, 12), np.full(1, 9, np.uint8), clock)
    chunk_sum = 3000 + 40 + 3 + 2
    assert add_up(known.address(chunk), known.address(first), order) == chunk_sum + 20_000 + 1 + 1 + 7
    assert known.address(chunk) == known.address(chunk)
    assert add_up(known.address(chunk), known.address(other), order) == chunk_sum + 1 + 40_000 + 9 + 9 + 7
    assert (first.dead[0], other.dead[0], chunk.levels[1, 2, 3]) == (2, 10, 42)


@pytest.mark.parametrize(
    "words",
    [np.zeros(2, np.int32), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2], np.frombuffer(bytes(8), np.int64)],
    ids=["type", "axes", "strides", "read-only"],
)
def test_an_array_of_another_kind_has_no_address(words: np.ndarray) -> None:
    with pytest.raises(TypeError, match="words of a Input is no writable array"):
        TupleDescription(Input(words, np.zeros(1, np.uint8), np.zeros(1, np.int64)))


def test_annotations_may_be_aliases() -> None:
    """numpy's `NDArray` is one since numpy 2.5 on Python 3.12; the same class of aliases serves older Pythons here."""
    scalar = TypeVar("scalar", bound=np.generic)
    array = np.ndarray[tuple[Any, ...], np.dtype[scalar]]  # type: ignore[valid-type]
    alias = TypeAliasType("alias", array, type_params=(scalar,))  # type: ignore[misc]
    words = TypeAliasType("words", alias[np.int32])
    shapeless = np.ndarray[Any, np.dtype[np.int16]]
    fields = [("plain", npt.NDArray[np.uint8]), ("old", shapeless), ("new", alias[np.int64]), ("of_alias", words)]
    kinds = kinds_of(NamedTuple("Aliased", [*fields, ("cube", Cubes)]))  # type: ignore[misc]
    assert [kind.axes for kind in kinds] == [1, 1, 1, 1, 3]
    assert [kind.dtype.name for kind in kinds] == ["uint8", "int16", "int64", "int32", "int64"]
