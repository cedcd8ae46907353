"""The directories of streams of files, listed by the rules of Spark's own file source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple
from urllib.parse import quote

import pyarrow.fs

_PATTERN = frozenset("*?[")


class File(NamedTuple):
    """A file of a stream: its path in the file system of the stream, and its size."""

    path: str
    bytes: int


@dataclass(frozen=True)
class StreamDirectory:
    """The place of a stream's files, and the limits of a micro-batch.

    path       a directory or a file, with a scheme; its segments may be patterns (`*`, `?`, `[ab]`)
    names      pattern of the names of files, None = all names
    recursive  whether files in subdirectories count
    max_files  maximal number of files per micro-batch, None = no limit
    max_bytes  maximal number of bytes per micro-batch, None = no limit; at least one file is taken
    """

    path: str
    names: str | None = None
    recursive: bool = False
    max_files: int | None = None
    max_bytes: int | None = None

    def file_system(self) -> pyarrow.fs.FileSystem:
        """Return the file system. Raises OSError or ValueError if Arrow has none for the scheme."""
        return _file_system(self._split()[0])[0]

    def new_files(self, seen: Collection[str]) -> list[File]:
        """Return the files whose paths are not in `seen`, ascending by time of modification. O(existing files)."""
        return self.look(seen)[0]

    def look(self, seen: Collection[str]) -> tuple[list[File], set[str]]:
        """Return `new_files`, and the paths of all existing files."""
        base, patterns = self._split()
        system, root = _file_system(base)
        root = root.rstrip("/")
        there = system.get_file_info(root or "/")
        if there.is_file:
            entries, root = [there], root.rpartition("/")[0]
        else:
            deep = self.recursive or bool(patterns)
            entries = system.get_file_info(pyarrow.fs.FileSelector(root or "/", allow_not_found=True, recursive=deep))
        new = [entry for entry in entries if entry.is_file and entry.path not in seen]
        new = [entry for entry in new if self._takes(entry.path[len(root) :].strip("/").split("/"), patterns)]
        files = [File(entry.path, entry.size) for entry in sorted(new, key=lambda entry: (entry.mtime_ns, entry.path))]
        return files, {entry.path for entry in entries}

    def take(self, files: Sequence[File], start: int) -> int:
        """Return the end of a micro-batch that begins with file number `start` of the files."""
        end = len(files) if self.max_files is None else min(len(files), start + self.max_files)
        if self.max_bytes is not None:
            size = 0
            for number in range(start, end):
                size += files[number].bytes
                if size > self.max_bytes and number > start:
                    return number
        return end

    def _split(self) -> tuple[str, list[str]]:
        """Return the path up to the first pattern, and the remaining segments."""
        segments = self.path.split("/")
        first = next((k for k, segment in enumerate(segments) if _PATTERN & set(segment)), len(segments))
        return "/".join(segments[:first]) or "/", segments[first:]

    def _takes(self, below: list[str], patterns: list[str]) -> bool:
        """Return whether a file counts, given its path below the first part of the directory's path."""
        if any(map(_hidden, below)) or (self.names is not None and not fnmatchcase(below[-1], self.names)):
            return False
        # The patterns match the file itself, or the directory of the file.
        deeper = len(below) - len(patterns)
        if deeper < (not patterns) or (deeper > 1 and not self.recursive):
            return False
        return all(map(fnmatchcase, below, patterns))


@cache
def _file_system(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    system, inside = pyarrow.fs.FileSystem.from_uri(as_uri(path))
    return system, inside


def _hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def as_uri(path: str) -> str:
    """Return the address of a file, given its Hadoop path, which has a scheme but no escapes.

    >>> as_uri("file:/a b/100%.parquet"), as_uri("hdfs://host:80/a b")
    ('file:/a%20b/100%25.parquet', 'hdfs://host:80/a%20b')
    """
    scheme, _, rest = path.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:{quote(rest)}"
    host, _, below = rest.removeprefix("//").partition("/")
    return f"{scheme}://{host}/{quote(below)}"
