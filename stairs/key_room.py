"""The room of a key directory: how many keys and slots it has, and to how many it grows."""

from __future__ import annotations

FIRST_SLOTS = 128
FIRST_KEYS = FIRST_SLOTS * 3 // 4
"""A hash table is at most three quarters full: such tables fit in caches, and probe sequences are still short."""
MANY_KEYS = 256 * FIRST_KEYS
"""From so many keys on, room comes step by step: in EARLY steps, and then in smaller LATE steps, each of which splits a
part of the homes of the hash table. The last homes that it splits still have to be less than three quarters full."""
EARLY, LATE = 6, 8


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least`."""
    return 1 << max(least - 1, 0).bit_length()


def slots_of(room: int) -> int:
    """Return the slots of the hash table of a class with room for `room` keys.

    >>> slots_of(FIRST_KEYS) == FIRST_SLOTS
    True
    """
    return max(FIRST_SLOTS, power_of_two(-(-4 * room // 3)))


def _early(full: int) -> int:
    """Return the keys up to which steps are early, in a table that `full` keys fill."""
    return full // 2 + EARLY * full // 16


def next_room(room: int) -> int:
    """Return the number of keys for which a class gets room once it has room for `room` keys.

    >>> next_room(FIRST_KEYS) == 2 * FIRST_KEYS
    True
    >>> rooms = [MANY_KEYS]
    >>> for _ in range(EARLY + LATE):
    ...     rooms.append(next_room(rooms[-1]))
    >>> rooms[-1] == 2 * MANY_KEYS
    True
    """
    if room < MANY_KEYS:
        return 2 * room
    full = slots_of(room + 1) * 3 // 4
    return room + (full // 16 if room < _early(full) else (full - _early(full)) // LATE)


def table_of(room: int) -> tuple[int, int]:
    """Return C_SHIFT and C_SPLIT of a class with room for `room` keys.

    >>> table_of(FIRST_KEYS) == (65 - FIRST_SLOTS.bit_length(), 0)
    True
    >>> slots_of(MANY_KEYS) * 2 == 1 << (64 - table_of(MANY_KEYS)[0])
    True
    """
    slots = slots_of(room)
    full = slots * 3 // 4
    shift, late = 65 - slots.bit_length(), room - _early(full)
    if room < MANY_KEYS or late <= 0:
        return shift, 0
    return shift - 1, slots - slots * late // (full - _early(full))


def fits(room: int, shift: int, split: int) -> bool:
    """Return whether a class with room for `room` keys can have a table with these C_SHIFT and C_SPLIT.

    A table grows before the room for keys, so it may be a step ahead.
    """
    return (shift, split) in (table_of(room), table_of(next_room(room)))


def is_room(room: int) -> bool:
    """Return whether a class can have room for `room` keys (`next_room`)."""
    full = slots_of(room) * 3 // 4
    if room < MANY_KEYS or room == full:
        return FIRST_KEYS <= room == full
    early = _early(full)
    return (room - full // 2) % (full // 16) == 0 if room < early else (room - early) % ((full - early) // LATE) == 0
