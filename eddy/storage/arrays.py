"""Arrays as ranges of bytes, and arrays read from such a range in place: the part that all formats share.

    snapshot, manifest   sections of one bytes object                                   `eddy.storage.sections`
    live engine          blocks of a mapped file, which stay where they are             `eddy.live.file`
    log of a job         record batches, each in a segment of a mapped file             `eddy.spark.…state.segments`

A range holds one array of fixed-width numbers, little-endian and C-contiguous, without its dtype and shape: the reader
states both, and the size of the range must fit them. Columns of a record batch are in `eddy.storage.arrow_bytes`.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ALIGNMENT = 64
"""Arrays that are used where they lie in a file begin at multiples of it, the widest alignment that Arrow asks for."""


class Block(NamedTuple):
    """A range of a file, in bytes."""

    start: int
    size: int


class ArrayBytesError(ValueError):
    """A range of bytes is not an array of the dtype and shape asked for."""


def aligned(n: int, to: int = ALIGNMENT) -> int:
    """Return the first multiple of `to` that is not below n."""
    return -(-n // to) * to


def digest(*parts: bytes | memoryview | pa.Buffer, size: int = 16) -> bytes:
    """Return the unkeyed BLAKE2b digest of some parts, one after the other; it detects damage and no forgery."""
    found = hashlib.blake2b(digest_size=size)
    for part in parts:
        found.update(part)
    return found.digest()


def number_bytes(numbers: npt.NDArray[Any], dtype: npt.DTypeLike) -> memoryview:
    """Return numbers as the bytes of an array of this dtype. No copy if they are one."""
    return np.ascontiguousarray(numbers, dtype).reshape(-1).view(np.uint8).data


def numbers_in(memory: memoryview, dtype: npt.DTypeLike, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    """Return the array that a range holds, in place; `shape` None = one dimension, as long as the range.

    Raises ArrayBytesError for a range of another size.
    """
    kind = np.dtype(dtype)
    if shape is None:
        shape = (memory.nbytes // kind.itemsize,)
    if memory.nbytes != math.prod(shape) * kind.itemsize:
        raise ArrayBytesError(f"{memory.nbytes} bytes are no array of {kind} and shape {shape}")
    return np.ndarray(shape, kind, memory)
