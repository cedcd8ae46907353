"""Working directories: where a host keeps the files of a checkpoint that is in an object store. They are disposable."""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from eddy.spark.streaming.state.batch_names import batch_named, batch_of
from eddy.storage.durable import TEMPORARY
from stairs.storage.private import private_directory

_LOCK = "working-directory"
_ALIVE: list[int] = []
"""Locked files of the working directories of this process; the locks end with the process."""


def working_directory(scratch: Path, state: str) -> Path:
    """Return a new private directory, which is deleted at the end of this process, or by a later one.

    scratch   directory of this user on the host
    state     name of the checkpoint; directories of ended processes with this name are deleted
    """
    parent = private_directory(scratch)
    for other in parent.glob(f"{state}-*"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > 10 and _is_free(other / _LOCK):
                shutil.rmtree(other, ignore_errors=True)
    root = private_directory(parent / f"{state}-{secrets.token_hex(6)}")
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _ALIVE.append(descriptor)
    atexit.register(_remove, root, os.getpid())
    return root


def _remove(root: Path, pid: int) -> None:
    """Delete a directory at the end of the process that made it, and not at that of a forked one."""
    if os.getpid() == pid:
        shutil.rmtree(root, ignore_errors=True)


def is_held(root: Path) -> bool:
    """Return whether a process of this host uses a working directory as its driver."""
    return (root / _LOCK).exists() and not _is_free(root / _LOCK)


def is_working(path: Path) -> bool:
    """Return whether a file lies in a working directory, which only this host sees."""
    return any((parent / _LOCK).exists() for parent in path.parents)


def _is_free(path: Path) -> bool:
    """Return whether no process of this host holds a working directory."""
    if not path.exists():
        return False  # of a driver on another host, which deletes it after a week without use
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def forget_old(root: Path, before: int) -> None:
    """Delete the files of batches before this one, which are objects as well, in the working directory of a host."""
    for path in (*root.glob("log/*"), *root.glob("late/*")):
        batch = batch_of(path.name)
        if batch is not None and batch < before and not path.name.endswith(TEMPORARY):
            path.unlink(missing_ok=True)
    for place in root.glob("**/staging"):
        for path in place.iterdir():
            batch = batch_named(path.name)
            if batch is not None and batch < before:
                shutil.rmtree(path, ignore_errors=True)
