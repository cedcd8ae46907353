"""Changes of a directory that a crash leaves done or not done.

A name is in a directory for good once the directory is synced; a file's bytes are once the file is.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in a directory last through a crash of the machine."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, that last. It may be there already."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_directory(one.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, and lasts. A file of this name is replaced."""
    unfinished = path.with_name(f".{path.name}.tmp")
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync_directory(path.parent)
