"""An engine as Python objects and blocks of memory, apart: arrays become places in blocks, and stay views of them.

Two arrays that share memory lie in one block, so they share it afterwards as well. What follows from the query alone is
not written: the query, its graph, and tables that are the same for all engines of a query in a process, are handed in.
"""

from __future__ import annotations

import io
import mmap
import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from eddy.live_file import LiveFile, address_of
from eddy.policies.view import Tables
from eddy.query import Query
from jisc.states import Masks
from stairs.graph import JoinGraph

Array = npt.NDArray[Any]
Place = tuple[int, int]
"""A block, by number, and how far from its start."""


@lru_cache(maxsize=32)
def _tables_of(graph: JoinGraph) -> Tables:
    return Tables(Masks(graph))


def placed(block: int, start: int, shape: tuple[int, ...], kind: np.dtype[Any], strides: tuple[int, ...]) -> Array:
    """Stands in a pickle for an array at a place; `Unpickler` knows where that is."""
    raise pickle.UnpicklingError(f"an array of {kind} at {start} of block {block}: the blocks are not here")


def given(what: str) -> Any:
    """Stands in a pickle for something that is handed in; `Unpickler` has it."""
    raise pickle.UnpicklingError(f"{what} is not here")


def _given(what: str) -> Callable[[Any], tuple[Any, tuple[str]]]:
    return lambda _: (given, (what,))


def _owner(array: Array) -> Array:
    """Return the array that has the memory of this one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Pickler:
    """Writes an engine.

    file     where the arrays lie that have not moved since it was taken out
    kept     blocks of the file that are used, by number -> the number that they get
    fresh    memory of new blocks, with the numbers they get
    buffers  where the buffers of Arrow arrays lie: block, start, bytes
    """

    def __init__(self, file: LiveFile) -> None:
        self.file = file
        self.count = 0
        self.kept: dict[int, int] = {}
        self.fresh: list[tuple[int, memoryview]] = []
        self.buffers: list[tuple[int, int, int]] = []
        self._owners: dict[int, tuple[int, int, Array]] = {}
        """By the id of an array that has memory: block, address; the array, lest its id be given to another one."""

    def dump(self, engine: object) -> bytes:
        """Return the pickle of an engine."""
        sink = io.BytesIO()
        pickler = pickle.Pickler(sink, protocol=5, buffer_callback=self._buffer)
        pickler.dispatch_table = {
            np.ndarray: self._array,
            Query: _given("query"),
            JoinGraph: _given("graph"),
            Masks: _given("masks"),
            Tables: _given("tables"),
        }
        pickler.dump(engine)
        return sink.getvalue()

    def _array(self, array: Array) -> tuple[Any, ...]:
        owner = _owner(array)
        if array.dtype.hasobject or not owner.flags.c_contiguous or not array.flags.writeable:
            return array.__reduce_ex__(5)  # type: ignore[return-value]
        block, start = (-1, 0) if not array.size else self._place(address_of(array), owner)
        strides = () if array.flags.c_contiguous else array.strides
        return placed, (block, start, array.shape, array.dtype, strides)

    def _place(self, address: int, owner: Array) -> Place:
        found = self.file.place_of(address)
        if found is not None:
            return self._kept(found[0]), found[1]
        known = self._owners.get(id(owner))
        if known is None:
            known = self._owners[id(owner)] = self._fresh(owner.data), address_of(owner), owner
        return known[0], address - known[1]

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if not memory.nbytes:
            return True
        found = self.file.place_of(address_of(np.frombuffer(memory, np.uint8)))
        block, start = (self._kept(found[0]), found[1]) if found is not None else (self._fresh(memory), 0)
        self.buffers.append((block, start, memory.nbytes))
        return False

    def _kept(self, k: int) -> int:
        if k not in self.kept:
            self.kept[k] = self._numbered()
        return self.kept[k]

    def _fresh(self, memory: memoryview) -> int:
        self.fresh.append((self._numbered(), memory.cast("B")))
        return self.fresh[-1][0]

    def _numbered(self) -> int:
        self.count += 1
        return self.count - 1


class Unpickler(pickle.Unpickler):
    """Reads an engine whose blocks lie in mapped memory, `starts` by number."""

    def __init__(
        self,
        data: bytes,
        memory: mmap.mmap,
        starts: Sequence[int],
        buffers: Sequence[Sequence[int]],
        query: Query,
    ) -> None:
        view = memoryview(memory)
        super().__init__(io.BytesIO(data), buffers=[view[starts[k] + at : starts[k] + at + n] for k, at, n in buffers])
        # Nothing that leads back here: what a pickle named is remembered, and a circle would hold the memory.
        self._placed = partial(_in_memory, memory, starts)
        tables = _tables_of(query.graph)
        self._known = {"query": query, "graph": query.graph, "masks": tables.masks, "tables": tables}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name in the pickle stands for."""
        if module == __name__:
            if name == "placed":
                return self._placed
            if name == "given":
                return self._known.__getitem__
        return super().find_class(module, name)


def _in_memory(
    memory: mmap.mmap,
    starts: Sequence[int],
    block: int,
    start: int,
    shape: tuple[int, ...],
    kind: np.dtype[Any],
    strides: tuple[int, ...],
) -> Array:
    if block < 0:
        return np.zeros(shape, kind)
    return np.ndarray(shape, kind, memory, starts[block] + start, strides or None)
