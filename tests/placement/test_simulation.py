"""The simulated cluster gives the results of one engine, under every placement, through changes, faults and crashes."""

from __future__ import annotations

import pytest

from eddy.placement.simulation import Simulation
from tests.placement.chains import batches, chain, expected, results, rows, star


@pytest.mark.parametrize("nodes, placement", [(None, "greedy"), (4, "grid"), (6, "grid"), (5, "hops"), (8, "auto"), (1, "auto")])
@pytest.mark.parametrize("shape", ["chain", "star", "text"])
def test_results_are_those_of_one_engine(nodes: int | None, placement: str, shape: str) -> None:
    query = star(4) if shape == "star" else chain(4, text=shape == "text")
    epochs = rows(query, 8, 8, 4 if shape == "star" else 3, 1, text=shape == "text")
    wanted = expected(query, epochs)
    assert wanted
    cluster = Simulation(query, nodes, placement=placement)
    assert results(cluster.push(batches(query, one)) for one in epochs) == wanted
