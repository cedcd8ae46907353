"""Checks of a STAIR, invariant by invariant, against the records of the SteMs.

They call no kernel: they follow chains themselves, and find combinations with a nested loop over the tuples.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from stairs.checks.byte_strings import require
from stairs.checks.versions import is_alive
from stairs.descriptors import (
    C_NEXT,
    E_BIRTH,
    E_MARKED,
    E_MASK,
    E_NEXT,
    E_OLD_MASK,
    E_SPLIT,
    E_TAIL,
    E_UNMARKED,
    S_NEXT,
)
from stairs.graph import ComparedValue
from stairs.stair import Stair

Composite = tuple[int, ...]


def check_stair(stair: Stair) -> None:
    """Raise StateError, naming the first invariant of `stairs.stair` that fails. O(all combinations)."""
    stair.follow()
    state = stair.state
    birth, tail, following = int(state[E_BIRTH]), int(state[E_TAIL]), int(state[E_NEXT])
    room = int(state[E_MASK]) + 1
    what = stair.what
    require(room & (room - 1) == 0, f"{what}: {room} slots are no power of two")
    require(-1 <= birth < tail <= following, f"{what}: birth {birth}, tail {tail}, next {following} are out of order")
    split = max(tail, int(state[E_SPLIT]))
    require(following - split <= room, f"{what}: entries {split} .. {following - 1} in {room} slots")
    old = int(state[E_OLD_MASK]) + 1
    require(split == tail or split - tail <= old, f"{what}: entries {tail} .. {split - 1} in {old} old slots")
    lows = stair.lows.tolist()

    def live(e: int) -> Composite | None:
        components = tuple(stair.entry(e)[1:].tolist())
        lives = zip(stair.streams, components, lows, strict=True)
        return components if all(s >= low and is_alive(stair.modules, j, s) for j, s, low in lives) else None

    combinations = _combinations(stair)
    known = int(stair.modules.classes[stair.by, C_NEXT])
    heads = stair.heads.tolist()
    reached: set[int] = set()
    for kid, newest in enumerate(heads):
        require(newest < following, f"{what}: head {newest} of key id {kid}, next is {following}")
        if newest < birth or kid >= known:
            require(newest < tail, f"{what}: key id {kid} is not attempted, but its head {newest} is in the ring")
            continue
        stored, e = [], newest
        while e >= tail:
            require(e not in reached, f"{what}: entry {e} is in two chains, the second is that of key id {kid}")
            reached.add(e)
            if (components := live(e)) is not None:
                stored.append(components)
            link = int(stair.entry(e)[0])
            require(birth <= link < e, f"{what}: the link of entry {e} is {link}, birth is {birth}")
            e = link
        expected = combinations.pop(kid, [])
        require(
            Counter(stored) == Counter(expected),
            f"{what}: key id {kid} is attempted with entries {sorted(stored)}, its combinations are {sorted(expected)}",
        )
    adrift = [e for e in range(tail, following) if e not in reached and live(e) is not None]
    require(not adrift, f"{what}: live entries {adrift} are in the chain of no attempted key")
    if birth < 0:
        unmarked = sum(head < birth for head in heads)
        require(unmarked == state[E_UNMARKED], f"{what}: {unmarked} keys not attempted, {state[E_UNMARKED]} counted")
    else:
        marked = sum(head >= birth for head in heads)
        require(marked == state[E_MARKED], f"{what}: {marked} keys attempted, {state[E_MARKED]} counted")
    if stair.complete:
        require(not combinations, f"{what} is complete, but combinations {combinations} have unattempted keys")


def _combinations(stair: Stair) -> dict[int, list[Composite]]:
    """Return all live combinations over the set by key id, from the records alone."""
    modules, graph = stair.modules, stair.modules.graph
    partial: list[tuple[Composite, dict[int, int]]] = [((), {})]
    visited: list[int] = []
    for j, low in zip(stair.streams, stair.lows.tolist(), strict=True):
        room = modules.capacity[j]
        records = modules.recs.view(j).reshape(room, -1)
        tuples = []
        for s in range(low, int(modules.streams[j, S_NEXT])):
            kids = records[s & (room - 1), 1 : 2 * len(graph.attributes[j]) : 2].tolist()
            if kids[0] >= 0 and is_alive(modules, j, s):
                tuples.append((s, dict(zip(graph.attributes[j], kids, strict=True))))
        partial = [
            ((*components, s), {**bound, **keys})
            for components, bound in partial
            for s, keys in tuples
            if all(bound.get(c, kid) == kid for c, kid in keys.items() if c not in graph.scans)
        ]
        visited.append(j)
        partial = [combination for combination in partial if _compare(stair, visited, combination[0])]
    by_key: dict[int, list[Composite]] = defaultdict(list)
    for components, bound in partial:
        by_key[bound[stair.by]].append(components)
    return dict(by_key)


def _compare(stair: Stair, streams: list[int], components: Composite) -> bool:
    """Return whether the components of these streams fulfil the comparisons of the last stream with the others."""
    modules = stair.modules
    at = dict(zip(streams, components, strict=True))

    def value(end: ComparedValue, floats: bool) -> float:
        ring = modules.value_ring(end.stream, end.ring)
        number = ring[at[end.stream] & (len(ring) - 1)]
        return float(number.view(np.float64)) if floats else int(number)

    for comparison in modules.graph.comparisons:
        ends = {comparison.left.stream, comparison.right.stream}
        if streams[-1] in ends and ends <= at.keys():
            left, right = value(comparison.left, comparison.floats), value(comparison.right, comparison.floats)
            if comparison.differs:
                fits = left != right + comparison.low
            else:
                above = left > right + comparison.low or (
                    left == right + comparison.low and not comparison.excluded & 1
                )
                below = left < right + comparison.high or (
                    left == right + comparison.high and not comparison.excluded & 2
                )
                # An infinite bound is none.
                fits = (above or comparison.low == -math.inf) and (below or comparison.high == math.inf)
            if not fits:
                return False
    return True
