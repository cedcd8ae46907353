"""Checks Spark's own files in a checkpoint before Spark reads them.

Spark stores planned batches (`offsets/`), complete batches (`commits/`), the id of the query (`metadata`) and the lists
of file sources (`sources/`) as short texts: a line with the version, then a line of JSON per entry. Next to each file
is a file of checksums of Hadoop's file system. For a damaged file Spark fails in the thread of the query, with an error
that names neither the file nor a remedy.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from eddy.spark.errors import StreamingStateError

_SUMS = struct.Struct(">4sI")
_MAGIC = b"crc\0"


def check_spark_files(spark: Path) -> None:
    """Raise StreamingStateError, which names the file, if Spark could not resume from its files. O(bytes read)."""
    for path in read_at_start(spark):
        problem = _damage(path)
        if problem is None:
            continue
        remedy = "restore it from a backup, or start with a new checkpoint"
        if path.parent.name == "commits":
            remedy = (
                f"delete it and {_sums_of(path).name} next to it: Spark then replays batch {path.name}, which the join"
                " recognises"
            )
        raise StreamingStateError(f"{path}: this file of Spark is damaged: {problem}; {remedy}")


def read_at_start(spark: Path) -> Iterator[Path]:
    """Yield the files that Spark reads at a start: the newest batches of its logs, and all lists of file sources."""
    metadata = spark / "metadata"
    if metadata.exists():
        yield metadata
    for log, newest in (("offsets", 2), ("commits", 1)):
        yield from _batches(spark / log)[-newest:]
    for source in sorted((spark / "sources").glob("*")):
        yield from _batches(source)


def _batches(log: Path) -> list[Path]:
    """Return the files of a log, oldest first; in a compacted log, from the newest compaction on."""
    named = {}
    for path in log.glob("*"):
        number = path.name.removesuffix(".compact")
        if number.isascii() and number.isdigit():
            named[int(number)] = path
    paths = [named[number] for number in sorted(named)]
    compact = [k for k, path in enumerate(paths) if path.suffix == ".compact"]
    return paths[compact[-1] :] if compact else paths


def _damage(path: Path) -> str | None:
    """Return a text on the damage of a file, None if the file is whole."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        return f"it cannot be read ({problem})"
    if not data:
        return "it is empty"
    if not _matches(data, _sums_of(path)):
        return f"its {len(data)} bytes do not match the checksum in {_sums_of(path).name}"
    try:
        lines = data.decode().splitlines()
        if path.name == "metadata":
            json.loads(data)
            return None
        if not re.fullmatch(r"v\d+", lines[0]):
            return f"it begins with {lines[0][:20]!r}, not with the version of its format"
        if path.parent.name in ("offsets", "commits"):
            if len(lines) == 1:
                return "it is truncated after its first line"
            json.loads(lines[1])  # further lines are written by the sources
    except ValueError as problem:
        return f"it cannot be parsed ({problem})"
    return None


def _sums_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _matches(data: bytes, sums: Path) -> bool:
    """Return whether a file matches its checksums, one CRC-32 per block; true without checksums."""
    try:
        kept = sums.read_bytes()
    except OSError:
        return True
    if len(kept) < _SUMS.size or (header := _SUMS.unpack_from(kept))[0] != _MAGIC or not header[1]:
        return True
    taken = (zlib.crc32(data[low : low + header[1]]) for low in range(0, len(data), header[1]))
    return b"".join(struct.pack(">I", checksum) for checksum in taken) == kept[_SUMS.size :]
