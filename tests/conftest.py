"""Hypothesis profiles: `ci` is what `make test` runs and gives the same examples each time; `long` searches;
`jit_off` is the few that plain Python kernels have time for.

HYPOTHESIS_PROFILE=long python -m pytest tests/eddy
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci", max_examples=120, deadline=None, derandomize=True, print_blob=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "jit_off",
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # not the place to shrink: the test with the JIT on will
    suppress_health_check=_SLOW,
)
settings.register_profile("long", max_examples=5000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker is still at it when the others have nothing left to do."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
