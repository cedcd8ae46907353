"""Steps on partial results: their ancestors, the checks of a candidate that would extend one, the end of a level."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    H_COMPARE,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    L_AT,
    L_MATCHES,
    L_PROBES,
    L_SIZE,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    Q_FIELDS,
    Q_PARENT,
    Q_PLACE,
    Q_TUPLE,
    S_MASK,
    S_RECS,
    S_WIDTH,
    X_LEVEL,
)
from stairs.kernels.accelerate import inlined, u64
from stairs.kernels.compare import end_of, holds
from stairs.memory.arena import Arena, Chunk, Routes, Walk


@inlined
def ancestor(chunk: Chunk, i: int, q: int, level: int, above: int) -> int:
    """Return the tuple that partial result q of a level has at the level `above` it."""
    while level > above:
        q = np.int64(chunk.partials[u64(chunk.levels[i, u64(level), L_AT] + q * Q_FIELDS + Q_PARENT)])
        level -= 1
    return np.int64(chunk.partials[u64(chunk.levels[i, u64(level), L_AT] + q * Q_FIELDS + Q_TUPLE)])


@inlined
def bind_keys(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, q: int, h: int) -> None:
    """Write the key ids and the components of partial result q with which hop h compares those of its candidates."""
    ops = routes.ops
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        if ops[u64(o), O_CHECK] != 0:
            c = u64(ops[u64(o), O_CLASS])
            row = arena.streams[u64(chunk.sources[c, 1])]
            s = ancestor(chunk, i, q, level, chunk.sources[c, 0])
            at = row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + chunk.sources[c, 2] + 1
            walk.kids[c] = arena.recs[u64(at)]
    first = routes.hops[u64(h), H_COMPARE]
    for x in range(first, end_of(routes, first)):
        above = ancestor(chunk, i, q, level, routes.compares[u64(x), X_LEVEL])
        walk.others[u64(x - first)] = above


@inlined
def agrees(arena: Arena, routes: Routes, walk: Walk, h: int, record: int, s: int) -> bool:
    """Return whether candidate s, whose record starts at `record`, fits what `bind_keys` wrote."""
    ops, same = routes.ops, True
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        if ops[u64(o), O_CHECK] != 0:
            same &= walk.kids[u64(ops[u64(o), O_CLASS])] == arena.recs[u64(record + ops[u64(o), O_OFFSET] + 1)]
    first = routes.hops[u64(h), H_COMPARE]
    for x in range(first, end_of(routes, first)):
        same = same and holds(arena, routes.compares[u64(x)], s, walk.others[u64(x - first)])
    return same


@inlined
def add_partial(partials: np.ndarray, at: int, q: int, s: int, place: int) -> int:
    """Write at `at` the partial result that extends partial result q by tuple s, and return its end."""
    partials[u64(at + Q_PARENT)] = q
    partials[u64(at + Q_TUPLE)] = s
    partials[u64(at + Q_PLACE)] = place
    return at + Q_FIELDS


@inlined
def close_level(routes: Routes, chunk: Chunk, i: int, level: int, h: int, at: int, end: int) -> None:
    """Record a level of stream i that hop h has written from `at` to `end`, and the keys that it binds."""
    levels = chunk.levels
    levels[i, u64(level), L_AT] = at
    levels[i, u64(level), L_PROBES] = levels[i, u64(level - 1), L_SIZE]
    levels[i, u64(level), L_MATCHES] = levels[i, u64(level), L_SIZE] = (end - at) // Q_FIELDS
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        if routes.ops[u64(o), O_CHECK] == 0:
            c = u64(routes.ops[u64(o), O_CLASS])
            chunk.sources[c, 0], chunk.sources[c, 1] = level, routes.hops[u64(h), H_TARGET]
            chunk.sources[c, 2] = routes.ops[u64(o), O_OFFSET]
