"""A stand-in until live engines are kept: no file is ever held, so every engine is loaded from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eddy.query import Query
from eddy.runtime import Runtime


class Arena:
    """One file, one engine."""

    held = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def wake(self, token: bytes, query: Query) -> Runtime | None:
        """Return nothing."""
        return None

    def keep(self, runtime: Runtime, token: bytes) -> None:
        """Do nothing."""
