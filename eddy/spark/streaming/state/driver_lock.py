"""The lock of a checkpoint: one driver runs a job at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from eddy.spark.errors import StreamingStateError
from eddy.storage.durable import PRIVATE_FILE
from stairs.storage.json_form import FormError, fields, integer, parse, text


class DriverLock:
    """An exclusive lock on a checkpoint. The lock ends with the process that holds it.

    root   directory of the checkpoint
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Lock the checkpoint for this process until `release` or the end of the process; idempotent.

        Raises a StreamingStateError that names the holder. A forked child process holds the lock as well.
        """
        if self._descriptor is not None:
            return
        path = self._root / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise StreamingStateError(
                f"{self._root} is in use by {holder}: only one driver can run a checkpoint at a time; stop that driver,"
                " or give this job a checkpoint of its own"
            ) from None
        except OSError as problem:
            os.close(descriptor)
            raise StreamingStateError(
                f"{path} cannot be locked ({problem}); put the checkpoint on a file system that supports locks"
            ) from problem
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Unlock the checkpoint; without effect if it is not locked."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(written: bytes) -> str:
    """Return the name of the process that wrote the content of a lock file."""
    try:
        content = parse(written)
        fields({"pid": integer(0), "host": text})(content, "lock")
        return f"process {content['pid']} on {content['host']}"
    except FormError:
        return "another process, which has not written its name yet"
