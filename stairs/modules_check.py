"""The invariants of the arena, asserted one by one; tests call this after each operation."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from stairs.arena import Int64s
from stairs.bytes_directory import BytesDirectory
from stairs.errors import StateError
from stairs.fields import (
    A_COLUMN,
    C_CAPACITY,
    C_FREE,
    C_NEXT,
    C_SHIFT,
    S_KIND,
    S_LO,
    S_NEXT,
    S_SIZE,
)
from stairs.graph import JoinGraph, WindowKind
from stairs.keys_kernels import fold, spread
from stairs.segments import Segments


class Inspected(Protocol):
    """What the checks read of `stairs.modules.Modules`."""

    graph: JoinGraph
    capacity: list[int]
    streams: Int64s
    classes: Int64s
    attrs: Int64s
    attribute_rows: dict[tuple[int, int], int]
    texts: dict[tuple[int, int], BytesDirectory]
    recs: Segments
    heads: Segments
    words: Segments
    table: Segments
    freed: Segments

    @property
    def pushing(self) -> bool:
        """Whether a push is under way."""


def require(holds: bool, what: str) -> None:
    """Raise StateError with `what` unless it holds."""
    if not holds:
        raise StateError(what)


def check_modules(modules: Inspected) -> None:
    """Raise StateError unless rings, chains, key directories and strings are as their modules say. O(state)."""
    graph = modules.graph
    require(not modules.pushing, "a push is neither committed nor undone")
    for i, name in enumerate(graph.names):
        _check_ring(modules, i, f"SteM {name}")
    for c in range(graph.n_classes):
        _check_keys(modules, c, f"key directory of class {c}")
        for i in graph.members[c]:
            _check_chains(modules, i, c, f"SteM {graph.names[i]}, index on class {c}")
    for strings in modules.texts.values():
        strings.check()


def _check_ring(modules: Inspected, i: int, what: str) -> None:
    low, following = int(modules.streams[i, S_LO]), int(modules.streams[i, S_NEXT])
    room = modules.capacity[i]
    require(room & (room - 1) == 0, f"{what}: {room} slots are no power of two")
    require(0 <= low <= following, f"{what}: low mark {low} and next {following} are out of order")
    require(following - low <= room, f"{what}: {following - low} live tuples in {room} slots")
    if modules.streams[i, S_KIND] == WindowKind.ROWS:
        size = int(modules.streams[i, S_SIZE])
        require(following - low <= size, f"{what}: {following - low} tuples in a window of {size} rows")
        # What leaves a ROWS window leaves by the count alone.
        require(low == 0 or following - low == size, f"{what}: low mark {low} with {following - low} of {size} rows")


def _check_keys(modules: Inspected, c: int, what: str) -> None:
    width = modules.graph.widths[c]
    table = modules.table.view(c).reshape(-1, 2)
    following, free = int(modules.classes[c, C_NEXT]), int(modules.classes[c, C_FREE])
    capacity = int(modules.classes[c, C_CAPACITY])
    require(following <= capacity, f"{what}: {following} ids, room for {capacity}")
    slots = np.flatnonzero(table[:, 1] >= 0)
    held = np.sort(table[slots, 1])
    freed = np.sort(modules.freed.view(c)[:free])
    require(
        np.array_equal(np.sort(np.concatenate([held, freed])), np.arange(following)),
        f"{what}: ids in the table {held.tolist()} and free {freed.tolist()} are not 0 .. {following - 1}",
    )
    words = modules.words.view(c).reshape(-1, width)
    shift = int(modules.classes[c, C_SHIFT])
    last = (1 << (64 - shift)) - 1
    for slot in slots.tolist():
        tag, kid = table[slot].tolist()
        wanted = int(words[kid, 0]) if width == 1 else int(fold(words.reshape(-1), kid * width, width))
        require(tag == wanted, f"{what}: slot {slot} has tag {tag}, key id {kid} would have {wanted}")
        at = int(spread(np.int64(tag), shift))  # type: ignore[arg-type]  # a Python int would be another signature
        while at != slot:
            require(table[at, 1] >= 0, f"{what}: key id {kid} in slot {slot} is cut off from its home by slot {at}")
            at = (at + 1) & last
    live = {tuple(words[kid].tolist()) for kid in held.tolist()}
    require(len(live) == len(held), f"{what}: a key has two ids")


def _check_chains(modules: Inspected, i: int, c: int, what: str) -> None:
    """Each live tuple with a key is in exactly the chain of its key, newest first."""
    graph = modules.graph
    room, width = modules.capacity[i], 2 * len(graph.attributes[i])
    low, following = int(modules.streams[i, S_LO]), int(modules.streams[i, S_NEXT])
    records = modules.recs.view(i).reshape(room, width)
    offset = 2 * graph.attributes[i].index(c)
    column = int(modules.attrs[modules.attribute_rows[i, c], A_COLUMN])
    heads = modules.heads.view(c).reshape(-1, len(graph.members[c]))[:, column]
    expected: dict[int, list[int]] = {}
    for s in range(following - 1, low - 1, -1):
        kid = int(records[s & (room - 1), offset + 1])
        if kid >= 0:
            expected.setdefault(kid, []).append(s)
    used = modules.table.view(c).reshape(-1, 2)[:, 1]
    for kid in used[used >= 0].tolist():
        chain, s = [], int(heads[kid])
        while s >= low:
            require(s < following, f"{what}: the chain of key id {kid} has {s}, next is {following}")
            chain.append(s)
            link = int(records[s & (room - 1), offset])
            require(link < s, f"{what}: the link of {s} is {link}, not an older tuple")
            s = link
        found = expected.pop(kid, [])
        require(chain == found, f"{what}: the chain of key id {kid} is {chain}, its live tuples are {found}")
    require(not expected, f"{what}: tuples {expected} have key ids that are not in the directory")
