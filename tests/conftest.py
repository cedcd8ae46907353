"""Hypothesis profiles: `make test` runs `ci`, which gives the same examples each time; `make soak` runs `long`, which
searches; `few` is for kernels in plain Python, which are slow, and for `make coverage`.

HYPOTHESIS_PROFILE=long python -m pytest tests/eddy
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import none

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
    """Add `--form` and `--share`."""
    parser.addoption(
        "--form",
        choices=FORMS,
        default="all",
        help="of campaigns, the few cases of `make test` (short), those of `make campaigns` (long), or all cases",
    )
    parser.addoption(
        "--share",
        type=share_of,
        default=(0, 1),
        metavar="K/N",
        help="every N-th of these cases, from case K on, so that N runs with K = 0 … N - 1 run all of them once",
    )


def pytest_collection_finish() -> None:
    """Take what is there before the first test, modules and thousands of tests, out of the sight of the collector."""
    # Old versions of Hypothesis ask the collector who has the random number generator that their first run makes.
    given(none())(settings(max_examples=1, database=None)(lambda nothing: None))()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move slow tests to the front, so that no worker runs a slow test alone at the end, and leave cases out."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    form, (first, step) = config.getoption("form"), config.getoption("share")
    if form == "all":
        keep(config, items, set(range(first, len(items), step)))
        return
    markers = [item.get_closest_marker("campaign") for item in items]
    functions = [(item.path, getattr(item, "originalname", item.name)) for item in items]
    sizes: list[tuple[int, int] | None] = [
        None if marker is None else (int(marker.args[0]), int((*marker.args, len(items))[1])) for marker in markers
    ]
    short, long = forms_of(list(zip(functions, sizes, strict=True)))
    keep(config, items, set(sorted(short if form == "short" else long)[first::step]))


def keep(config: pytest.Config, items: list[pytest.Item], chosen: set[int]) -> None:
    """Leave out all tests but those of these numbers, and tell pytest so."""
    config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n not in chosen])
    items[:] = [item for n, item in enumerate(items) if n in chosen]


def share_of(text: str) -> tuple[int, int]:
    """Return K and N of the text "K/N". Raises ArgumentTypeError unless 0 <= K < N."""
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or int(parts[0]) >= int(parts[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 0/3: a number below N, then N")
    return int(parts[0]), int(parts[1])


def forms_of(cases: Sequence[tuple[object, tuple[int, int] | None]]) -> tuple[set[int], set[int]]:
    """Return the numbers of the cases of `make test` and of `make campaigns`, which share none.

    cases   the function of each case, and the arguments of its marker: how many cases each of the two runs at most

    `make test` runs all cases that are in no campaign (None). Of a campaign both run evenly spaced cases.
    """
    campaigns: dict[tuple[object, tuple[int, int]], list[int]] = {}
    short, long = set(), set()
    for n, (function, sizes) in enumerate(cases):
        if sizes is None:
            short.add(n)
        else:
            campaigns.setdefault((function, sizes), []).append(n)
    for (_, (few, most)), numbers in campaigns.items():
        first = _spaced(numbers, few)
        short |= first
        long |= _spaced([n for n in numbers if n not in first], most)
    return short, long


def _spaced(cases: Sequence[int], many: int) -> set[int]:
    many = min(many, len(cases))
    return {cases[(2 * k + 1) * len(cases) // (2 * many)] for k in range(many)}
