"""Directories and files that only their owner can change: creation, checks and opening.

Mapped memory and loaded code must not come from another user of the machine. A directory is accepted if this user owns
it and nobody else may write to it; then nobody else can create or remove a file or a link in it. The parent directory
may be shared (`/tmp`) if it is sticky: there only the owner of an entry can rename it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stairs.errors import InputError

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: Path) -> Path:
    """Return a directory that only this user can write to; create it, and missing parents, with mode 0700.

    Raises InputError if another user owns it or may write to it, OSError if it cannot be created.
    """
    path = path.absolute()
    for folder in reversed([path, *path.parents]):
        if not folder.is_dir():
            # Another process may create it at the same time. If a file has this name, the check reports it.
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
    check_directory(path)
    return path


def check_directory(path: Path) -> None:
    """Raise InputError unless only this user can change the contents of a directory.

    The directory must not be a link, this user must own it, and neither its group nor others may write to it. Its
    parent must belong to this user or to root, and be sticky if others may write to it.
    """
    info = os.lstat(path)
    what = f"the directory {path}"
    if not stat.S_ISDIR(info.st_mode):
        raise InputError(f"{path} is no directory; remove it, or choose another path")
    if info.st_uid != os.geteuid():
        raise InputError(
            f"{what} belongs to user {info.st_uid}, and this process runs as user {os.geteuid()}: files in it cannot be"
            " trusted; remove it, or choose another path"
        )
    if info.st_mode & OTHERS_WRITE:
        raise InputError(
            f"{what} has mode {stat.S_IMODE(info.st_mode):04o}, so other users can change the files in it: empty it,"
            " then run chmod 700 on it, or choose another path"
        )
    above = os.stat(path.parent)
    shared = above.st_mode & OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
    if shared or above.st_uid not in (os.geteuid(), 0):
        raise InputError(
            f"{what} lies in {path.parent}, where other users can replace it: the owner is user"
            f" {above.st_uid}, the mode {stat.S_IMODE(above.st_mode):04o}; choose another path"
        )


def open_private(path: Path, flags: int) -> int:
    """Open a regular file of this user without following a link, and return its descriptor.

    O_CREAT creates the file with mode 0600. Raises InputError for a link, for anything else that is no regular file,
    and for a file that another user owns or may write to; OSError as `os.open` does.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        if path.is_symlink():
            raise InputError(f"{path} is a link, and links are not followed here; remove it") from None
        raise
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path} is no regular file; remove it")
        if info.st_uid != os.geteuid() or info.st_mode & OTHERS_WRITE:
            raise InputError(
                f"{path} belongs to user {info.st_uid} and has mode {stat.S_IMODE(info.st_mode):04o}, and this"
                f" process runs as user {os.geteuid()}: another user may have written it; remove it"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
