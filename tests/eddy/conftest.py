"""Shared fixtures of the tests of the runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jisc.strategies import STRATEGIES


@pytest.fixture(params=[name for name, strategy in STRATEGIES.items() if strategy.changes])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["append", "changelog"])
def output(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path() -> Iterator[Path]:
    """Return the path of a live engine, in a directory that is deleted after the test."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "engine"
