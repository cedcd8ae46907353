"""The log: files of segments. A segment holds rows of one stream and one key group, and never changes.

    8 bytes    MAGIC
    uint64     format version, little-endian
    zeros      up to 64
    segments   each from a multiple of 64 on, zeros between: the body of an Arrow record batch (`RecordBatch.serialize`)

A file has no index. The manifest names every segment of the state, with its position, its rows and its digest. So a
file that no manifest names has no effect, whatever its content is. The reader knows the schema, and identity.json
ensures that the schema stays the same.

A writer appends to a temporary file; `finish` gives the file its name after its bytes are durable. If all readers of a
batch are on one host, `show` gives the name first, and `sync` makes the bytes durable while the rows are joined,
because the rows do not count before the manifest. A reader maps the file into memory and does not copy the rows of a
segment; 64 bytes is Arrow's largest alignment.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa

from eddy.spark.errors import StreamingStateError
from eddy.storage.arrow_bytes import ArrowBytesError, read_batch
from eddy.storage.codec import ALIGNMENT
from eddy.storage.durable import private_opener, sync_directory, temporary_name
from eddy.storage.seal import digest

MAGIC = b"eddyslog"
VERSION = 2
DIGEST_BYTES = 8
_READERS = 16
"""Files that a reader gets at a time."""
_START = struct.Struct("<8sQ")
_HEADER = _START.pack(MAGIC, VERSION).ljust(ALIGNMENT, b"\0")


@dataclass(frozen=True)
class Segment:
    """Location of rows of one stream and one key group.

    file    name in the log's directory
    offset  first byte of the segment, a multiple of 64
    length  number of bytes
    digest  first 8 bytes of the SHA-256 of those bytes, in hex
    group   key group
    stream  position of the stream in the query
    rows    number of rows
    first   least event time in ticks, 0 without event times
    last    greatest event time in ticks, 0 without event times
    splits  number of splits of key groups at the time of writing: the segment has all rows that `group` had then
    """

    file: str
    offset: int
    length: int
    digest: str
    group: int
    stream: int
    rows: int
    first: int
    last: int
    splits: int = 0


Ranges = Callable[[str, Sequence[Segment]], Sequence[bytes] | None]
"""(file, segments in it) -> their bytes; None if there is no such file."""


class SegmentWriter:
    """Writes one file of the log. A context manager that deletes an unfinished file.

    directory  of the log
    name       of the file: the name begins with the batch in 12 digits, which retention reads, and is unique to this
               attempt of this task: two attempts with one name would mix their rows
    keep       puts a durable file, whose final name is given, where other hosts find it; None = they see the directory
    """

    def __init__(self, directory: Path, name: str, keep: Callable[[Path, str], None] | None = None) -> None:
        self._path, self._keep = Path(directory) / name, keep
        self._temporary = self._path.with_name(temporary_name(name))
        self._file: BinaryIO | None = None
        self._at = 0
        self._segments: list[Segment] = []
        self._over = self._named = False

    def add(self, group: int, stream: int, rows: pa.RecordBatch, first: int, last: int, splits: int = 0) -> Segment:
        """Append rows of one stream and one key group; return their location, valid after `finish`. O(bytes)."""
        if self._over:
            raise StreamingStateError(f"{self._path}: the file is finished; write another file")
        if self._file is None:
            self._file = open(self._temporary, "xb", opener=private_opener)  # noqa: SIM115 - open until finish or abort
            self._at = self._file.write(_HEADER)
        body = rows.serialize()
        padding = -self._at % ALIGNMENT
        offset = self._at + padding
        self._file.write(bytes(padding))
        self._file.write(body)
        self._at = offset + body.size
        place = (self._path.name, offset, body.size, digest(body, size=DIGEST_BYTES).hex())
        segment = Segment(*place, group, stream, rows.num_rows, first, last, splits)
        self._segments.append(segment)
        return segment

    def finish(self) -> list[Segment]:
        """Make the file durable, give it its final name, and return its segments; without segments no file is made.

        Raises StreamingStateError if a file of this name exists.
        """
        self._over = True
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._keep is not None:
                self._keep(self._temporary, self._path.name)
            self._name()
            self._close()
        return self._segments

    def show(self) -> list[Segment]:
        """Give the file its final name before it is durable, for processes of this host, and return its segments.

        Raises StreamingStateError if a file of this name exists. Call `sync` afterwards.
        """
        self._over = True
        if self._file is not None:
            self._file.flush()
            self._name()
        return self._segments

    def sync(self) -> None:
        """Make a file durable to which `show` has given its name."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            if self._keep is not None:
                self._keep(self._path, self._path.name)
            self._close()

    def _name(self) -> None:
        if self._path.exists():
            self.abort()
            raise StreamingStateError(
                f"{self._path}: the file exists already; each attempt of a task must use a new name"
            )
        os.rename(self._temporary, self._path)
        self._named = True

    def _close(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        sync_directory(self._path.parent)

    def abort(self) -> None:
        """Delete the unfinished file; do nothing after `finish` or `sync`."""
        self._over = True
        if self._file is not None:
            # After a failed write, `close` would try to write the buffered rest again.
            with suppress(OSError):
                self._file.close()
            self._file = None
            (self._path if self._named else self._temporary).unlink(missing_ok=True)

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without `finish` no manifest can name the segments.
        self.abort()


class SegmentReader:
    """Reads segments, and keeps their files mapped until `close`.

    directory  of the log
    schemas    per stream, the schema of its rows
    ranges     gets segments of a file that this host does not have; None = all files are in the directory
    """

    def __init__(self, directory: Path, schemas: Sequence[pa.Schema], ranges: Ranges | None = None) -> None:
        self._directory, self._ranges = Path(directory), ranges
        self._got: dict[tuple[str, int], pa.Buffer] = {}
        self._schemas = tuple(schemas)
        self._files: dict[str, pa.Buffer] = {}
        self._known: dict[tuple[str, int], pa.RecordBatch] = {}

    def know(self, rows: Mapping[Segment, pa.RecordBatch]) -> None:
        """Take the rows of segments that this process has just written; `read` does not read them from the file."""
        self._known.update({(segment.file, segment.offset): batch for segment, batch in rows.items()})

    def expect(self, segments: Iterable[Segment]) -> None:
        """Get segments that will be read, and whose files this host does not have, together and in parallel."""
        if self._ranges is None:
            return
        wanted: dict[str, list[Segment]] = {}
        for segment in segments:
            place = (segment.file, segment.offset)
            if not (place in self._known or place in self._got or segment.file in self._files):
                wanted.setdefault(segment.file, []).append(segment)
        lacking = [file_segments for file, file_segments in wanted.items() if not (self._directory / file).exists()]
        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(self._get, lacking))

    def _get(self, segments: Sequence[Segment]) -> None:
        """Get segments of one file."""
        assert self._ranges is not None
        whole = [piece for piece in segments if piece.offset >= 0 and piece.length > 0]
        for segment, data in zip(whole, self._ranges(whole[0].file, whole) or (), strict=False):
            self._got[segment.file, segment.offset] = pa.py_buffer(data)

    def read(self, segment: Segment) -> pa.RecordBatch:
        """Return the rows of a segment. The mapped memory lives as long as the rows.

        Reads every byte to verify the digest, and checks that the arrays stay within their buffers. Raises
        StreamingStateError for a file that is missing, truncated, damaged or of another format, and for rows that do
        not match the segment.
        """
        known = self._known.get((segment.file, segment.offset))
        if known is not None:
            return known
        body = self._body(segment)
        if digest(body, size=DIGEST_BYTES).hex() != segment.digest:
            raise self._lost(segment, f"its {segment.length} bytes are damaged: they do not match their digest")
        if not 0 <= segment.stream < len(self._schemas):
            raise self._lost(
                segment, f"it is of stream {segment.stream}, but the query has {len(self._schemas)} streams"
            )
        try:
            rows = read_batch(body, self._schemas[segment.stream])
        except ArrowBytesError as problem:
            raise self._lost(segment, str(problem)) from problem
        if rows.num_rows != segment.rows:
            raise self._lost(segment, f"it has {rows.num_rows} rows, but {segment.rows} were written")
        return rows

    def _body(self, segment: Segment) -> pa.Buffer:
        """Return the bytes of a segment."""
        self.expect([segment])
        got = self._got.pop((segment.file, segment.offset), None)
        if got is not None:
            return got
        data = self._files.get(segment.file)
        if data is None:
            data = self._files[segment.file] = self._open(segment)
        if segment.offset < 0 or segment.length < 0 or segment.offset + segment.length > data.size:
            raise self._lost(
                segment, f"the file is truncated: it has {data.size} bytes, and the segment has {segment.length}"
            )
        return data.slice(segment.offset, segment.length)

    def close(self) -> None:
        """Unmap the files. Rows that were read stay valid."""
        self._files.clear()
        self._got.clear()
        self._known.clear()

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, segment: Segment) -> pa.Buffer:
        path = self._directory / segment.file
        try:
            # An empty file cannot be mapped.
            if not path.stat().st_size:
                raise self._lost(segment, "the file is empty")
            # The mapping lives as long as its buffers. The file is closed, because the number of open files is limited.
            with pa.memory_map(str(path)) as file:
                data = file.read_buffer()
        except FileNotFoundError:
            raise self._lost(segment, "the file is missing") from None
        except OSError as problem:
            raise self._lost(segment, f"the file cannot be read ({problem})") from problem
        begin = data.slice(0, min(data.size, len(_HEADER))).to_pybytes()
        if begin[: len(MAGIC)] != MAGIC:
            raise self._lost(segment, f"the file begins with {begin[: len(MAGIC)]!r}, not with {MAGIC!r}")
        if len(begin) < len(_HEADER):
            raise self._lost(segment, f"the file is truncated after {len(begin)} bytes")
        _, version = _START.unpack_from(begin)
        if version > VERSION:
            raise StreamingStateError(
                f"{path}: the file has format version {version}, and this version of the library reads {VERSION}; run"
                " the job with the version of the library that wrote it, or a newer one"
            )
        if begin != _HEADER:
            raise self._lost(segment, "the beginning of the file is damaged")
        return data

    def _lost(self, segment: Segment, problem: str) -> StreamingStateError:
        return StreamingStateError(
            f"{self._directory / segment.file}, offset {segment.offset} (stream {segment.stream}, key group"
            f" {segment.group}, {segment.rows} rows): {problem}; restore the file from a backup, or start with a new"
            " checkpoint"
        )
