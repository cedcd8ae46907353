"""Files that are written as a whole: snapshots, manifests, groups, lists of files. Only their headers differ.

    8 bytes    magic of the kind of file
    uint64     format version
    uint64     length of the file in bytes
    uint64     length of the index in bytes
    uint64     number of blocks
    blocks     one after the other (`eddy.storage.codec`), zeros between
    index
    16 bytes   digest of everything before (`eddy.storage.seal`)

Numbers are little-endian. The digest detects damage; anybody can write one, so the readers validate all parts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eddy.storage.codec import ALIGNMENT, PLACE_BYTES, Blocks, Encoded, places_in, values_in
from eddy.storage.durable import write_parts
from eddy.storage.seal import DIGEST_BYTES, digest
from stairs.errors import EddyError, SnapshotError
from stairs.storage.json_form import Form, FormError
from stairs.storage.parts import Parts, Plain

MAGIC = b"eddysnap"
VERSION = 11
_START = struct.Struct("<8sQQQQ")
_VERSION_END = 16
BEGIN = ALIGNMENT
"""Where the blocks begin."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file with this layout.

    noun     its name in error messages
    magic    its first 8 bytes
    version  version of its parts; any other version is refused
    error    the error for invalid bytes
    source   the call that returns such bytes, for error messages
    use      the verb for reading them, for error messages
    """

    noun: str
    magic: bytes
    version: int
    error: type[EddyError]
    source: str
    use: str

    def wrong(self, what: object) -> EddyError:
        """Return the error for a file that has the right digest but was not written by this library."""
        return self.error(f"the {self.noun} contradicts itself: {what}; it was not written by this library")

    def require(self, holds: bool, fault: str) -> None:
        """Raise the error of `wrong` with this fault unless a condition holds."""
        if not holds:
            raise self.wrong(fault)

    def check(self, value: object, form: Form, place: str = "header") -> None:
        """Raise the error of this kind unless a value has its form."""
        try:
            form(value, place)
        except FormError as problem:
            raise self.wrong(problem) from None

    def pack(self, values: Plain) -> bytes:
        """Return plain parts as the bytes of a file. Equal parts give equal bytes. O(bytes)."""
        return b"".join(self._packed(values))

    def write(self, values: Plain, path: Path) -> None:
        """Write plain parts to a file, without all of its bytes in memory. Raises OSError."""
        write_parts(path, self._packed(values))

    def _packed(self, values: Plain) -> list[bytes | memoryview]:
        encoded = Encoded(values)
        sizes = np.array([memory.nbytes for _, memory in encoded.fresh], np.int64)
        room = sizes + -sizes % ALIGNMENT
        ends = BEGIN + np.cumsum(room)
        index = encoded.index(np.column_stack([ends - room, sizes]))
        total = BEGIN + int(room.sum()) + len(index) + DIGEST_BYTES
        start = _START.pack(self.magic, self.version, total, len(index), encoded.count)
        parts: list[bytes | memoryview] = [start.ljust(BEGIN, b"\0")]
        for _, memory in encoded.fresh:
            parts += [memory, bytes(-memory.nbytes % ALIGNMENT)]
        parts.append(index)
        return [*parts, digest(*parts)]

    def unpack(self, data: object) -> Parts:
        """Return the parts of a file. O(bytes).

        Raises the error of the kind for anything but bytes that `pack` of this version has written.
        """
        if not isinstance(data, bytes):
            raise self.error(f"a {self.noun} is the bytes that {self.source} returned, not {type(data).__name__}")
        return self.unpack_view(memoryview(data))

    def unpack_view(self, data: memoryview) -> Parts:
        """Return the parts of bytes that nobody can change, as `unpack` does."""
        noun, magic, error = self.noun, self.magic, self.error
        if not data:
            raise error(f"the {noun} is empty: there are no bytes")
        if data[: len(magic)] != magic[: len(data)]:
            begun = bytes(data[: len(magic)])
            raise error(f"these bytes are not a {noun}: they begin with {begun!r}, not with {magic!r}")
        version = int.from_bytes(data[len(magic) : _VERSION_END], "little")
        if len(data) < _VERSION_END or (version == self.version and len(data) < BEGIN + DIGEST_BYTES):
            raise error(f"the {noun} is cut off: only {len(data)} bytes are left")
        if version != self.version and version:
            raise error(
                f"the {noun} has format version {version}, this version of the library reads {self.version}; {self.use}"
                f" it with the version that wrote it{', or a newer one' if version > self.version else ''}"
            )
        _, _, total, length, blocks = _START.unpack_from(bytes(data[:BEGIN]).ljust(BEGIN, b"\0"))
        if len(data) != total:
            what = "is cut off" if len(data) < total else "has bytes after its end"
            raise error(f"the {noun} {what}: its length is {total} bytes by its header, here are {len(data)}")
        if digest(data[:-DIGEST_BYTES]) != data[-DIGEST_BYTES:]:
            raise error(f"the {noun} is damaged: its bytes do not match the digest at its end")
        if version != self.version:
            raise error(f"there is no format version {version} of a {noun}; this one was not written by this library")
        end = total - DIGEST_BYTES - length
        if end < BEGIN or blocks * PLACE_BYTES > length:
            raise self.wrong(f"its index takes {length} bytes of {total}, for {blocks} blocks")
        index = data[end : total - DIGEST_BYTES]
        try:
            places, values = places_in(index, blocks, BEGIN, end), values_in(index, blocks)
        except FormError as problem:
            raise self.wrong(problem) from None
        return Parts(values, Blocks(data, places), "", self.wrong)


SNAPSHOT = FileKind("snapshot", MAGIC, VERSION, SnapshotError, "Runtime.snapshot()", "restore")
