"""Files that are there whole or not at all, also after the machine stopped in the middle.

    write_whole   temporary name, fsync, rename, fsync of the directory: afterwards the file survives a power cut
    write_twice   the same for two copies, first the copy and then the file itself
    read_twice    the file, mended from its copy when it is damaged, and the copy mended from the file

Files have mode 0600 and directories 0700, whatever the umask: they hold rows of the user's streams.

A reader therefore never sees a file that is half written by this library; what it finds damaged was damaged later.
Temporary names end in `.tmp` and belong to nobody after a crash.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from eddy.spark.errors import StreamingStateError

T = TypeVar("T")

TEMPORARY = ".tmp"
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Modes of what a checkpoint holds."""
RESULT_FILE, RESULT_DIRECTORY = 0o666, 0o777
"""Modes of what is written for others to read, before the umask."""


def temporary_name(name: str) -> str:
    """Return a name beside `name` that nobody else uses, and that begins like it."""
    return f"{name}.{uuid.uuid4().hex[:12]}{TEMPORARY}"


def final_name(name: str) -> str:
    """Return the name that a file with a temporary name is to get; any other name as it is."""
    return name.removesuffix(TEMPORARY).rpartition(".")[0] if name.endswith(TEMPORARY) else name


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(*directories: Path, mode: int = PRIVATE_DIRECTORY) -> None:
    """Make those that are missing, parents first, so that they survive a power cut."""
    for directory in directories:
        if directory.is_dir():
            continue
        # A file among the parents stays, so that the system says which name is no directory.
        missing = [directory, *(one for one in directory.parents if not one.exists())]
        for one in reversed(missing):
            one.mkdir(exist_ok=True, mode=mode)
            sync_directory(one.parent)


def private_opener(path: str, flags: int) -> int:
    """Open a file as `open(…, opener=private_opener)` does; one that is made is for this user alone."""
    return os.open(path, flags, PRIVATE_FILE)


def write_whole(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a file, over one that is there, so that it is the old one or the new one at each moment."""
    temporary = path.with_name(temporary_name(path.name))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_twice(path: Path, copy: Path, data: bytes) -> None:
    """Write a file and its copy. From the moment on at which the copy is whole, the file counts as written."""
    write_whole(copy, data)
    write_whole(path, data)


@dataclass(frozen=True)
class Found(Generic[T]):
    """What was read of a file and its copy.

    value    what the bytes mean; None when neither is whole
    data     the bytes of it
    mended   what was put right, as text
    damages  when neither is whole: what is wrong with each that is there; empty when none is there
    """

    value: T | None
    data: bytes
    mended: tuple[str, ...]
    damages: tuple[str, ...]


def read_twice(path: Path, copy: Path, parse: Callable[[bytes], T]) -> Found[T]:
    """Read a file and its copy, and put back the one that is missing or damaged.

    `parse` raises StreamingStateError for bytes that are not whole. Raises StreamingStateError itself when both are
    whole and differ: then one is of another checkpoint.
    """
    first = _read(path, parse)
    # The same bytes mean the same; they are not parsed twice.
    second = first if _same_bytes(first, copy) else _read(copy, parse)
    if isinstance(first, tuple) and isinstance(second, tuple):
        if first[1] != second[1]:
            raise StreamingStateError(
                f"{path} and its copy {copy} are both whole, but not the same: one of them is of another checkpoint;"
                " take away the one that does not belong here"
            )
        return Found(*first, (), ())
    for whole, source, other, target in ((first, path, second, copy), (second, copy, first, path)):
        if isinstance(whole, tuple):
            write_whole(target, whole[1])
            return Found(*whole, (f"{target} ({other or 'it is missing'}) was written anew from {source}",), ())
    damages = [f"{place}: {one}" for place, one in ((path, first), (copy, second)) if isinstance(one, str)]
    return Found(None, b"", (), tuple(damages))


def _read(path: Path, parse: Callable[[bytes], T]) -> tuple[T, bytes] | str | None:
    """Return value and bytes of a whole file, what is wrong with a damaged one, None for none."""
    try:
        data = path.read_bytes()
        return parse(data), data
    except FileNotFoundError:
        return None
    except (StreamingStateError, OSError) as problem:
        return str(problem)


def _same_bytes(read: tuple[T, bytes] | str | None, path: Path) -> bool:
    try:
        return isinstance(read, tuple) and path.read_bytes() == read[1]
    except OSError:
        return False
