"""The seal of a live engine's file: a keyed checksum over all of it, which only those who have the key can write.

    index seal    BLAKE2b, keyed, over the header and the index; nothing of the index is read before it fits
    block seal    BLAKE2b, keyed, over the index seal and the sums of all blocks (`eddy.live.kernels`)

The blocks may be hundreds of megabytes. BLAKE2b alone goes through less than one gigabyte a second; the sums, made by
a kernel under a secret key, about five. A pseudo-random function of a keyed sum that rarely collides is a secure seal:
whoever does not have the key writes a file that is accepted with a probability of about 2^-64 a try. The key must be
secret and is in no file.
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
    """Makes the seals of one key, of LEAST_KEY_BYTES bytes or more."""

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
            raise InputError(
                f"the key of a live engine is {LEAST_KEY_BYTES} secret bytes or more, such as secrets.token_bytes(32)"
            )
        self.name, self._index_key, self._block_key, self._fold_key = _derived(key)
        """`name` tells keys apart and says nothing of them."""

    def of_index(self, header: bytes, index: bytes) -> bytes:
        """Return the seal of header and index."""
        digest = hashlib.blake2b(len(header).to_bytes(8, "little"), key=self._index_key, digest_size=SEAL_BYTES)
        digest.update(header)
        digest.update(index)
        return digest.digest()

    def of_blocks(self, index_seal: bytes, memory: npt.NDArray[np.uint8], places: Int64s) -> bytes:
        """Return the seal of blocks: int64[n, 2], begin and length in bytes, multiples of 64 within `memory`.

        How many there are and where is in the index, which has its seal.
        """
        words = np.ascontiguousarray(places // 4)
        sums = np.zeros((int(-(-words[:, 1] // CHUNK).sum()), SUMS), np.uint64)
        fold(memory.view(np.uint32), words, self._fold_key, sums)
        digest = hashlib.blake2b(index_seal, key=self._block_key, digest_size=SEAL_BYTES)
        digest.update(sums.data)
        return digest.digest()


@lru_cache(maxsize=4)
def _derived(key: bytes) -> tuple[bytes, bytes, bytes, npt.NDArray[np.uint32]]:
    """Return a name of the key, and independent keys for the parts of a seal."""
    stretched = hashlib.shake_256(b"eddy live" + key).digest(3 * SEAL_BYTES + 4 * KEY_WORDS)
    name, index, block = (stretched[at : at + SEAL_BYTES] for at in range(0, 3 * SEAL_BYTES, SEAL_BYTES))
    return name, index, block, np.frombuffer(stretched, np.uint32, KEY_WORDS, 3 * SEAL_BYTES).copy()
