"""Hypothesis profiles: `make test` runs `ci`, which gives the same examples each time; `make soak` runs `long`, which
searches; `few` is for kernels in plain Python, which are slow, and for `make coverage`.

HYPOTHESIS_PROFILE=long python -m pytest tests/eddy
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings

from stairs import seeds

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci", max_examples=80, deadline=None, derandomize=True, print_blob=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "few",
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # no shrinking here: `make test` shrinks the same failure
    suppress_health_check=_SLOW,
)
settings.register_profile("long", max_examples=5000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
# No test depends on chance. Processes that tests start draw their own seeds.
seeds.SOURCE = lambda n: Random(n).randbytes(n)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move slow tests to the front, so that no worker runs a slow test alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
