"""The check of the state modules is safe on arbitrary arrays, and kernels are safe on arrays that pass it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from stairs.descriptors import M_CHANGELOG
from stairs.errors import StateError
from stairs.kernels.byte_strings import BytesArena
from stairs.modules import Modules
from tests.stairs.driver import PlanDriver
from tests.stairs.test_modules import GRAPHS, arrivals

HOSTILE = (0, 1, -1, -2, 7, 64, 1000, (1 << 31) - 1, -(1 << 31), 1 << 40, 1 << 61, (1 << 63) - 1, -(1 << 63))


def filled(graph: str) -> PlanDriver:
    """Return modules in which tuples left the windows, keys died, and rings wrapped around."""
    driver = PlanDriver(GRAPHS[graph])
    for n in range(3):
        driver.push(arrivals(driver.graph, seed=n, count=60, kinds=6, drift=5, start=60 * n))
    driver.modules.check()
    return driver


def arrays(modules: Modules) -> list[np.ndarray]:
    """Return all arrays of the modules, including those of strings."""
    return [
        array for arena in (modules.arena, *(strings.arena for strings in modules.texts.values())) for array in arena
    ]


@given(st.sampled_from(sorted(GRAPHS)), st.integers(0, 1 << 32))
def test_a_spoiled_number_is_found_or_harmless(graph: str, seed: int) -> None:
    rng = random.Random(seed)
    driver = filled(graph)
    for _ in range(rng.choice((1, 1, 2, 5))):
        array = rng.choice([candidate for candidate in arrays(driver.modules) if candidate.size]).reshape(-1)
        at = rng.randrange(min(array.size, rng.choice((30, 1 << 20))))
        number = rng.choice((*HOSTILE, int(array[at]) + 1, int(array[at]) - 1, int(array[rng.randrange(array.size)])))
        bits = 8 * array.itemsize
        array[at] = np.array([number % (1 << bits)], np.uint64).astype(f"u{array.itemsize}").view(array.dtype)[0]
    try:
        driver.modules.check()
    except StateError:
        event("found")
        return
    event("harmless")
    if driver.modules.meta[M_CHANGELOG]:
        # The driver's routes have no room for signs.
        return
    for n in range(3, 6):
        driver.push(arrivals(driver.graph, seed=n, count=60, kinds=6, drift=5, start=60 * n))
        driver.modules.check()


@pytest.mark.parametrize("name", ["recs", "heads", "words", "table", "freed"])
def test_arrays_of_other_sizes_and_types_are_found(name: str) -> None:
    changes = (lambda array: array[:-1], lambda array: array.astype(np.float64), lambda array: array.reshape(-1, 2))
    for change in changes:
        modules = filled("chain").modules
        getattr(modules, name).array = change(getattr(modules, name).array)
        modules._install()
        with pytest.raises(StateError, match=f"^{name}: "):
            modules.check()


@pytest.mark.parametrize("name", BytesArena._fields)
def test_strings_of_other_sizes_and_types_are_found(name: str) -> None:
    for change in (lambda array: array[:0], lambda array: array.astype(np.float32), lambda array: array[::2]):
        modules = filled("a string and a word").modules
        (strings,) = modules.texts.values()
        strings.arena = strings.arena._replace(**{name: change(getattr(strings.arena, name))})
        with pytest.raises(StateError, match="strings"):
            modules.check()


def test_a_key_that_a_look_up_would_not_find() -> None:
    modules = filled("chain").modules
    slots = modules.table.view(0).reshape(-1, 2)
    empty = slots[:, 1] < 0
    (there, *_), (here, *_) = np.flatnonzero(~empty), np.flatnonzero(empty & np.roll(empty, 1))
    slots[here] = slots[there]
    slots[there, 1] = -1
    with pytest.raises(StateError, match="key"):
        modules.check()


def test_a_string_that_a_look_up_would_not_find() -> None:
    modules = filled("a string and a word").modules
    (strings,) = modules.texts.values()
    strings.arena.hashes[strings.arena.table[strings.arena.table >= 0][0]] += 1
    with pytest.raises(StateError, match="is not found by its bytes"):
        modules.check()
