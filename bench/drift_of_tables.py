"""`eddy bench changes-drift`: a Runtime that chooses its own plan, while updates move what tables hold.

Bids (a Rows window) are joined with three tables by a key of each, and each of these with a table of its own: three
arms. In each phase the table at the end of one arm has a tenth of its keys, and all others have all of them, so a plan
that probes this arm first does the least work. The updates themselves make the next phase: they delete nine tenths of
the rows of one table, and insert those of another. The runtime and all fixed plans take the same pushes in turn, as in
`eddy bench adaptivity`, and their numbers of results are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.adaptivity import DEFAULT, PER_PHASE, race, ratios
from bench.fixed_plans import fixed_plans, texts
from bench.harness.figure import NAMED, Figure, Point, Row, Say, spread
from eddy import Query, Rows, Stream, Table

ARMS = {"A": "D", "B": "E", "C": "F"}
"""Table next to the bids -> the table at the end of the arm."""
TABLES = (*ARMS, *ARMS.values())
PHASES = ("D", "E", "F") * 2
"""The rare table of each phase."""
RARE = 10
"""Of this many keys, the rare table of a phase has one."""
UPDATES = 0.08
"""The share of updates among the arrivals of a push."""
BIDS = pa.schema([(f"to_{name}", pa.int64()) for name in ARMS])
ROWS = pa.schema([("id", pa.int64()), ("next", pa.int64())])


@dataclass(frozen=True)
class DriftingTables:
    """The arrivals: `pushes` of `push` arrivals in each phase, and `window` bids in the window.

    seed   of the generator
    """

    window: int
    push: int
    n_pushes: int
    seed: int = 0
    name = "three arms"

    @cached_property
    def query(self) -> Query:
        """The join."""
        tables = [Table(name, ROWS, key="id", ops="column") for name in TABLES]
        bids = Stream("bid", BIDS, window=Rows(self.window))
        on = [f"bid.to_{near} = {near}.id AND {near}.next = {end}.id" for near, end in ARMS.items()]
        return Query([bids, *tables], on)

    def draw(self, seed: int) -> DriftingTables:
        """Return the same arrivals from another seed."""
        return replace(self, seed=seed)

    def pushes(self, _: int) -> list[tuple[str, tuple[dict[str, pa.Table], Any]]]:
        """Return the name of the phase of each push ("" before the first), its rows and their order."""
        return list(self._pushes(np.random.default_rng(self.seed)))

    def _pushes(self, rng: np.random.Generator) -> Iterator[tuple[str, tuple[dict[str, pa.Table], Any]]]:
        keys = np.arange(self.window // 2)
        held = dict.fromkeys(TABLES, keys)
        yield "", self._arrivals(rng, 0, dict.fromkeys(TABLES, (keys, "u")))
        for first in range(0, self.window, self.push):
            yield "", self._arrivals(rng, min(self.push, self.window - first), {})
        rare: str | None = None
        for name in PHASES:
            left, came = keys[keys % RARE != 0], {} if rare is None else {rare: (keys, "u")}
            held = {**dict.fromkeys(TABLES, keys), name: keys[::RARE]}
            yield f"{name} is rare", self._arrivals(rng, 0, {**came, name: (left, "d")})
            rare = name
            for _ in range(self.n_pushes):
                n = int(self.push * UPDATES / len(TABLES))
                updates = {table: (rng.choice(held[table], n), "u") for table in TABLES}
                yield f"{name} is rare", self._arrivals(rng, self.push - n * len(TABLES), updates)

    def _arrivals(
        self, rng: np.random.Generator, bids: int, updates: dict[str, tuple[np.ndarray, str]]
    ) -> tuple[dict[str, pa.Table], Any]:
        """Return rows of a push, in a random order: bids, and by table the keys and the operation of its updates."""
        keys = rng.integers(0, self.window // 2, (len(ARMS), bids))
        rows = {"bid": pa.Table.from_arrays([pa.array(column) for column in keys], schema=BIDS)} if bids else {}
        for name, (ids, op) in updates.items():
            values = pa.array(rng.integers(0, self.window // 2, len(ids)))
            columns = [pa.array(ids), values, pa.repeat(op, len(ids))]
            rows[name] = pa.Table.from_arrays(columns, schema=ROWS.append(pa.field("op", pa.string())))
        places = [np.full(len(table), ["bid", *TABLES].index(name), np.uint8) for name, table in rows.items()]
        order = np.concatenate(places)
        rng.shuffle(order)
        return rows, order


def points(full: bool) -> list[Point]:
    """Return one point: rounds, bids in the window, and the pushes of a phase."""
    if full:
        return [{"window": 100_000, "push": 10_000, "pushes": 30, "rounds": 5}]
    return [{"window": 10_000, "push": 5_000, "pushes": 8, "rounds": 1}]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the speed of the default in terms of fixed plans. Raises Mismatch when contenders disagree."""
    tables = DriftingTables(int(point["window"]), int(point["push"]), int(point["pushes"]))
    graph = tables.query.graph
    fixed = texts(fixed_plans(graph), graph)
    rounds, changes = [], []
    for turn in range(int(point["rounds"])):
        say(f"{tables.name}, round {turn + 1}")
        run = race(tables, [DEFAULT, *fixed], fixed[0], turn + 1)
        rounds.append(ratios(run.times, fixed))
        changes.append(run.transitions[DEFAULT])
    rows: list[Row] = [
        {"figure": name, **spread([round_ratios[name] for round_ratios in rounds], "value")}
        for name in TITLES
        if name in rounds[0]
    ]
    return [*rows, {"figure": "transitions", "value": median(changes)}, {"figure": "fixed", "value": len(fixed)}]


TITLES = {
    PER_PHASE: "speed of the default, the best plan of each phase = 1",
    "vs_best_fixed": "speed of the default, the best fixed plan = 1",
    "worst_order_vs_best_order": "speed of the worst fixed plan, the best = 1",
    "transitions": "changes of plan",
    "fixed": "fixed plans",
}

FIGURES = (
    Figure(
        "changes-drift",
        "Bids in a ROWS window joined with three arms of two tables each. In each phase the end of one arm has a tenth"
        " of its keys, and the other tables all of them; the updates make the next phase, and 8 % of all other arrivals"
        " are updates. The default (strategy eddy, policy cost) and all fixed plans count the changes of each push. The"
        " best plan of each phase is known only afterwards, and it changes at no cost. CPU time.",
        points,
        measure,
        tables=(NAMED,),
        titles=TITLES,
        bars={PER_PHASE: "≥ 0.9"},
    ),
)
