"""The bytes of snapshots and manifests: a header in JSON and named sections, with a digest over all.

    8 bytes    magic of the kind of file
    uint64     format version
    uint64     length of the file in bytes
    uint64     length of the header in bytes
    header     JSON: the fields of the caller, and "sections": name and length of each section, in order
    sections   each begins at a multiple of 8, zeros between
    16 bytes   BLAKE2b digest of everything before

Numbers are little-endian. The digest has 128 bits because a checksum of 32 bits misses one damage in 4 * 10^9; it takes
about a second a gigabyte. It is no signature: anybody can alter a file and write the right digest. Therefore the
callers validate header and sections as if there were no digest.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eddy.storage.arrays import aligned, digest
from eddy.storage.json_form import Form, FormError, integer, list_of, mapping, parse, row_of, text
from stairs.errors import EddyError, SnapshotError

MAGIC = b"eddysnap"
VERSION = 10
DIGEST_BYTES = 16
_START = struct.Struct("<8sQQQ")


@dataclass(frozen=True)
class FileKind:
    """A kind of file with this layout.

    noun     its name in error messages
    magic    its first 8 bytes
    version  version of the fields of header and sections; any other version is refused
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

    def wrong(self, what: str) -> EddyError:
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
            raise self.wrong(str(problem)) from None


SNAPSHOT = FileKind("snapshot", MAGIC, VERSION, SnapshotError, "Runtime.snapshot()", "restore")


def pack(header: Mapping[str, Any], sections: Mapping[str, memoryview], kind: FileKind = SNAPSHOT) -> bytes:
    """Return header and sections as the bytes of a file. Equal arguments give equal bytes. O(bytes)."""
    listed = [[name, section.nbytes] for name, section in sections.items()]
    text = json.dumps({**header, "sections": listed}, sort_keys=True, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = []
    for part in (memoryview(text), *sections.values()):
        parts += [part, bytes(aligned(part.nbytes, 8) - part.nbytes)]
    total = _START.size + sum(memoryview(part).nbytes for part in parts) + DIGEST_BYTES
    parts.insert(0, _START.pack(kind.magic, kind.version, total, len(text)))
    return b"".join([*parts, digest(*parts, size=DIGEST_BYTES)])


def unpack(data: object, kind: FileKind = SNAPSHOT) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return header and sections of a file; sections are not copied. O(bytes).

    Raises the error of the kind for anything but bytes that `pack` of this version has written.
    """
    noun, magic, error = kind.noun, kind.magic, kind.error
    if not isinstance(data, bytes):
        raise error(f"a {noun} is the bytes that {kind.source} returned, not {type(data).__name__}")
    if not data:
        raise error(f"the {noun} is empty: there are no bytes")
    if data[: len(magic)] != magic[: len(data)]:
        raise error(f"these bytes are not a {noun}: they begin with {data[: len(magic)]!r}, not with {magic!r}")
    if len(data) < _START.size + DIGEST_BYTES:
        raise error(f"the {noun} is cut off: only {len(data)} bytes are left")
    _, version, total, length = _START.unpack_from(data)
    if version != kind.version and version:
        raise error(
            f"the {noun} has format version {version}, this version of the library reads {kind.version}; {kind.use} it"
            f" with the version that wrote it{', or a newer one' if version > kind.version else ''}"
        )
    if len(data) != total:
        what = "is cut off" if len(data) < total else "has bytes after its end"
        raise error(f"the {noun} {what}: its length is {total} bytes by its header, here are {len(data)}")
    view = memoryview(data)
    if digest(view[:-DIGEST_BYTES], size=DIGEST_BYTES) != data[-DIGEST_BYTES:]:
        raise error(f"the {noun} is damaged: its bytes do not match the digest at its end")
    if version != kind.version:
        raise error(f"there is no format version {version} of a {noun}; this one was not written by this library")
    header, names = _header(view[_START.size : -DIGEST_BYTES], length, kind)
    at, end, sections = _START.size + aligned(length, 8), total - DIGEST_BYTES, {}
    for name, size in names:
        sections[name] = view[at : at + size]
        at += aligned(size, 8)
    if at != end or len(sections) != len(names):
        raise kind.wrong("its sections do not fill it, or two sections have the same name")
    return header, sections


def _header(body: memoryview, length: int, kind: FileKind) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """Return the header, and the names and bytes of the sections that it lists."""
    if length > len(body):
        raise kind.wrong(f"its header takes {length} bytes of {len(body)}")
    try:
        header = parse(body[:length])
        mapping(header, "header")
        sections: list[tuple[str, int]] = header.pop("sections", [])
        list_of(row_of(text, integer(0, len(body))))(sections, "header.sections")
    except FormError as problem:
        raise kind.wrong(str(problem)) from None
    return header, sections
