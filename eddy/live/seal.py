"""The seal of a live engine's file: a message authentication code over the whole file, under a secret key.

    index seal    keyed BLAKE2b over the header and the index; checked before anything in the index is read
    block seal    keyed BLAKE2b over the index seal and the sums of all blocks (`eddy.live.kernels`)

The blocks may take hundreds of megabytes. BLAKE2b alone reads less than one gigabyte a second, the kernel that makes
the sums about five. A pseudo-random function over keyed sums that rarely collide is a secure code: without the key, a
forged file is accepted with a probability of about 2^-64 per attempt. The key must be secret and is in no file.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eddy.live.kernels import CHUNK, KEY_WORDS, SUMS, fold
from stairs.errors import InputError
from stairs.memory.arena import Int64s

SEAL_BYTES = 32
LEAST_KEY_BYTES = 16


class Seal:
    """The seals under one key of LEAST_KEY_BYTES bytes or more."""

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
            raise InputError(
                f"the key of a live engine has {LEAST_KEY_BYTES} secret bytes or more, such as secrets.token_bytes(32)"
            )
        self.name, self._index_key, self._block_key, self._fold_key = _derived(key)
        """`name` identifies the key and reveals nothing about it."""

    def of_index(self, header: bytes, index: bytes) -> bytes:
        """Return the seal of a header and an index."""
        digest = hashlib.blake2b(len(header).to_bytes(8, "little"), key=self._index_key, digest_size=SEAL_BYTES)
        digest.update(header)
        digest.update(index)
        return digest.digest()

    def of_blocks(self, index_seal: bytes, memory: npt.NDArray[np.uint8], places: Int64s) -> bytes:
        """Return the seal of blocks; `places` int64[n, 2] has start and length in bytes, multiples of 64 in `memory`.

        The index seal covers their number and places.
        """
        words = np.ascontiguousarray(places // 4)
        sums = np.zeros((int(-(-words[:, 1] // CHUNK).sum()), SUMS), np.uint64)
        fold(memory.view(np.uint32), words, self._fold_key, sums)
        digest = hashlib.blake2b(index_seal, key=self._block_key, digest_size=SEAL_BYTES)
        digest.update(sums.data)
        return digest.digest()


@lru_cache(maxsize=4)
def _derived(key: bytes) -> tuple[bytes, bytes, bytes, npt.NDArray[np.uint32]]:
    """Return the name of a key, and independent keys for the parts of a seal."""
    stretched = hashlib.shake_256(b"eddy live" + key).digest(3 * SEAL_BYTES + 4 * KEY_WORDS)
    name, index, block = (stretched[at : at + SEAL_BYTES] for at in range(0, 3 * SEAL_BYTES, SEAL_BYTES))
    return name, index, block, np.frombuffer(stretched, np.uint32, KEY_WORDS, 3 * SEAL_BYTES).copy()
