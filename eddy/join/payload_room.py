"""The rings of payload, which have as many slots as the rings of records once rows are loaded.

After a push that was undone they may have other rooms, with a slot for each live row: to fit them may fail, for lack of
memory or of room on a disk, and an undo must not.
"""

from __future__ import annotations

from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.modules import Modules
from stairs.payload import Payload


def follow_compaction(modules: Modules, payload: Payload) -> None:
    """Let the payload follow a compaction of a table, if there was one. O(1) without one."""
    if modules.moves != payload.moves:
        assert modules.last_move is not None
        payload.follow(modules.last_move, int(modules.streams[modules.last_move.stream, S_BASE]))


def fit_payload(modules: Modules, payload: Payload) -> None:
    """Let the payload follow a compaction, and give its rings as many slots as the rings of records.

    O(streams) without growth.
    """
    follow_compaction(modules, payload)
    if modules.capacity != payload.room:
        for i, room in enumerate(modules.capacity):
            if room != payload.room[i]:
                low, following = modules.streams[i, [S_LO, S_NEXT]].tolist()
                payload.resize(i, room, low, following, modules.ring_rooms)
