"""Checks of a directory of byte strings; its arrays may contain anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stairs.errors import StateError
from stairs.kernels.byte_strings import (
    B_DEAD,
    B_FACTOR,
    B_FIELDS,
    B_FREE,
    B_FRESH,
    B_HEAP,
    B_NEXT,
    B_SEED,
    BytesArena,
)
from stairs.kernels.lookups import lost_string
from stairs.memory.arena import Int64s

_DTYPES = {
    "heap": np.uint8,
    "start": np.int64,
    "size": np.int32,
    "hashes": np.int64,
    "users": np.int32,
    "table": np.int32,
    "freed": np.int32,
    "fresh": np.int32,
    "meta": np.int64,
}


def require(holds: bool, what: str) -> None:
    """Raise StateError with message `what` unless `holds` is true."""
    if not holds:
        raise StateError(what)


def check_strings(arena: BytesArena, what: str = "strings") -> Int64s:
    """Raise StateError unless the arrays are safe for kernels and every string is found; return the ids in use.

    Assumes nothing about the arrays, not even their shapes and dtypes. Only between two pushes. O(bytes).
    """
    for name, dtype in _DTYPES.items():
        array: npt.NDArray[Any] = getattr(arena, name)
        whole = array.dtype == dtype and array.ndim == 1 and array.flags.c_contiguous
        require(whole, f"{what}: {name} is {array.dtype} of shape {array.shape}")
    room = len(arena.start)
    sizes = [len(array) for array in (arena.size, arena.hashes, arena.users, arena.freed, arena.fresh)]
    require(sizes == [room] * 5 and room > 0, f"{what}: room for {room} strings, and arrays of {sizes}")
    require(room & (room - 1) == 0, f"{what}: room for {room} strings is no power of two")
    slots = len(arena.table)
    require(slots == 2 * room, f"{what}: room for {room} strings, a table of {slots} slots")
    require(len(arena.meta) == B_FIELDS, f"{what}: {len(arena.meta)} counters, not {B_FIELDS}")
    following, free, heap, dead = arena.meta[[B_NEXT, B_FREE, B_HEAP, B_DEAD]].tolist()
    require(0 <= free <= following <= room, f"{what}: {following} ids, {free} of them free, room for {room}")
    require(dead >= 0 and 0 <= heap <= len(arena.heap), f"{what}: {heap} bytes, {dead} dead, in {len(arena.heap)}")
    require(bool((arena.meta[[B_SEED, B_FACTOR]] & 1).all()), f"{what}: seeds of the hash that are even")
    live: Int64s = np.flatnonzero(arena.size[:following] >= 0)
    held = np.sort(arena.table[arena.table >= 0])
    require(np.array_equal(held, live), f"{what} in the table {_some(held)} are not those in use {_some(live)}")
    freed = np.sort(arena.freed[:free])
    others = np.setdiff1d(np.arange(following), live)
    require(np.array_equal(freed, others), f"{what}: {len(live)} are in use, ids {_some(freed)} are on the free stack")
    idle = live[arena.users[live] <= 0]
    require(not len(idle), f"{what} {_some(idle)} have no user but are in the table")
    # The counters from here on belong to an open push.
    pushing = arena.meta[B_FRESH:].tolist()
    require(not any(pushing), f"{what}: counters {pushing} of a push that has ended")
    start, size = arena.start[live], arena.size[live].astype(np.int64)
    # A place near the end of an int64 would wrap around.
    inside = (start >= 0) & (start <= heap) & (size <= heap - np.minimum(start, heap))
    require(bool(inside.all()), f"{what} {_some(live[~inside])} lie outside of the {heap} bytes in use")
    total = int(size.sum())
    require(heap - dead == total, f"{what}: {dead} of {heap} bytes are counted as dead, {total} are live")
    lost = lost_string(arena)
    require(lost < 0, f"{what}: string {lost} is not found by its bytes, or has two ids")
    return live


def _some(numbers: npt.NDArray[np.signedinteger[Any]]) -> list[int]:
    return [int(number) for number in numbers[:20]]
