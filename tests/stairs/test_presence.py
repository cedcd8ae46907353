"""Presence words: no bit is clear that should be set, whatever pushes do, and results are those of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stairs.memory.scratch
import stairs.stems
from stairs.descriptors import C_NEXT, LOADING, M_CHANGELOG, M_MODE, M_PRESENCE
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels.presence import MANY, words_of
from stairs.modules import Modules
from stairs.storage.parts import Parts
from tests.stairs.driver import DriverRow, PlanDriver, chain, one_class, range_window, rows_window
from tests.stairs.held import Held
from tests.stairs.test_one_key import PlainJoin, arrivals

WINDOWS = st.one_of(
    st.integers(1, 60).map(rows_window),
    st.integers(1, 200).map(range_window),
    st.just(Window(WindowKind.UNBOUNDED)),
)
STEPS = st.tuples(
    st.sampled_from(["push", "push", "push", "undo", "run short", "load", "changelog", "reload"]), st.integers(1, 120)
)


@pytest.mark.campaign(0)
@given(
    st.lists(WINDOWS, min_size=1, max_size=4),
    st.sampled_from([0, 9, 60]),
    st.sampled_from([3, 12, 40]),
    st.lists(STEPS, min_size=2, max_size=12),
    st.integers(0, 2**16),
)
def test_words_follow_whatever_pushes_do(
    windows: list[Window], late: int, kinds: int, steps: list[tuple[str, int]], seed: int
) -> None:
    graph = replace(one_class([range_window(80), *windows]), lateness=late)
    m = graph.n_streams
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stairs.stems, "MANY", 2)
        patch.setattr(stairs.memory.scratch, "FIRST_RESULTS", 1)
        driver = PlanDriver(graph)
        model, modules = PlainJoin(driver), driver.modules
        rows = arrivals(m, sum(size for _, size in steps), kinds * (m - 1), seed, late)
        for step, size in steps:
            pushed, rows = rows[:size], rows[size:]
            if step == "undo":
                driver.walk(pushed)
                modules.undo()
                modules.check()
            elif step == "run short":
                modules.scratch.walk = modules.walk._replace(ids=np.empty(0, np.int32))
            elif step == "load":
                modules.meta[M_MODE] = LOADING
            elif step == "changelog":
                # Its kernel does not keep the words, and it needs room for signs.
                modules.meta[M_CHANGELOG] = 1
                modules.scratch.walk = modules.walk._replace(ids=np.empty(0, np.int32))
            elif step == "reload":
                modules = driver.modules = resumed(modules)
            results, expected = driver.push(pushed), model.push(pushed)
            kept = modules.meta[M_MODE] != LOADING and not modules.meta[M_CHANGELOG]
            assert not kept or results == expected
            assert modules.meta[M_PRESENCE] == (step != "changelog")
            modules.meta[[M_MODE, M_CHANGELOG]] = 0
            modules.check()


def resumed(modules: Modules) -> Modules:
    """Return modules that resume from the parts of others: the words are not among them."""
    parts, new = modules.to_parts(), Modules(modules.graph)
    assert "presence" not in parts
    new.load_parts(Parts(parts, Held(), "modules"))
    return new


def test_a_join_keeps_words_from_many_streams_on_unless_they_have_other_keys() -> None:
    def of(m: int) -> Modules:
        return Modules(JoinGraph(tuple(f"s{i}" for i in range(m)), (rows_window(5),) * m, ((0,),) * m, (1,)))

    assert [of(m).has_presence for m in (2, MANY - 1, MANY, 64, 65, 100)] == [False, False, True, True, True, True]
    assert [words_of(m) for m in (MANY, 64, 65, 100)] == [2, 2, 4, 4]
    assert not Modules(chain([rows_window(3)] * (MANY + 1))).has_presence
    assert of(MANY - 1).presence.nbytes == 0


@pytest.mark.parametrize("m", [63, 64, 65, 128])
def test_all_bits_of_all_words_count(m: int) -> None:
    """Each key occurs in all streams but one, then there as well, then twice in one stream."""
    graph = JoinGraph(tuple(f"s{i}" for i in range(m)), (rows_window(m + 2),) * m, ((0,),) * m, (1,))
    driver = PlanDriver(graph)
    for k in range(m):
        others = [DriverRow(j, ((k,),)) for j in range(m) if j != k]
        assert driver.push(others) == []
    for k in range(m):
        assert len(driver.push([DriverRow(k, ((k,),))])) == 1
        assert len(driver.push([DriverRow(m - 1 - k, ((k,),))])) == 1
        assert len(driver.push([DriverRow(k, ((k,),))])) == (1 if m - 1 - k == k else 2)
        driver.modules.check()
    assert driver.modules.classes[0, C_NEXT] == m
