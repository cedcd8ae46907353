"""The options of the engines of a node."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """Options of `eddy.Runtime` for the engines of a node."""

    plan: str
    strategy: str
    policy: str
