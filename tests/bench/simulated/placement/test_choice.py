"""The choice between one round and several hops, and what cannot be placed on nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.simulated.placement.choice import PlanKindChooser
from bench.simulated.placement.simulation import PlacementSimulation
from eddy import Branch, InputError, PlanError, Query, QueryError, Range, Rows, Stream
from eddy.placement.costs import UnitCosts
from tests.eddy.placement.chains import chain

FAST = UnitCosts(5e-4, 12.5e6, 1e-7, 1e-7, 3e-8, nested=False)


def pushed(query: Query, partners: list[float], epoch: int, n: int = 150) -> dict[str, Any]:
    """Return rows of which each finds about so many partners over each of the classes."""
    draw = np.random.default_rng(epoch)
    batches = {}
    for stream in query.streams:
        columns = {"t": np.full(n, 10 * epoch), "n": np.arange(n)}
        for name in stream.schema.names:
            if name[0] == "k":
                columns[name] = draw.integers(0, max(1, round(3 * n / partners[int(name[1:])])), n)
        batches[stream.name] = pa.record_batch(
            {name: columns[name] for name in stream.schema.names}, schema=stream.schema
        )
    return batches


def run(way: str, nodes: int, phases: list[list[float]]) -> PlacementSimulation:
    query = chain(4)
    cluster = PlacementSimulation(query, nodes, placement=way, costs=FAST, count_only=True)
    for epoch, partners in enumerate([phase for phase in phases for _ in range(4)]):
        cluster.push(pushed(query, partners, epoch))
    return cluster


SELECTIVE, EXPLODING = [0.2, 0.2, 0.2], [0.2, 40.0, 0.2]


def test_auto_follows_the_data() -> None:
    cluster = run("auto", 8, [SELECTIVE, EXPLODING, SELECTIVE])
    assert cluster.history().num_rows >= 1
    fixed = {way: run(way, 8, [SELECTIVE, EXPLODING, SELECTIVE]).clock for way in ("grid", "hops")}
    assert cluster.clock <= 1.15 * min(fixed.values())


class Predictions:
    """A planner whose routes are names of kinds, and whose figures are seconds by kind."""

    def grid_routes(self, figures: Any) -> Any:
        return ("grid",)

    def hop_routes(self, figures: Any) -> Any:
        return ("hops",)

    def predicted(self, routes: Any, figures: Any) -> float:
        return float(figures[routes[0]])

    def moving(self, old: Any, new: Any, figures: Any) -> float:
        return 0.0


def test_an_outcome_under_other_data_corrects_no_prediction() -> None:
    """Hops took less than predicted while few results came; many come now, and the grid takes more than predicted."""
    choice = PlanKindChooser(Predictions())  # type: ignore[arg-type]
    few, many = {"grid": 17.0, "hops": 11.0}, {"grid": 200.0, "hops": 280.0}
    runs: Any = ("hops",)
    assert choice.choose("hops", runs, few, few, 8.0, False) is None  # type: ignore[arg-type]
    runs = ("grid",)
    assert choice.choose("grid", runs, many, many, 320.0, False) is None  # type: ignore[arg-type]
    # While few come again, the outcome of the hops counts again.
    chosen = choice.choose("grid", runs, few, few, 17.0, False)  # type: ignore[arg-type]
    assert chosen is not None
    assert chosen.kind == "hops"
    assert chosen.after == pytest.approx(8.0)


def test_one_node_needs_no_shipping() -> None:
    assert run("auto", 1, [SELECTIVE]).messages().num_rows == 0


def stream(name: str, **more: Any) -> Stream:
    return Stream(name, pa.schema([("k", pa.int64()), ("t", pa.int64())]), time="t", **more)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query([stream("R", window=Rows(3)), stream("S")], ["R.k = S.k"]), "ROWS window"),
        (
            Query([stream("R", window=Range(5)), stream("S", window=Range(5))], ["R.k = S.k", "R.t < S.t"]),
            "no equality",
        ),
        (
            Query(
                [stream("R", window=Range(5))], branches=[Branch([stream("S", window=Range(5))], ["R.k = S.k"], "left")]
            ),
            "branches",
        ),
    ],
    ids=["rows", "comparison", "branch"],
)
def test_queries_that_cannot_be_placed(query: Query, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        PlacementSimulation(query)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"nodes": 0}, InputError, "nodes=0"),
        ({"placement": "grid"}, InputError, "give the number of `nodes`"),
        ({"placement": "greedy", "nodes": 3}, InputError, "leave out `nodes`"),
        ({"placement": "best"}, InputError, "placement='best'"),
        ({"update": "none"}, InputError, "update='none'"),
        ({"placement": {"S0": [], "S1": [], "S2": []}}, PlanError, "each of the other streams"),
        (
            {
                "placement": {
                    "S0": [("S2", "ship"), ("S1", "ship")],
                    "S1": [("S0", "ship"), ("S2", "ship")],
                    "S2": [("S1", "ship"), ("S0", "ship")],
                }
            },
            PlanError,
            "no predicate connects",
        ),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        PlacementSimulation(chain(3), **options)
