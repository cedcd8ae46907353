"""Keyed hashes of words and byte strings, for all hash tables in memory.

`folded_product` multiplies two words to 128 bits and folds the halves, one multiplication of the machine. With secret
operands it is a keyed mixer, as in wyhash and foldhash. All operands but the data are secrets that each directory
draws for itself (`stairs.seeds`): with a public operand there would be words that make the product 0 under any seed.

What somebody can do who chooses keys, and sees neither the seeds nor times: not more than guess. Two different keys
have the same home in a table of 2^b slots with a probability of about 2^-b, whichever keys they are, so chosen keys
crowd no more than random ones. These are no functions for messages that others verify: whoever could see hashes, or
measured many single look-ups, might find a seed. Results, their order, figures and snapshots show no hash.

The homes of words (`home`) come in two kinds, by their factors:

    spacing   folded product with one factor, under which consecutive integers lie almost evenly: no two numbers
              of a run that fills half of a table meet, and a look-up costs no more than an array. The factor is
              secret, but under some factors the multiples of a given number crowd
    mixing    a secret word, a folded product and one more factor: as good as random for all keys. In a table that is
              three quarters full, every second look-up then meets another key, which costs 5 ns more

A directory begins with the first and counts the slots that look-ups pass; when they pass more than SPACED slots per
key, it takes the second (`Stems.renew_hash`). So sequential keys, the most frequent ones, are as fast as they can be,
and no keys make look-ups slow for more than a moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stairs.kernels.accelerate import inlined, u64
from stairs.kernels.bits import folded_product
from stairs.kernels.memory import peek8, peek32, peek64

SPACED, MIXED = 8, 32
"""Slots that a key may pass on the average before a directory draws another hash. Random homes pass 7.5 of a full table
at most, so under mixing factors it happens only if somebody knows them."""
SPARE, MOST_SPARE = 256, 4096
"""Slots beyond them that one pass over rows may pass: the first number, and 1 for 64 slots of the table up to the
second one. That takes a few microseconds."""


@inlined
def home(tag: int, shift: int, secret: int, factor: int, last: int) -> int:
    """Return the home slot of a tag, the high bits of its hash. Spacing factors: secret is 0, last is 1."""
    return np.int64((folded_product(u64(tag) ^ u64(secret), u64(factor)) * u64(last)) >> u64(shift))


@inlined
def stir(x: Any, word: Any, factor: int) -> Any:
    """Mix a word of a key into the hash of those before it, uint64; the first is mixed into a seed."""
    return folded_product(u64(x) ^ u64(word), u64(factor))


@inlined
def finish(x: Any, seed: int, factor: int) -> int:
    """Return the hash of a key from that of its words, as an int64. All its bits are well mixed."""
    return np.int64(folded_product(u64(x) ^ u64(factor), u64(seed)))


@inlined
def hash_bytes(address: int, size: int, seed: int, factor: int) -> int:
    """Return a hash of `size` bytes, read sixteen at a time; the last reads of a string may overlap."""
    x, k = u64(seed), np.int64(0)
    while k + 16 < size:
        x = folded_product(peek64(address + k) ^ x, peek64(address + k + 8) ^ u64(factor))
        k += 16
    first, last = u64(0), u64(0)
    if size > 16:
        first, last = peek64(address + size - 16), peek64(address + size - 8)
    elif size >= 8:
        first, last = peek64(address), peek64(address + size - 8)
    elif size >= 4:
        first, last = u64(peek32(address)), u64(peek32(address + size - 4))
    elif size > 0:
        first = u64(peek8(address)) | u64(peek8(address + size - 1)) << u64(16)
        first |= u64(peek8(address + (size >> 1))) << u64(8)
    x = folded_product(first ^ x, last ^ u64(factor))
    return np.int64(folded_product(x ^ u64(size), u64(seed)))
