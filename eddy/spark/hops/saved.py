"""The placement of a streaming join in the form in which its manifests store it.

    asked   "grid", "hops", "auto", or the plan of each head as [[head, [[stream, "ship" or "window"], …]], …]
    steps   steps of the hops that ran, by head [[stream, class by whose keys the nodes share the step], …]; streams and
            classes are numbers; null if the micro-batch ran in one round
    costs   the measurements from which the costs of both placements are fitted (`PlacementCosts.to_json`)

The number of nodes is not stored, because it may change at the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eddy.placement.keys import classes_of
from eddy.placement.places import by_class
from eddy.placement.program import Steps
from eddy.query.query import Query
from eddy.spark.hops.hops import Hops, key_class, own_hops
from eddy.spark.hops.measured import MEASURED, UNMEASURED, PlacementCosts
from eddy.spark.hops.placing import KINDS, Placement
from eddy.spark.partitioning.operators import homes, why_unplaced
from stairs.storage.json_form import FormError, either, fields, integer, list_of, one_of, optional, row_of, text

_NUMBER = integer(0, 1 << 31)
_PLAN = list_of(row_of(text, list_of(row_of(text, one_of(("ship", "window"))))))
SAVED = fields(
    {
        "asked": either(_PLAN, one_of(KINDS)),
        "steps": optional(list_of(list_of(row_of(_NUMBER, _NUMBER)))),
        "costs": MEASURED,
    }
)

UNPLACED = {"asked": "grid", "steps": None, "costs": UNMEASURED}
"""The stored form of the placement of a join that always ran in one round."""


@dataclass(frozen=True)
class SavedPlacement:
    """A placement that a manifest stores.

    asked   the placement requested by `placement=` of `join`, or by a later `place`
    steps   steps of the hops that ran, None if no hops ran
    costs   costs fitted to the earlier micro-batches
    """

    asked: Placement
    steps: tuple[tuple[tuple[int, int], ...], ...] | None
    costs: PlacementCosts

    def hops(self, query: Query, nodes: int) -> Hops | None:
        """Return the hops over a number of nodes; None if no hops ran."""
        if self.steps is None:
            return None
        routes: dict[int, Steps] = {
            head: tuple((j, by_class(range(nodes), c)) for j, c in steps) for head, steps in enumerate(self.steps)
        }
        return Hops(nodes, homes(query, nodes), routes, True)


def saved(query: Query, asked: Placement, hops: Hops | None, costs: PlacementCosts) -> dict[str, Any]:
    """Return a placement as JSON."""
    plan: object = asked
    if isinstance(asked, Mapping):
        plan = [[head, [list(step) for step in steps]] for head, steps in asked.items()]
    steps = None if hops is None else [_steps(query, hops, head) for head in sorted(hops.routes)]
    return {"asked": plan, "steps": steps, "costs": costs.to_json()}


def _steps(query: Query, hops: Hops, head: int) -> list[list[int]]:
    classes = classes_of(query)
    bound, steps = classes[head], []
    for j, place in hops.routes[head]:
        # A single node shares no work, but several nodes may at the next start.
        steps.append([j, key_class(place) if place.shares else min(bound & classes[j])])
        bound |= classes[j]
    return steps


def restored(query: Query, stored: object, place: str) -> SavedPlacement:
    """Return the placement that `saved` returned. Raises FormError, or PlanError, for any other value.

    place   place of the value, for messages
    """
    SAVED(stored, place)
    assert isinstance(stored, dict)
    asked, steps = stored["asked"], stored["steps"]
    if isinstance(asked, list):
        asked = {head: [(stream, how) for stream, how in hops] for head, hops in asked}
    why = None if asked in ("grid", "auto") and steps is None else why_unplaced(query)
    if why is not None:
        raise FormError(f"{place} has hops, but {why}")
    if isinstance(asked, Mapping):
        own_hops(query, asked, 1, timed=True)
    if steps is not None:
        _check(query, steps, f"{place}.steps")
    routes = None if steps is None else tuple(tuple((j, c) for j, c in route) for route in steps)
    return SavedPlacement(asked, routes, PlacementCosts.from_json(stored["costs"]))


def _check(query: Query, routes: list[list[list[int]]], place: str) -> None:
    """Raise FormError unless each head joins each other stream once, by a key of the streams joined before.

    Tuples that are sent have only the keys that the remaining streams have as well.
    """
    classes, names = classes_of(query), query.graph.names
    if len(routes) != len(classes):
        raise FormError(f"{place} has {len(routes)} heads for {len(classes)} streams")
    for head, steps in enumerate(routes):
        if sorted(j for j, _ in steps) != [j for j in range(len(classes)) if j != head]:
            raise FormError(f"{place}[{head}] does not join each other stream once")
        bound, at = classes[head], None
        for k, (j, c) in enumerate(steps):
            keys = bound & frozenset().union(*(classes[i] for i, _ in steps[k:])) if k else bound
            if not bound & classes[j] or (c not in keys and c != at):
                raise FormError(f"{place}[{head}] joins {names[j]} by class {c}, which has no key there")
            bound, at = bound | classes[j], c
