"""By which class a stream is probed: by one whose chains are much shorter, else by the one that was bound first."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import eddy
from eddy.routing.preference import preference
from jisc.plan.routes import Preference, compile_routes
from jisc.plan.tree import parse
from stairs.errors import StateError
from stairs.graph import JoinGraph
from stairs.modules import Modules
from stairs.samples import Samples
from stairs.storage.parts import Parts
from tests.eddy.queries import make_query
from tests.stairs.held import Held

CYCLE = {"A": "ab", "B": "bc", "C": "cd", "D": "da"}


def cycle() -> JoinGraph:
    return make_query(CYCLE, eddy.Rows(10)).graph


def preferred(
    graph: JoinGraph, partners: dict[tuple[int, int], float], present: Preference | None
) -> Preference | None:
    """Return the preference where a probe of stream j by class c finds partners[j, c] tuples, else one."""
    near = Samples(Modules(graph)).neighbours

    def profile(i: int) -> np.ndarray:
        return np.array([[partners.get((neighbour.stream, neighbour.by), 1.0) for neighbour in near[i]]])

    return preference(graph, SimpleNamespace(neighbours=near, profile=profile), present)  # type: ignore[arg-type]


def test_equal_chains_leave_the_choice_to_the_plan() -> None:
    graph = cycle()
    a, b = graph.attributes[1]
    assert preferred(graph, {}, None) is None
    assert preferred(graph, {(1, a): 1.2}, None) is None
    # What was preferred loses its place to a class that is no better, by a little.
    assert preferred(graph, {(1, a): 1.2}, ((), (a, b), (), ())) == ((), (), (), ())
    assert preferred(graph, {(1, a): 1.2}, ((), (b, a), (), ())) == ((), (b, a), (), ())


def test_much_shorter_chains_are_preferred() -> None:
    graph = cycle()
    a, b = graph.attributes[1]
    assert preferred(graph, {(1, a): 1.4}, None) == ((), (b, a), (), ())
    assert preferred(graph, {(1, b): 1.4}, ((), (b, a), (), ())) == ((), (a, b), (), ())


def test_a_stream_without_a_preference_is_probed_by_the_class_bound_first() -> None:
    graph = cycle()
    tree = parse("((A D) C) B", graph.names)
    plain, none = (compile_routes(tree, graph, prefer) for prefer in (None, ((), (), (), ())))
    assert plain.hops.tobytes() == none.hops.tobytes()
    changed = compile_routes(tree, graph, ((), graph.attributes[1][::-1], (), ()))
    assert plain.hops.tobytes() != changed.hops.tobytes()


def test_another_process_goes_on_with_the_preference() -> None:
    strategy = eddy.Runtime(make_query(CYCLE, eddy.Rows(10)))._pipeline.join.strategy
    attributes = [list(classes) for classes in cycle().attributes]
    for kept in (None, [[], attributes[1][::-1], [], []], attributes):
        strategy.load_parts(Parts({**strategy.to_parts(), "prefer": kept}, Held(), "a strategy"))
        assert strategy.to_parts()["prefer"] == kept


@pytest.mark.parametrize(
    "kept", [[], [[]] * 3, [[]] * 5, [[], [1], [], []], [[], [1, 3], [], []], [1, 2, 3, 4], "abcd"]
)
def test_a_preference_that_does_not_fit_is_refused(kept: object) -> None:
    strategy = eddy.Runtime(make_query(CYCLE, eddy.Rows(10)))._pipeline.join.strategy
    with pytest.raises(StateError, match="prefer"):
        strategy.load_parts(Parts({**strategy.to_parts(), "prefer": kept}, Held(), "a strategy"))
