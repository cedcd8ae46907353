"""Checks of tables: which versions live, and what their chains must be (`stairs.kernels.versions`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.checks.byte_strings import require
from stairs.descriptors import A_OFFSET, S_KEY, S_LIFE
from stairs.kernels.versions import ALIVE, BURIED, DEAD
from stairs.memory.arena import Int64s
from stairs.stems import Stems


def is_alive(stems: Stems, i: int, s: int) -> bool:
    """Return whether tuple s of stream i, which is in its window, is no version that has ended."""
    at = int(stems.streams[i, S_LIFE])
    records = stems.recs.view(i).reshape(stems.capacity[i], -1)
    return at == 0 or bool(records[s & (stems.capacity[i] - 1), at] == ALIVE)


def check_versions(stems: Stems, i: int, x: int, tuples: Int64s, what: str) -> npt.NDArray[np.bool_]:
    """Return which of the versions in the ring of table i live, bool[versions].

    Raise StateError unless each lives or is dead, each key has at most one that lives, and the newer neighbours of the
    living ones, by attribute x, are those of their chains.
    """
    room, at = stems.capacity[i], int(stems.streams[i, S_LIFE])
    records = stems.recs.view(i).reshape(room, -1)[tuples & (room - 1)]
    alive: npt.NDArray[np.bool_] = records[:, at] == ALIVE
    require(bool((alive | (records[:, at] == DEAD)).all()), f"{what}: a version neither lives nor is dead")
    require(bool((records[~alive, 1] < 0).all()), f"{what}: a dead version has a key by which it would be found")
    require(bool((records[alive, 1] > BURIED + 1).all()), f"{what}: a version that lives is buried, or a delete")
    key = int(stems.attrs[stems.streams[i, S_KEY], A_OFFSET])
    keys = records[alive, key + 1]
    require(len(np.unique(keys)) == len(keys), f"{what}: two living versions have one primary key")
    offset = int(stems.attrs[x, A_OFFSET])
    newer = records[alive, 2 * (at // 3) + offset // 2].astype(np.int64)
    kids, living = records[alive, offset + 1], tuples[alive]
    keyed = np.flatnonzero(kids >= 0)
    order = keyed[np.lexsort((keyed, kids[keyed]))]
    again = np.zeros(len(order), bool)
    again[:-1] = kids[order][1:] == kids[order][:-1]
    after = np.where(again, np.concatenate([living[order][1:], [-1]])[: len(order)], -1)
    wrong = living[order][newer[order] != after][:20].tolist()
    require(not wrong, f"{what}: versions {wrong} have another newer neighbour than in their chain")
    return alive
