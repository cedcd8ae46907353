"""Durable files: each exists as a whole or not at all, even after a power cut in the middle of a write.

    write_whole   temporary name, fsync, rename, fsync of the directory: afterwards the file survives a power cut
    write_new     the same for a file that must not exist

Files have mode 0600 and directories 0700, whatever the umask is, because they contain rows of the user's streams.

So a reader never sees a partly written file; any damage in a file happened after the write. Temporary names end in
`.tmp`, and after a crash no process uses these files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

WRITERS = 8
"""Threads that wait for the disk side by side: a file system makes durable together what they wrote."""
TEMPORARY = ".tmp"
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Modes of files and directories of a checkpoint."""
RESULT_FILE, RESULT_DIRECTORY = 0o666, 0o777
"""Modes of published results, before the umask: other users may read them."""


def temporary_name(name: str) -> str:
    """Return a new unique name that begins with `name`."""
    return f"{name}.{uuid.uuid4().hex[:12]}{TEMPORARY}"


def final_name(name: str) -> str:
    """Return the final name of a temporary file; return any other name unchanged."""
    return name.removesuffix(TEMPORARY).rpartition(".")[0] if name.endswith(TEMPORARY) else name


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut (fsync)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(*directories: Path, mode: int = PRIVATE_DIRECTORY) -> None:
    """Create missing directories, parents first, so that they survive a power cut."""
    for directory in directories:
        if directory.is_dir():
            continue
        # A parent that is a file is not replaced, so that the error of the system names it.
        missing = [directory, *(parent for parent in directory.parents if not parent.exists())]
        for path in reversed(missing):
            path.mkdir(exist_ok=True, mode=mode)
            sync_directory(path.parent)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=private_opener)`; only this user may read a file that it creates."""
    return os.open(path, flags, PRIVATE_FILE)


def write_whole(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a file atomically: at each moment readers see the old content or the new content."""
    write_parts(path, [data], mode)


def write_parts(path: Path, parts: Iterable[bytes | memoryview], mode: int = PRIVATE_FILE) -> None:
    """Write the parts of a file one after the other, as `write_whole` does."""
    _write(path, parts, mode, os.replace)


def write_new(path: Path, data: bytes) -> None:
    """Write a file atomically. Raises FileExistsError if the file exists."""
    _write(path, [data], PRIVATE_FILE, _name_new)


def _name_new(temporary: Path, path: Path) -> None:
    os.link(temporary, path)
    os.unlink(temporary)


def _write(path: Path, parts: Iterable[bytes | memoryview], mode: int, name: Callable[[Path, Path], None]) -> None:
    temporary = path.with_name(temporary_name(path.name))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
