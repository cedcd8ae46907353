"""Paths of mounted file systems."""

from __future__ import annotations

import os
import re
from pathlib import Path

from eddy.spark.errors import SparkJoinError

GLOB = set("*?[]{}\\")
"""Characters that Spark reads as parts of a pattern."""


def local_path(path: str | os.PathLike[str], argument: str) -> Path:
    """Return an absolute path. Raises SparkJoinError for a path that is not on a mounted file system.

    argument   name of the path in messages
    """
    text = os.fspath(path)
    if text.startswith("file:/"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    if "://" in text or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) or not text:
        raise SparkJoinError(
            f"{argument}: {text!r} is not a path of a mounted file system; give a local or a shared directory that the"
            " driver and all workers reach under the same path"
        )
    if strange := sorted(GLOB.intersection(text)):
        raise SparkJoinError(f"{argument}: Spark reads {strange[0]!r} in {text} as a pattern; give a path without it")
    return Path(text).absolute()
