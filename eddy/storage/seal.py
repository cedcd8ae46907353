"""The seal of a file: SHA-256 of its bytes where it detects damage, HMAC-SHA-256 where it also detects forgery.

    digest       of files that anybody may read and write: snapshots, manifests, segments of the log
    index seal   HMAC of the header and the index of a mapped file; checked before anything in the index is read
    block seal   HMAC of the index seal and all blocks

Python computes them with OpenSSL. SHA-256 is the fastest hash of the standard library where processors have
instructions for it, as those of servers do: 1.8 GB a second and core, where BLAKE2b reads 0.95. A digest is no
signature: anybody can alter a file and write the right digest. Therefore readers validate what they read as if there
were none. The key of the other seals must be secret and is in no file.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.errors import InputError
from stairs.memory.arena import Int64s

SEAL_BYTES = 32
DIGEST_BYTES = 16
"""Bytes of a digest at the end of a file. A checksum of 32 bits would miss one damage in 4 * 10^9."""
LEAST_KEY_BYTES = 16


def digest(*parts: bytes | memoryview | pa.Buffer, size: int = DIGEST_BYTES) -> bytes:
    """Return the first bytes of the SHA-256 of some parts, one after the other."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.digest()[:size]


class Seal:
    """The seals under one key of LEAST_KEY_BYTES bytes or more."""

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
            raise InputError(
                f"the key of a live engine has {LEAST_KEY_BYTES} secret bytes or more, such as secrets.token_bytes(32)"
            )
        self.name, self._index_key, self._block_key = _derived(key)
        """`name` identifies the key and reveals nothing about it."""

    def of_index(self, header: bytes, index: bytes) -> bytes:
        """Return the seal of a header and an index."""
        return hmac.digest(self._index_key, len(header).to_bytes(8, "little") + header + index, "sha256")

    def of_blocks(self, index_seal: bytes, memory: npt.NDArray[np.uint8], places: Int64s) -> bytes:
        """Return the seal of blocks; `places` int64[n, 2] has start and length in bytes. O(bytes).

        The index seal covers their number and places.
        """
        code = hmac.new(self._block_key, index_seal, "sha256")
        for start, size in places.tolist():
            code.update(memory[start : start + size].data)
        return code.digest()


@lru_cache(maxsize=4)
def _derived(key: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the name of a key, and independent keys for the two seals."""
    stretched = hashlib.shake_256(b"eddy live" + key).digest(3 * SEAL_BYTES)
    name, index, block = (stretched[at : at + SEAL_BYTES] for at in range(0, 3 * SEAL_BYTES, SEAL_BYTES))
    return name, index, block
