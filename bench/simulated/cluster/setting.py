"""The options of the engines of a node."""

from __future__ import annotations

from typing import NamedTuple


class EngineSetting(NamedTuple):
    """Options of `eddy.Runtime` for the engines of a node."""

    plan: str
    strategy: str
    policy: str
