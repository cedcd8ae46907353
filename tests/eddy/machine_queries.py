"""The queries and the policies of the machine that changes plans (`test_transitions_machine`)."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from eddy.fuzz.chaos import Chaos
from eddy.fuzz.graphs import SHAPES, edges
from eddy.routing.policies import POLICIES, Decision, View
from tests.cases import Condition, JoinCase, StreamCase, raising
from tests.draws import TIME, VALUE, comparisons, connected

OWN_POLICIES = ("chaos", "trouble")
"""Policies of this test, drawn more often than those of the library, which change little on few rows."""
DRAWN_POLICIES = (*OWN_POLICIES, *OWN_POLICIES, *POLICIES)


class TroubleError(Exception):
    """The methods of a policy."""


class Trouble(Chaos):
    """Sometimes raises, or returns an impossible decision."""

    name = "trouble"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles = random.Random(seed)

    def decide(self, view: View) -> Decision | None:
        if self.troubles.randrange(6) == 0:
            raise TroubleError
        return super().decide(view)


def policy_of(name: str | None, seed: int) -> Any:
    """Return the argument `policy=`."""
    return {"chaos": Chaos, "trouble": Trouble}[name](seed) if name in OWN_POLICIES else name


@st.composite
def queries(draw: st.DrawFn) -> JoinCase:
    """Draw a query on integer keys: a class for each edge, two classes, or one class over all streams."""
    n = draw(st.integers(2, 6))
    order = draw(st.permutations(range(n)))
    pairs = [(order[i], order[k]) for i, k in edges(draw(st.sampled_from(SHAPES)), n)]
    labels = draw(st.sampled_from((len(pairs), 2, 1)))
    columns: list[dict[str, None]] = [{} for _ in range(n)]
    predicates = []
    names = "RSTUVW"
    scanned = pairs[:1] if draw(st.integers(0, 5)) == 5 else []
    for k, (i, j) in enumerate(pairs):
        if (i, j) in scanned:
            continue
        column = f"k{k % labels}"
        columns[i][column] = columns[j][column] = None
        predicates.append((((names[i], column), (names[j], column)),))
    kinds = draw(st.lists(st.sampled_from(("rows", "range", "unbounded")), min_size=n, max_size=n))
    if draw(st.booleans()):
        kinds = kinds[:1] * n
    timed = "range" in kinds
    compared = draw(comparisons(names, pairs, int(timed), rising=False)) if draw(st.integers(0, 2)) == 2 else []
    compared = draw(connected(names, scanned, compared))
    if any(left[1] == TIME for left, _, _, _ in compared):
        # The intervals connect all streams, so any window may follow from them.
        kinds = [draw(st.sampled_from((kind, "derived"))) for kind in kinds]
    streams = []
    for i, kind in enumerate(kinds):
        fields = [*((column, pa.int64()) for column in columns[i]), (VALUE, pa.int64()), (TIME, pa.int64())]
        size = 0 if kind in ("unbounded", "derived") else draw(st.integers(1, 6 if n < 5 else 4))
        streams.append(StreamCase(names[i], pa.schema(fields), kind, size, TIME if timed else None))
    # A result filter that fails on a value of 0, which good pushes do not have: see `fail_late`.
    where = Condition(raising("R.v"), lambda row: 1 // row["R.v"] > 0)
    return JoinCase(
        tuple(streams),
        tuple(predicates),
        (("v", ("R", VALUE)), ("t", (names[n - 1], TIME))) if draw(st.booleans()) else None,
        draw(st.sampled_from((None, where))),
        draw(st.sampled_from((0, 0, 1, 4))) if {"range", "derived"} & set(kinds) else 0,
        tuple(compared),
    )
