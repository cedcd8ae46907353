"""`eddy bench changes`: inputs whose rows are replaced, followed by a runtime and by other means.

Bids (the newest ones, a Rows window) are joined with auctions, the auctions with their seller and their category: three
tables. All four have a value, which each change of a row replaces. The shapes differ in what changes:

bids       bids only: the tables stand still
mixed      92 % bids; 8 % of the changes replace an auction, with the keys that it has
auctions   each change replaces an auction, with the keys that it has
moves      each change replaces an auction, with another category
persons    each change replaces a person, all of whose results change: about ten rows, half of which are taken back
categories each change replaces a category: about two thousand rows

Each way takes the same pushes in turns. A runtime gives the changes of each arrival; plain Python does so as well, row
by row; Polars and DuckDB compute the answer anew after each push and compare it with the one before, so they skip what
happens within a push. So does a runtime with atomic pushes, and one with left joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from time import process_time

import numpy as np
import pyarrow as pa

from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Work, speed, take_turns
from bench.ways.table_ways import INPUTS, SCHEMAS, DuckDBWay, EddyWay, PlainPython, PolarsWay, Pushed, TableWay

SHAPES = "bids", "mixed", "auctions", "moves", "persons", "categories"
WAYS: Mapping[str, Callable[[int], TableWay]] = {
    "eddy": EddyWay,
    "atomic": partial(EddyWay, atomic=True),
    "left": partial(EddyWay, left=True),
    "python": PlainPython,
    "polars": PolarsWay,
    "duckdb": DuckDBWay,
}
LIBRARIES = "polars", "duckdb"


class Changes:
    """Seeded changes of tables: two bids in the window for each auction, five auctions for two persons."""

    def __init__(self, window: int) -> None:
        self.window, self.value = window, 0
        self.auctions, self.persons, self.categories = window // 2, window // 5, max(window // 1000, 2)
        self.rng = np.random.default_rng(1)
        self.category = self.rng.integers(0, self.categories, self.auctions)
        self.seller = self.rng.integers(0, self.persons, self.auctions)

    def _rows(self, name: str, *columns: np.ndarray) -> pa.RecordBatch:
        n = len(columns[0])
        values = np.arange(self.value, self.value + n)
        self.value += n
        return pa.RecordBatch.from_arrays([pa.array(column) for column in (*columns, values)], schema=SCHEMAS[name])

    def _auctions(self, ids: np.ndarray) -> pa.RecordBatch:
        return self._rows("auction", ids, self.seller[ids], self.category[ids])

    def _bids(self, n: int) -> pa.RecordBatch:
        return self._rows("bid", self.rng.integers(0, self.auctions, n))

    def first(self) -> list[Pushed]:
        """Return the pushes that fill the tables and the window."""
        tables = {
            "person": self._rows("person", np.arange(self.persons)),
            "category": self._rows("category", np.arange(self.categories)),
            "auction": self._auctions(np.arange(self.auctions)),
        }
        pushes: list[Pushed] = []
        for name, rows in tables.items():
            pushes.append((np.full(len(rows), INPUTS.index(name), np.uint8), {name: rows}))
        part = self.window // 10
        return pushes + [(np.zeros(part, np.uint8), {"bid": self._bids(part)}) for _ in range(11)]

    def push(self, shape: str, rows: int) -> Pushed:
        """Return a push of a shape."""
        if shape in ("bids", "mixed"):
            order = (self.rng.random(rows) < (0.08 if shape == "mixed" else 0)).astype(np.uint8)
            n = int(order.sum())
            batches = {"bid": self._bids(rows - n)}
            if n:
                batches["auction"] = self._auctions(self.rng.integers(0, self.auctions, n))
            return order, batches
        if shape in ("auctions", "moves"):
            ids = self.rng.integers(0, self.auctions, rows)
            if shape == "moves":
                self.category[ids] = self.rng.integers(0, self.categories, rows)
            return np.ones(rows, np.uint8), {"auction": self._auctions(ids)}
        name, most = ("person", self.persons) if shape == "persons" else ("category", self.categories)
        batch = self._rows(name, self.rng.integers(0, most, rows))
        return np.full(rows, INPUTS.index(name), np.uint8), {name: batch}


def points(full: bool) -> list[Point]:
    """Return a point for each shape and size of a push."""
    window = 100_000 if full else 10_000
    return [
        {
            "shape": shape,
            "window": window,
            "push": size // 100 if shape == "categories" else size,
            "pushes": 4 if size > 1_000 or not full else 10,
            "rounds": 7 if full else 3,
        }
        for shape in SHAPES
        for size in ((10_000, 1_000) if full else (1_000,))
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the rate of a runtime at a point, and its speed relative to the other ways."""
    shape, size, count = str(point["shape"]), int(point["push"]), int(point["rounds"])
    changes, name = Changes(int(point["window"])), f"{point['shape']}.{point['push']}"
    ways = {way: make(changes.window) for way, make in WAYS.items() if way not in LIBRARIES or find_spec(way)}
    begin = changes.first()
    rounds = [[changes.push(shape, size) for _ in range(int(point["pushes"]))] for _ in range(count + 1)]

    def work(way: TableWay) -> Iterator[tuple[float, object]]:
        total = [0] * (1 + len(INPUTS))
        for pushes in [begin, *rounds]:
            given = [way.prepared(push) for push in pushes]
            start = process_time()
            outputs = [way.push(push) for push in given]
            seconds = process_time() - start
            for changed in outputs:
                total = [a + b for a, b in zip(total, way.signed(changed), strict=True)]
            yield seconds, tuple(total)

    works: dict[str, Work] = {}
    for way, runner in ways.items():
        say(f"{name}: filling the tables of {way}")
        works[way] = work(runner).__next__
        works[way]()
    taken = take_turns(name, works, count, say)
    arrivals = size * int(point["pushes"])
    rows: list[Row] = [
        {"figure": f"{name}.{way}_changes", "value": arrivals / sorted(seconds)[len(seconds) // 2] / 1e6}
        for way, seconds in taken.items()
    ]
    rows += [{"figure": f"{name}.vs_{way}", **speed(taken, "eddy", way)} for way in ways if way != "eddy"]
    for way in WAYS.keys() - ways.keys():
        rows.append({"figure": f"{name}.vs_{way}", "skipped": f"{way}: not installed (pip install 'eddy-join[bench]')"})
    return rows


NAMES = [f"{shape}.{size // 100 if shape == 'categories' else size}" for shape in SHAPES for size in (10_000, 1_000)]
TITLES = {
    **{f"{name}.{way}_changes": f"{name}: million changes per second, {way}" for name in NAMES for way in WAYS},
    **{f"{name}.vs_{way}": f"{name}: speed of eddy, {way} = 1" for name in NAMES for way in WAYS if way != "eddy"},
}

FIGURES = (
    Figure(
        "changes",
        "Bids in a ROWS window joined with three tables whose rows are replaced: `shape.N` has pushes of N changes. A"
        " runtime with payload and undo, whose policy chooses the plan, gives the changes of each arrival. Plain Python"
        " does the same with dicts, row by row. Polars and DuckDB compute the answer anew after each push, on one"
        " thread, and compare it with the answer before; a runtime with atomic pushes gives the same changes, and so"
        " does one that joins persons and categories by left joins (`left`). The sums of the answers of all ways are"
        " compared after each round. CPU times of the process.",
        points,
        measure,
        tables=(NAMED,),
        titles=TITLES,
        bars={
            "mixed.10000.eddy_changes": "≥ 2.5",
            "persons.10000.eddy_changes": "≥ 1.2",
            **{f"{name}.vs_python": "≥ 8" for name in NAMES},
            **{f"{name}.vs_{way}": "≥ 1" for name in NAMES for way in LIBRARIES},
        },
    ),
)
