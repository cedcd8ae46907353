"""Durable files with a copy: a file that is damaged is read from its copy, and repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from eddy.spark.errors import StreamingStateError
from eddy.storage.durable import write_whole

T = TypeVar("T")
COPY = "-copy"
"""The ending of the name of a copy that is beside its file."""


def write_twice(path: Path, copy: Path, data: bytes) -> None:
    """Write a file and its copy. The file counts as written once the copy has its name."""
    write_whole(copy, data)
    write_whole(path, data)


@dataclass(frozen=True)
class ReadOutcome(Generic[T]):
    """Outcome of reading a file and its copy.

    value    parsed content; None if neither file is whole
    data     bytes of the content
    repairs  texts on files that were rewritten
    damages  if neither file is whole, a text on the damage of each existing file
    """

    value: T | None
    data: bytes
    repairs: tuple[str, ...]
    damages: tuple[str, ...]


def read_twice(path: Path, copy: Path, parse: Callable[[bytes], T]) -> ReadOutcome[T]:
    """Read a file and its copy, and restore the file that is missing or damaged.

    `parse` raises StreamingStateError for damaged bytes. `read_twice` raises StreamingStateError if both files are
    whole but differ: then one file belongs to another checkpoint.
    """
    first = _read(path, parse)
    # Equal bytes are not parsed twice.
    second = first if _same_bytes(first, copy) else _read(copy, parse)
    if isinstance(first, tuple) and isinstance(second, tuple):
        if first[1] != second[1]:
            raise StreamingStateError(
                f"{path} and its copy {copy} are both whole but differ: one of them belongs to another checkpoint;"
                " remove that one"
            )
        return ReadOutcome(*first, (), ())
    for whole, source, other, target in ((first, path, second, copy), (second, copy, first, path)):
        if isinstance(whole, tuple):
            write_whole(target, whole[1])
            return ReadOutcome(*whole, (f"{target} ({other or 'it is missing'}) was restored from {source}",), ())
    damages = [f"{place}: {damage}" for place, damage in ((path, first), (copy, second)) if isinstance(damage, str)]
    return ReadOutcome(None, b"", (), tuple(damages))


def _read(path: Path, parse: Callable[[bytes], T]) -> tuple[T, bytes] | str | None:
    """Return the value and bytes of a whole file, a text on the damage of a damaged file, None without a file."""
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
