"""The files of each stream, in the order in which a job takes them. A file keeps its number; the list is durable.

    files/<12 digits>.new   files that one listing of the directories found
    files/<12 digits>.all   all known files up to this number, written at intervals, so that a start reads few lists

A job that runs for months takes millions of files. So a file that was taken long ago leaves the list, and only its path
stays, so that the source does not take the file again. The path is removed as well when the file has been deleted. Long
ago means before the second-last `.all` list, because Spark repeats at most the newest batches.

Each list is a file in the form of `eddy/storage/file_kind.py`, without arrays. Spark's checkpoint stores how many
files of each stream a batch takes, so a repeated batch takes the same files.

One process finds files, the source in Spark; the driver reads the lists. A process that Spark gave up may still write:
a list gets its name only if no other list has the name; otherwise the process fails.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eddy.spark.directories import File
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_name, batch_named
from eddy.storage.durable import make_directories, write_new
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, integer, list_of, row_of, text

NEW, ALL = ".new", ".all"
EVERY = 64
"""Number of lists after which a list of all files is written."""
_KIND = FileKind("list of files", b"eddyfile", 3, StreamingStateError, "FileLog.add()", "go on from")
_FILES = list_of(list_of(row_of(text, integer(0))))
_FORMS = {
    NEW: fields({"number": integer(0), "files": _FILES}),
    ALL: fields({"number": integer(0), "files": _FILES, "first": list_of(integer(0)), "old": list_of(list_of(text))}),
}


class FileLog:
    """The lists below a directory.

    first   per stream, the number of the first file in `files`
    files   per stream, the files from the first one on that were read or added so far
    old     per stream, paths of files before the first one that may still exist
    """

    def __init__(self, directory: Path, streams: int) -> None:
        self._directory = directory
        self._next = 0
        self.first = [0] * streams
        self.files: list[list[File]] = [[] for _ in range(streams)]
        self.old: list[set[str]] = [set() for _ in range(streams)]
        self._before: list[int] | None = None
        """The number of files taken at the newest list of all files, None before the first list of this process."""
        self._gone: list[set[str]] = [set() for _ in range(streams)]
        """The old paths that did not exist then. One listing that misses a file must not make it a new file."""

    @property
    def counts(self) -> list[int]:
        """The number of files of each stream so far."""
        return [first + len(files) for first, files in zip(self.first, self.files, strict=True)]

    def between(self, stream: int, start: int, end: int) -> list[File]:
        """Return the files of a stream from number `start` to before `end`, which `require` has admitted."""
        first = self.first[stream]
        return self.files[stream][start - first : end - first]

    def forget(self, taken: Sequence[int]) -> None:
        """Drop, in this process, the files before some numbers."""
        for i, number in enumerate(taken):
            if number > self.first[i]:
                del self.files[i][: number - self.first[i]]
                self.first[i] = number

    def refresh(self) -> None:
        """Read the lists that were added since. Raises a StreamingStateError that names the file for a damaged list."""
        if not (self._directory / self._name(self._next, NEW)).exists():
            names = os.listdir(self._directory) if self._directory.is_dir() else []
            newest = max((n for name in names if (n := batch_named(name, ALL)) is not None), default=-1)
            if newest >= self._next:
                header = self._read(newest, ALL)
                self.files, self.first = _as_files(header), list(header["first"])
                self.old = [set(paths) for paths in header["old"]]
                self._next = newest + 1
        while (self._directory / self._name(self._next, NEW)).exists():
            for listed, added in zip(self.files, _as_files(self._read(self._next, NEW)), strict=True):
                listed += added
            self._next += 1

    def require(self, counts: Sequence[int]) -> None:
        """Raise StreamingStateError unless the list reaches these numbers, up to which Spark has taken files."""
        listed = self.counts
        if any(count < first for count, first in zip(counts, self.first, strict=True)):
            raise StreamingStateError(
                f"{self._directory}: Spark wants the files from {list(counts)} on, and the job has let those before"
                f" {self.first} go: the directory `spark` of the checkpoint is older than the rest; restore all of it"
                " from one backup, or start with a new checkpoint"
            )
        if any(have < count for have, count in zip(listed, counts, strict=True)):
            raise StreamingStateError(
                f"{self._directory}: it lists {listed} files of the streams, but Spark has taken {list(counts)}: lists"
                " are missing; restore them from a backup, or start with a new checkpoint"
            )

    def add(
        self,
        files: Sequence[Sequence[File]],
        taken: Sequence[int] | None = None,
        there: Sequence[Collection[str]] | None = None,
    ) -> bool:
        """Add files of each stream durably. Raises StreamingStateError if another process has added files.

        Returns whether files or paths may have been dropped.

        taken   per stream, number of files taken by batches that Spark has committed; None = unknown
        there   per stream, the paths that exist; None = unknown
        """
        make_directories(self._directory)
        number = self._next
        self._write(number, NEW, {"files": files})
        self._next += 1
        for listed, added in zip(self.files, files, strict=True):
            listed += added
        if self._next % EVERY == 0:
            if taken is not None and there is not None:
                self._let_go(taken, there)
            with suppress(StreamingStateError):  # a source that Spark gave up has written an equivalent list
                known = {"files": self.files, "first": self.first, "old": [sorted(paths) for paths in self.old]}
                self._write(number, ALL, known)
            # A reader may still read a list of the last round.
            for name in os.listdir(self._directory):
                for kind in (NEW, ALL):
                    old = batch_named(name, kind)
                    if old is not None and old <= number - EVERY:
                        (self._directory / name).unlink(missing_ok=True)
        return self._next % EVERY == 0

    def _let_go(self, taken: Sequence[int], there: Sequence[Collection[str]]) -> None:
        """Drop files that were taken before the previous list, and old paths that have not existed since then."""
        for i, number in enumerate(self._before or ()):
            n = max(0, number - self.first[i])
            self.old[i].update(file.path for file in self.files[i][:n])
            absent = {path for path in self.old[i] if path not in there[i]}
            self.old[i] -= absent & self._gone[i]
            self._gone[i] = absent
        self.forget(self._before or [])
        self._before = list(taken)

    def _name(self, number: int, kind: str) -> str:
        return f"{batch_name(number)}{kind}"

    def _write(self, number: int, kind: str, known: Mapping[str, Any]) -> None:
        path = self._directory / self._name(number, kind)
        try:
            write_new(path, _KIND.pack({"number": number, **known}))
        except FileExistsError as problem:
            raise StreamingStateError(f"{path}: another process runs this job; stop one of the two") from problem

    def _read(self, number: int, kind: str) -> dict[str, Any]:
        path = self._directory / self._name(number, kind)
        try:
            header = _KIND.unpack(path.read_bytes()).whole(_FORMS[kind])
            _KIND.require(header["number"] == number, f"it has number {header['number']}")
            for part in header.keys() - {"number"}:
                _KIND.require(len(header[part]) == len(self.files), f"it is about {len(header[part])} streams")
        except (StreamingStateError, OSError) as problem:
            raise StreamingStateError(
                f"{path}: the order in which files were taken is lost: {problem}; restore the file from a backup, or"
                " start with a new checkpoint"
            ) from problem
        return header


def _as_files(header: Mapping[str, Any]) -> list[list[File]]:
    return [[File(*entry) for entry in entries] for entries in header["files"]]
