"""Kernels of groups: a hash table of keys of several words, lists of values, exact sums.

A key is a row of int64 words. Keys, cells and links lie in arrays over *slots*; a table of open addressing maps keys
to slots. `meta` has the counters M_NEXT (slots assigned so far) and M_FREE (slots on the free stack).

A sum is a number in limbs of 32 bits, least first, each in an int64; only the last limb is signed. So sums of as many
as 2^31 numbers need no carry, and adding and subtracting a number leaves no trace.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.hashes import finish, stir

Int64s = npt.NDArray[np.int64]

M_NEXT = 0
M_FREE = 1
M_FIELDS = 2
LIMB = 32
MASK = (1 << LIMB) - 1


@inlined
def hash_of(keys: Int64s, row: int, seeds: Int64s) -> int:
    """Return a hash of a key under two seeds."""
    x = u64(seeds[0])
    for k in range(keys.shape[1]):
        x = stir(x, keys[u64(row), u64(k)], seeds[1])
    return finish(x, seeds[0], seeds[1])


@inlined
def same(left: Int64s, row: int, right: Int64s, other: int) -> bool:
    """Return whether two keys are equal."""
    for k in range(left.shape[1]):
        if left[u64(row), u64(k)] != right[u64(other), u64(k)]:
            return False
    return True


@inlined
def place_of(keys: Int64s, table: Int64s, seeds: Int64s, wanted: Int64s, row: int) -> int:
    """Return the place in the table of a key, or the empty place for it."""
    mask = table.shape[0] - 1
    place = hash_of(wanted, row, seeds) & mask
    while True:
        slot = table[u64(place)]
        if slot < 0 or same(keys, slot, wanted, row):
            return place
        place = (place + 1) & mask


@jit
def number_rows(words: Int64s, table: Int64s, seeds: Int64s, numbers: Int64s, first: Int64s) -> int:
    """Number the different keys among words int64[n, w] in order of appearance; return how many there are.

    table int64[power of two, 2 n or more], all -1; seeds int64[2]; numbers int64[n]: of each row; first int64[n]: a row
    of each number.
    """
    count = 0
    mask = table.shape[0] - 1
    for row in range(words.shape[0]):
        place = hash_of(words, row, seeds) & mask
        while True:
            number = table[u64(place)]
            if number < 0:
                table[u64(place)] = number = count
                first[u64(count)] = row
                count += 1
                break
            if same(words, first[u64(number)], words, row):
                break
            place = (place + 1) & mask
        numbers[u64(row)] = number
    return count


@jit
def find(keys: Int64s, table: Int64s, seeds: Int64s, wanted: Int64s, slots: Int64s) -> None:
    """Write the slot of each wanted key, -1 for one that is not there."""
    for row in range(wanted.shape[0]):
        slots[u64(row)] = table[u64(place_of(keys, table, seeds, wanted, row))]


@jit
def adopt(
    keys: Int64s,
    table: Int64s,
    seeds: Int64s,
    freed: Int64s,
    live: Int64s,
    meta: Int64s,
    wanted: Int64s,
    slots: Int64s,
) -> None:
    """Write the slot of each wanted key, a new one where it is not there. There is room."""
    for row in range(wanted.shape[0]):
        place = place_of(keys, table, seeds, wanted, row)
        slot = table[u64(place)]
        if slot < 0:
            if meta[M_FREE] > 0:
                meta[M_FREE] -= 1
                slot = freed[u64(meta[M_FREE])]
            else:
                slot = meta[M_NEXT]
                meta[M_NEXT] += 1
            for k in range(keys.shape[1]):
                keys[u64(slot), u64(k)] = wanted[u64(row), u64(k)]
            table[u64(place)] = slot
            live[u64(slot)] = 1
        slots[u64(row)] = slot


@jit
def drop(keys: Int64s, table: Int64s, seeds: Int64s, freed: Int64s, live: Int64s, meta: Int64s, slots: Int64s) -> None:
    """Remove the keys of slots that are in use, and free the slots; -1 is skipped."""
    mask = table.shape[0] - 1
    for x in range(slots.shape[0]):
        slot = slots[u64(x)]
        if slot < 0:
            continue
        gap = place_of(keys, table, seeds, keys, slot)
        place = gap
        while True:
            place = (place + 1) & mask
            other = table[u64(place)]
            if other < 0:
                break
            # A key may move into the gap unless its home lies between the gap and its place.
            if ((place - hash_of(keys, other, seeds)) & mask) >= ((place - gap) & mask):
                table[u64(gap)] = other
                gap = place
        table[u64(gap)] = -1
        live[u64(slot)] = 0
        freed[u64(meta[M_FREE])] = slot
        meta[M_FREE] += 1


@jit
def rehash(keys: Int64s, table: Int64s, seeds: Int64s, live: Int64s, meta: Int64s) -> None:
    """Enter all keys in use into an empty table."""
    for slot in range(meta[M_NEXT]):
        if live[u64(slot)]:
            table[u64(place_of(keys, table, seeds, keys, slot))] = slot


# Lists of values


OUT = -2
"""The link before a slot that is in no list."""


@jit
def enlist(heads: Int64s, links: Int64s, owners: Int64s, slots: Int64s) -> None:
    """Enter slots into the lists of their owners unless they are there.

    heads int64[owners], -1 for none; links int64[slots, 2], the next slot and the one before it.
    """
    for x in range(slots.shape[0]):
        slot, group = slots[u64(x)], owners[u64(x)]
        if links[u64(slot), u64(1)] != OUT:
            continue
        following = heads[u64(group)]
        links[u64(slot), u64(0)], links[u64(slot), u64(1)] = following, -1
        if following >= 0:
            links[u64(following), u64(1)] = slot
        heads[u64(group)] = slot


@step
def delist(heads: Int64s, links: Int64s, owners: Int64s, slots: Int64s) -> None:
    """Remove slots from the lists of their owners if they are there; -1 is skipped."""
    for x in range(slots.shape[0]):
        slot = slots[u64(x)]
        if slot < 0 or links[u64(slot), u64(1)] == OUT:
            continue
        following, before = links[u64(slot), u64(0)], links[u64(slot), u64(1)]
        if before >= 0:
            links[u64(before), u64(0)] = following
        else:
            heads[u64(owners[u64(x)])] = following
        if following >= 0:
            links[u64(following), u64(1)] = before
        links[u64(slot), u64(1)] = OUT


@jit
def discard(
    heads: Int64s,
    links: Int64s,
    owners: Int64s,
    keys: Int64s,
    table: Int64s,
    seeds: Int64s,
    freed: Int64s,
    live: Int64s,
    meta: Int64s,
    slots: Int64s,
) -> None:
    """Remove slots from the lists of their owners, and their keys. No interruption separates the two steps."""
    delist(heads, links, owners, slots)
    drop(keys, table, seeds, freed, live, meta, slots)


@jit
def listed(heads: Int64s, links: Int64s, owners: Int64s, members: Int64s, places: Int64s) -> int:
    """Return how many slots the lists of some owners have; write them, and the place of their owner, if there is room.

    members, places  int64[…], of which both are filled if they have any length
    """
    n = 0
    writes = members.shape[0] > 0
    for x in range(owners.shape[0]):
        slot = heads[u64(owners[u64(x)])]
        while slot >= 0:
            if writes:
                members[u64(n)], places[u64(n)] = slot, x
            n += 1
            slot = links[u64(slot), u64(0)]
    return n


# Reductions


@jit
def add_rows(values: Int64s, numbers: Int64s, totals: Int64s) -> None:
    """Add values[x], int64[n, k], to totals[numbers[x]]; a number of -1 is skipped."""
    for x in range(values.shape[0]):
        g = numbers[u64(x)]
        if g >= 0:
            for k in range(values.shape[1]):
                totals[u64(g), u64(k)] += values[u64(x), u64(k)]


@jit
def choose(orders: Int64s, numbers: Int64s, greatest: int, chosen: Int64s) -> None:
    """Write the row with the least (or greatest) key for each number: orders int64[n, k], compared word by word.

    chosen   int64[numbers], -1 before; stays -1 where there is no row. A number of -1 is skipped
    """
    for x in range(orders.shape[0]):
        g = numbers[u64(x)]
        if g < 0:
            continue
        best = chosen[u64(g)]
        better = best < 0
        if best >= 0:
            for k in range(orders.shape[1]):
                mine, other = orders[u64(x), u64(k)], orders[u64(best), u64(k)]
                if mine != other:
                    better = (mine > other) == (greatest == 1)
                    break
        if better:
            chosen[u64(g)] = x


# Exact sums


@jit
def add_floats(
    values: npt.NDArray[np.float64], signs: Int64s, numbers: Int64s, base: int, totals: Int64s, odd: Int64s
) -> None:
    """Add signs[x] * values[x] to the limbs totals[numbers[x]], of which the first counts 2^(32 base).

    odd   int64[numbers, 3]: counts NaN, inf and -inf instead, which have no limbs

    The limbs cover all finite values. A number of -1 is skipped.
    """
    bits = values.view(np.int64)
    for x in range(values.shape[0]):
        g, sign = numbers[u64(x)], signs[u64(x)]
        if g < 0:
            continue
        exponent = (bits[u64(x)] >> 52) & 0x7FF
        mantissa = u64(bits[u64(x)]) & u64((1 << 52) - 1)
        if exponent == 0x7FF:
            kind = 0 if mantissa != u64(0) else 1 if bits[u64(x)] >= 0 else 2
            odd[u64(g), u64(kind)] += sign
            continue
        if exponent == 0:
            exponent = 1
        else:
            mantissa |= u64(1) << u64(52)
        if mantissa == u64(0):
            continue
        if bits[u64(x)] < 0:
            sign = -sign
        # The least bit of the mantissa counts 2^(exponent - 1075).
        at = exponent - 1075 - LIMB * base
        limb, shift = at >> 5, u64(at & 31)
        low = mantissa << shift
        high = (mantissa >> (u64(63) - shift)) >> u64(1)
        totals[u64(g), u64(limb)] += sign * np.int64(low & u64(MASK))
        if low >> u64(32):
            totals[u64(g), u64(limb + 1)] += sign * np.int64(low >> u64(32))
        if high:
            totals[u64(g), u64(limb + 2)] += sign * np.int64(high)


@jit
def carry(limbs: Int64s) -> None:
    """Bring sums into their normal form, int64[n, k]: all limbs but the last from 0 to 2^32 - 1."""
    last = limbs.shape[1] - 1
    for x in range(limbs.shape[0]):
        for k in range(last):
            value = limbs[u64(x), u64(k)]
            limbs[u64(x), u64(k)] = value & MASK
            limbs[u64(x), u64(k + 1)] += value >> LIMB


@jit
def to_floats(limbs: Int64s, base: int, scratch: npt.NDArray[np.uint64], floats: npt.NDArray[np.float64]) -> None:
    """Write the float nearest to each sum, ties to even: limbs int64[n, k] in normal form; scratch uint64[k + 3]."""
    k = limbs.shape[1]
    for x in range(limbs.shape[0]):
        negative = limbs[u64(x), u64(k - 1)] < 0
        # The magnitude, in limbs 2 … k + 2 of the scratch, with two limbs of zeros below.
        scratch[u64(0)] = scratch[u64(1)] = u64(0)
        borrow = u64(1)
        top = 0
        for j in range(k + 1):
            if j < k - 1:
                limb = u64(limbs[u64(x), u64(j)])
            else:
                limb = u64(limbs[u64(x), u64(k - 1)] >> (LIMB * (j - k + 1))) & u64(MASK)
            if negative:
                limb = (limb ^ u64(MASK)) + borrow
                borrow = limb >> u64(32)
                limb &= u64(MASK)
            scratch[u64(j + 2)] = limb
            if limb:
                top = j + 2
        if top == 0:
            floats[u64(x)] = 0.0
            continue
        word = (scratch[u64(top)] << u64(32)) | scratch[u64(top - 1)]
        rest = scratch[u64(top - 2)]
        shift = u64(0)
        while not (word >> u64(63)):
            word = (word << u64(1)) | (rest >> u64(31))
            rest = (rest << u64(1)) & u64(MASK)
            shift += u64(1)
        sticky = rest != u64(0)
        for j in range(2, top - 2):
            sticky = sticky or scratch[u64(j)] != u64(0)
        mantissa, lost = word >> u64(11), word & u64(0x7FF)
        if lost > u64(0x400) or (lost == u64(0x400) and (sticky or mantissa & u64(1))):
            mantissa += u64(1)
        exponent = LIMB * (base + top - 2 - 1) - np.int64(shift) + 11
        if mantissa >> u64(53):
            mantissa >>= u64(1)
            exponent += 1
        value = np.inf if exponent > 971 else math.ldexp(np.float64(mantissa), int(exponent))
        floats[u64(x)] = -value if negative else value
