"""Fixtures of all streaming tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Skip `fsync`: no test cuts the power, and a thousand syncs take half a minute. Tests check the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
