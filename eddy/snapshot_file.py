"""The bytes of a snapshot: a header in JSON and named sections, whole and undamaged or refused.

    8 bytes    MAGIC
    uint64     format version
    uint64     bytes in all
    uint64     bytes of the header
    header     JSON: what the caller gives, and under "sections" name and bytes of each, in order
    sections   each from a multiple of 8 on, zeros between
    16 bytes   BLAKE2b of everything before

Numbers are little-endian. BLAKE2b at 128 bits, because a checksum of 32 bits lets one damage in four thousand million
pass, and a hash of this width none that comes by chance; it takes a second a gigabyte. It is no signature: whoever
changes a snapshot on purpose can write the right digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from stairs.errors import SnapshotError

MAGIC = b"eddysnap"
VERSION = 2
DIGEST_BYTES = 16
_START = struct.Struct("<8sQQQ")


def _padding(length: int) -> int:
    return -length % 8


def pack(header: Mapping[str, Any], sections: Mapping[str, memoryview]) -> bytes:
    """Return header and sections as the bytes of a snapshot; equal ones give equal bytes. O(bytes)."""
    listed = [[name, section.nbytes] for name, section in sections.items()]
    text = json.dumps({**header, "sections": listed}, sort_keys=True, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [text, bytes(_padding(len(text)))]
    for section in sections.values():
        parts += [section, bytes(_padding(section.nbytes))]
    total = _START.size + sum(memoryview(part).nbytes for part in parts) + DIGEST_BYTES
    parts.insert(0, _START.pack(MAGIC, VERSION, total, len(text)))
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def unpack(data: object) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return header and sections of a snapshot, sections without a copy.

    Raises SnapshotError for anything but bytes that `pack` of this version has written. O(bytes).
    """
    if not isinstance(data, bytes):
        raise SnapshotError(f"a snapshot is the bytes that Runtime.snapshot() gave, not {type(data).__name__}")
    if not data:
        raise SnapshotError("the snapshot is empty: no bytes were given")
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise SnapshotError(f"these bytes are no snapshot: they begin with {data[: len(MAGIC)]!r}, not with {MAGIC!r}")
    if len(data) < _START.size + DIGEST_BYTES:
        raise SnapshotError(f"the snapshot is cut off: {len(data)} bytes are left of it")
    _, version, total, length = _START.unpack_from(data)
    if version != VERSION and version:
        raise SnapshotError(
            f"the snapshot has format version {version}, this version of the library reads {VERSION}; restore it with"
            f" the version that wrote it{', or a newer one' if version > VERSION else ''}"
        )
    if len(data) != total:
        what = "is cut off" if len(data) < total else "has something behind its end"
        raise SnapshotError(f"the snapshot {what}: it says {total} bytes, here are {len(data)}")
    view = memoryview(data)
    if hashlib.blake2b(view[:-DIGEST_BYTES], digest_size=DIGEST_BYTES).digest() != data[-DIGEST_BYTES:]:
        raise SnapshotError("the snapshot is damaged: its bytes do not have the digest at its end")
    if version != VERSION:
        raise SnapshotError(
            f"there is no format version {version} of snapshots; this one was not written by this library"
        )
    header = json.loads(data[_START.size : _START.size + length])
    at, sections = _START.size + length + _padding(length), {}
    for name, size in header["sections"]:
        sections[name] = view[at : at + size]
        at += size + _padding(size)
    return header, sections
