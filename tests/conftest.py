"""Hypothesis profiles: `make test` runs `ci`, which gives the same examples each time; `make soak` runs `long`, which
searches; `few` is for kernels in plain Python, which are slow, and for `make coverage`.

HYPOTHESIS_PROFILE=long python -m pytest tests/eddy
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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


FORMS = "short", "long", "all"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--form`."""
    parser.addoption(
        "--form",
        choices=FORMS,
        default="all",
        help="of tests that are campaigns, the few cases of `make test` (short), the others (long), or all of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move slow tests to the front, so that no worker runs a slow test alone at the end, and leave cases out."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    form = config.getoption("form")
    if form == "all":
        return
    markers = [item.get_closest_marker("campaign") for item in items]
    functions = [(item.path, getattr(item, "originalname", item.name)) for item in items]
    few = [None if marker is None else int(marker.args[0]) for marker in markers]
    short = in_short_form(list(zip(functions, few, strict=True)))
    chosen = [(n in short) == (form == "short") for n in range(len(items))]
    config.hook.pytest_deselected(items=[item for item, stays in zip(items, chosen, strict=True) if not stays])
    items[:] = [item for item, stays in zip(items, chosen, strict=True) if stays]


def in_short_form(cases: Sequence[tuple[object, int | None]]) -> set[int]:
    """Return the numbers of the cases of `make test`, given the function of each case and the number of its marker.

    These are the cases that are in no campaign (None), and of each campaign as many as its marker says, evenly spaced.
    """
    campaigns: dict[tuple[object, int], list[int]] = {}
    found = set()
    for n, (function, few) in enumerate(cases):
        if few is None:
            found.add(n)
        else:
            campaigns.setdefault((function, few), []).append(n)
    for (_, few), own in campaigns.items():
        few = min(few, len(own))
        found |= {own[(2 * k + 1) * len(own) // (2 * few)] for k in range(few)}
    return found
