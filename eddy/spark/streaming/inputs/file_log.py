"""The files of each stream, in the order in which a job takes them. The list only grows, and it is durable.

    files/<12 digits>.new   files that one look at the directories found
    files/<12 digits>.all   all files up to this number, now and then, so that a start reads few lists

Each is a file in the form of `eddy/storage/sections.py`, without sections. Spark's checkpoint stores how many files of
each stream a batch takes, so a batch that comes again takes the same files.

One process finds files, the source in Spark; the driver reads. A process that Spark gave up may still write: a list
gets its name only if no other list has it, and then the process fails.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from eddy.spark.directories import File
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.spark.streaming.state.durable import make_directories, write_new
from eddy.storage.json_form import fields, integer, list_of, row_of, text
from eddy.storage.sections import FileKind, pack, unpack

NEW, ALL = ".new", ".all"
EVERY = 64
"""Number of lists after which one is written that contains all."""
_KIND = FileKind("list of files", b"eddyfile", 1, StreamingStateError, "FileLog.add()", "go on from")
_FORM = fields({"number": integer(0), "files": list_of(list_of(row_of(text, integer(0))))})


class FileLog:
    """The lists below a directory.

    files   per stream, the files that were read or added so far
    """

    def __init__(self, directory: Path, streams: int) -> None:
        self._directory = directory
        self._next = 0
        self.files: list[list[File]] = [[] for _ in range(streams)]

    def refresh(self) -> None:
        """Read the lists that were added since. Raises StreamingStateError, which names the file, for a damaged one."""
        if not (self._directory / self._name(self._next, NEW)).exists():
            names = os.listdir(self._directory) if self._directory.is_dir() else []
            newest = max((n for name in names if (n := batch_named(name, ALL)) is not None), default=-1)
            if newest >= self._next:
                self.files = self._read(newest, ALL)
                self._next = newest + 1
        while (self._directory / self._name(self._next, NEW)).exists():
            for own, added in zip(self.files, self._read(self._next, NEW), strict=True):
                own += added
            self._next += 1

    def require(self, counts: Sequence[int]) -> None:
        """Raise StreamingStateError unless the list has this many files of each stream, which Spark has counted."""
        listed = [len(own) for own in self.files]
        if any(have < count for have, count in zip(listed, counts, strict=True)):
            raise StreamingStateError(
                f"{self._directory}: it lists {listed} files of the streams, but Spark has taken {list(counts)}: lists"
                " are missing; restore them from a backup, or start with a new checkpoint"
            )

    def add(self, found: Sequence[Sequence[File]]) -> None:
        """Add files of each stream; they survive a power cut. Raises StreamingStateError if another process did."""
        make_directories(self._directory)
        number = self._next
        self._write(number, NEW, found)
        self._next += 1
        for own, added in zip(self.files, found, strict=True):
            own += added
        if self._next % EVERY == 0:
            with suppress(StreamingStateError):  # a source that Spark gave up wrote the same
                self._write(number, ALL, self.files)
            # A reader may still be at a list of the last round.
            for name in os.listdir(self._directory):
                for kind in (NEW, ALL):
                    old = batch_named(name, kind)
                    if old is not None and old <= number - EVERY:
                        (self._directory / name).unlink(missing_ok=True)

    def _name(self, number: int, kind: str) -> str:
        return f"{batch_name(number)}{kind}"

    def _write(self, number: int, kind: str, files: Sequence[Sequence[File]]) -> None:
        path = self._directory / self._name(number, kind)
        try:
            write_new(path, pack({"number": number, "files": files}, {}, _KIND))
        except FileExistsError as problem:
            raise StreamingStateError(f"{path}: another process runs this job; stop one of the two") from problem

    def _read(self, number: int, kind: str) -> list[list[File]]:
        path = self._directory / self._name(number, kind)
        try:
            header, _ = unpack(path.read_bytes(), _KIND)
            _KIND.check(header, _FORM)
            _KIND.require(header["number"] == number, f"it has number {header['number']}")
            _KIND.require(len(header["files"]) == len(self.files), f"it is about {len(header['files'])} streams")
        except (StreamingStateError, OSError) as problem:
            raise StreamingStateError(
                f"{path}: the order in which files were taken is lost: {problem}; restore the file from a backup, or"
                " start with a new checkpoint"
            ) from problem
        return [[File(*one) for one in own] for own in header["files"]]
