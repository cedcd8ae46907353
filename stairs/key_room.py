"""The room of a key directory: how many keys and slots it has, and to how many it grows."""

from __future__ import annotations

FIRST_SLOTS = 128
FIRST_KEYS = FIRST_SLOTS * 3 // 4
"""A hash table is at most three quarters full: such tables fit in caches, and probe sequences are still short."""
STEPS = 8
"""From MANY_KEYS keys on, room for as many keys again comes in so many steps."""
MANY_KEYS = 256 * FIRST_KEYS


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least`."""
    return 1 << max(least - 1, 0).bit_length()


def slots_of(room: int) -> int:
    """Return the slots of the hash table of a class with room for `room` keys.

    >>> slots_of(FIRST_KEYS) == FIRST_SLOTS
    True
    """
    return max(FIRST_SLOTS, power_of_two(-(-4 * room // 3)))


def next_room(room: int) -> int:
    """Return the number of keys for which a class gets room once it has room for `room` keys.

    >>> next_room(FIRST_KEYS) == 2 * FIRST_KEYS
    True
    >>> rooms = [MANY_KEYS]
    >>> for _ in range(STEPS):
    ...     rooms.append(next_room(rooms[-1]))
    >>> rooms[-1] == 2 * MANY_KEYS
    True
    """
    if room < MANY_KEYS:
        return 2 * room
    full = slots_of(room) * 3 // 4
    return room + (full // STEPS if room == full else full // (2 * STEPS))


def shift_of(room: int) -> int:
    """Return C_SHIFT of a class with room for `room` keys."""
    return 65 - slots_of(room).bit_length()


def is_room(room: int) -> bool:
    """Return whether a class can have room for `room` keys (`next_room`)."""
    full = slots_of(room) * 3 // 4
    return FIRST_KEYS <= room == full or (full > MANY_KEYS and (room - full // 2) % (full // (2 * STEPS)) == 0)
