"""The rings of payload, which have as many slots as the rings of records."""

from __future__ import annotations

from stairs.descriptors import S_LO, S_NEXT
from stairs.modules import Modules
from stairs.payload import Payload


def fit_payload(modules: Modules, payload: Payload) -> None:
    """Give each ring of payload as many slots as the ring of records of its stream. O(streams) without growth."""
    if modules.capacity != payload.room:
        for i, room in enumerate(modules.capacity):
            if room != payload.room[i]:
                low, following = modules.streams[i, [S_LO, S_NEXT]].tolist()
                payload.resize(i, room, low, following, modules.ring_rooms)
