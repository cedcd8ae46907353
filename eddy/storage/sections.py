"""The bytes of a snapshot, and of files like it: a header in JSON and named sections, whole and undamaged or refused.

    8 bytes    magic, of the kind of file
    uint64     format version
    uint64     bytes in all
    uint64     bytes of the header
    header     JSON: what the caller gives, and under "sections" name and bytes of each, in order
    sections   each from a multiple of 8 on, zeros between
    16 bytes   BLAKE2b of everything before

Numbers are little-endian. BLAKE2b at 128 bits, because a checksum of 32 bits lets one damage in four thousand million
pass, and a hash of this width none that comes by chance; it takes a second a gigabyte. It is no signature: whoever
changes a snapshot on purpose can write the right digest. So whoever reads header and sections validates them as if
there were none.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eddy.storage.json_form import Form, FormError, integer, list_of, mapping, parse, row_of, text
from stairs.errors import EddyError, SnapshotError

MAGIC = b"eddysnap"
VERSION = 3
DIGEST_BYTES = 16
_START = struct.Struct("<8sQQQ")


@dataclass(frozen=True)
class FileKind:
    """A kind of file in this form.

    noun     what messages call it
    magic    its first 8 bytes
    version  of what the header and the sections say; another one is refused
    error    what is raised for bytes that are none
    source   what gives such bytes
    use      what one does with them
    """

    noun: str
    magic: bytes
    version: int
    error: type[EddyError]
    source: str
    use: str

    def wrong(self, what: str) -> EddyError:
        """Return the error for a file with the right digest that this library cannot have written."""
        return self.error(f"the {self.noun} contradicts itself: {what}; it was not written by this library")

    def check(self, value: object, form: Form, place: str = "header") -> None:
        """Raise the error of this kind unless a value that was read has its form."""
        try:
            form(value, place)
        except FormError as problem:
            raise self.wrong(str(problem)) from None


SNAPSHOT = FileKind("snapshot", MAGIC, VERSION, SnapshotError, "Runtime.snapshot()", "restore")


def _padding(length: int) -> int:
    return -length % 8


def pack(header: Mapping[str, Any], sections: Mapping[str, memoryview], kind: FileKind = SNAPSHOT) -> bytes:
    """Return header and sections as the bytes of a file; equal ones give equal bytes. O(bytes)."""
    listed = [[name, section.nbytes] for name, section in sections.items()]
    text = json.dumps({**header, "sections": listed}, sort_keys=True, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [text, bytes(_padding(len(text)))]
    for section in sections.values():
        parts += [section, bytes(_padding(section.nbytes))]
    total = _START.size + sum(memoryview(part).nbytes for part in parts) + DIGEST_BYTES
    parts.insert(0, _START.pack(kind.magic, kind.version, total, len(text)))
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def unpack(data: object, kind: FileKind = SNAPSHOT) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return header and sections of a file, sections without a copy.

    Raises the error of its kind for anything but bytes that `pack` of this version has written. O(bytes).
    """
    noun, magic, error = kind.noun, kind.magic, kind.error
    if not isinstance(data, bytes):
        raise error(f"a {noun} is the bytes that {kind.source} gave, not {type(data).__name__}")
    if not data:
        raise error(f"the {noun} is empty: no bytes were given")
    if data[: len(magic)] != magic[: len(data)]:
        raise error(f"these bytes are no {noun}: they begin with {data[: len(magic)]!r}, not with {magic!r}")
    if len(data) < _START.size + DIGEST_BYTES:
        raise error(f"the {noun} is cut off: {len(data)} bytes are left of it")
    _, version, total, length = _START.unpack_from(data)
    if version != kind.version and version:
        raise error(
            f"the {noun} has format version {version}, this version of the library reads {kind.version}; {kind.use} it"
            f" with the version that wrote it{', or a newer one' if version > kind.version else ''}"
        )
    if len(data) != total:
        what = "is cut off" if len(data) < total else "has something behind its end"
        raise error(f"the {noun} {what}: it says {total} bytes, here are {len(data)}")
    view = memoryview(data)
    if hashlib.blake2b(view[:-DIGEST_BYTES], digest_size=DIGEST_BYTES).digest() != data[-DIGEST_BYTES:]:
        raise error(f"the {noun} is damaged: its bytes do not have the digest at its end")
    if version != kind.version:
        raise error(f"there is no format version {version} of {noun}s; this one was not written by this library")
    header, names = _header(view[_START.size : -DIGEST_BYTES], length, kind)
    at, end, sections = _START.size + length + _padding(length), total - DIGEST_BYTES, {}
    for name, size in names:
        sections[name] = view[at : at + size]
        at += size + _padding(size)
    if at != end or len(sections) != len(names):
        raise kind.wrong("its sections do not fill it, or two have one name")
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
