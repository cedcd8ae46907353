"""Directories and files that only their owner can change: how they are made, checked and opened.

Memory that is mapped and compiled code that is loaded must not come from another user of the machine. A directory is
accepted if this user owns it and nobody else may write to it; then nobody else can put a file or a link there, or take
one away. The directory above it may be shared (`/tmp`) if it is sticky: there only the owner of an entry renames it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stairs.errors import InputError

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: Path) -> Path:
    """Return a directory that only this user can write to; make it, and missing parents, with mode 0700.

    Raises InputError if another user owns it or may write to it, OSError if it cannot be made.
    """
    path = path.absolute()
    for one in reversed([path, *path.parents]):
        if not one.is_dir():
            # Two processes may come here at the same time. A file of this name stays, and the check names it.
            try:
                one.mkdir(mode=0o700)
            except FileExistsError:
                continue
    check_directory(path)
    return path


def check_directory(path: Path) -> None:
    """Raise InputError unless only this user can change what lies in a directory.

    The directory must not be a link, this user must own it, and neither its group nor others may write to it. Its
    parent must belong to this user or to root, and be sticky if others may write to it.
    """
    own = os.lstat(path)
    what = f"the directory {path}"
    if not stat.S_ISDIR(own.st_mode):
        raise InputError(f"{path} is no directory; take it away, or name another place")
    if own.st_uid != os.geteuid():
        raise InputError(
            f"{what} belongs to user {own.st_uid}, and this process runs as user {os.geteuid()}: files in it cannot be"
            " trusted; take it away, or name another place"
        )
    if own.st_mode & OTHERS_WRITE:
        raise InputError(
            f"{what} has mode {stat.S_IMODE(own.st_mode):04o}, so other users can change the files in it: empty it,"
            " then run chmod 700 on it, or name another place"
        )
    above = os.stat(path.parent)
    shared = above.st_mode & OTHERS_WRITE and not above.st_mode & stat.S_ISVTX
    if shared or above.st_uid not in (os.geteuid(), 0):
        raise InputError(
            f"{what} lies in {path.parent}, where other users can put another one in its place: the owner is user"
            f" {above.st_uid}, the mode {stat.S_IMODE(above.st_mode):04o}; name another place"
        )


def open_private(path: Path, flags: int) -> int:
    """Open a regular file of this user without following a link, and return its descriptor; O_CREAT makes it 0600.

    Raises InputError for a link, for what is no regular file, and for a file that another user owns or may write to;
    OSError as `os.open` does.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        if path.is_symlink():
            raise InputError(f"{path} is a link, and links are not followed here; take it away") from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is no regular file; take it away")
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_WRITE:
            raise InputError(
                f"{path} belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}, and this"
                f" process runs as user {os.geteuid()}: another user may have written it; take it away"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
