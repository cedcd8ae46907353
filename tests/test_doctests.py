"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("stairs", "jisc", "eddy", "bench")


def modules() -> list[str]:
    found = []
    for package in PACKAGES:
        inside = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        found += [package, *(module.name for module in inside if not module.name.endswith("__main__"))]
    return found


@pytest.mark.parametrize("name", modules())
def test_examples_of_a_module(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 10
