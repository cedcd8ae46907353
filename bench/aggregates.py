"""`eddy bench aggregates`: groups by ring values and by enumeration, on shapes where either is better.

chain      R(a) S(a, b) T(b, c) U(c), grouped by a column of S; the sums are of T and U
star       a centre with three attributes, each joined by another stream, grouped by a column of the centre
snowflake  a centre with three arms of two streams, grouped by a column of the centre

All keys are uniform; `fanout` is the number of results per arrival, to which all streams and hops contribute equally.
There are two groups of rows: *live* is the changelog over the live windows, and *end* the totals of an input that ends.
Three runtimes take the same pushes in turns: one enumerates, one has ring values, one chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import thread_time
from typing import Any

import numpy as np
import pyarrow as pa

import eddy
from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Work, speed, take_turns
from bench.workloads.sources import Order
from eddy import Query, Rows, Stream, agg

GROUPS = 1_000
FANOUTS = (1, 10, 30, 100)
Push = tuple[Order, dict[str, pa.RecordBatch]]
SHAPES: Mapping[str, Mapping[str, str]] = {
    "chain": {"S": "ab", "R": "a", "T": "bc", "U": "c"},
    "star": {"C": "abc", "S": "a", "T": "b", "U": "c"},
    "snowflake": {"C": "abc", "S": "ax", "X": "x", "T": "by", "Y": "y", "U": "cz", "Z": "z"},
}
"""Shape -> the streams and their attributes; the first stream has the group column."""
SUMMED = {"chain": "TU", "star": "CS", "snowflake": "CX"}
"""Shape -> two streams with a column that is summed."""
FORMS: Mapping[str, dict[str, Any]] = {"live": {"output": "changelog"}, "end": {"bounded": True}}
WAYS: Mapping[str, bool | None] = {"enumeration": False, "ring": True, "chosen": None}


class AggregatesWorkload:
    """Pushes of a shape, and a runtime for each way."""

    def __init__(self, shape: str, fanout: int, form: str, window: int, push: int) -> None:
        self.streams, self.rows = SHAPES[shape], push
        hops = len(self.streams) - 1
        self.size = max(round(window / fanout ** (1 / hops)), 1)
        self.rng = np.random.default_rng(1)
        self.schemas = {
            name: pa.schema([(column, pa.int64()) for column in (*letters, "g", "v")])
            for name, letters in self.streams.items()
        }
        on = []
        for letter in sorted({letter for letters in self.streams.values() for letter in letters}):
            left, right = (name for name, letters in self.streams.items() if letter in letters)
            on.append(f"{left}.{letter} = {right}.{letter}")
        query = Query(
            [Stream(name, schema, Rows(window)) for name, schema in self.schemas.items()],
            on,
            group_by=[f"{next(iter(self.streams))}.g"],
            aggregates={
                "n": agg.count(),
                **{f"s{k}": agg.sum(f"{name}.v") for k, name in enumerate(SUMMED[shape])},
            },
        )
        self.runtimes = {}
        for way, forced in WAYS.items():
            self.runtimes[way] = runtime = eddy.Runtime(query, **FORMS[form])
            rings = runtime._pipeline.join.rings
            assert rings is not None
            rings.choice.forced = forced

    def pushes(self, rows: int) -> list[Push]:
        """Return the next pushes."""
        pushes = []
        for _ in range(0, rows, self.rows):
            order = self.rng.integers(0, len(self.streams), self.rows).astype(np.uint8)
            batches = {}
            for i, (name, letters) in enumerate(self.streams.items()):
                n = int((order == i).sum())
                columns = [self.rng.integers(0, self.size, n) for _ in letters]
                columns += [self.rng.integers(0, GROUPS, n), self.rng.integers(-1_000, 1_000, n)]
                batches[name] = pa.RecordBatch.from_arrays(
                    [pa.array(column) for column in columns], schema=self.schemas[name]
                )
            pushes.append((order, batches))
        return pushes


def points(full: bool) -> list[Point]:
    """Return a point for each shape, fan-out and form."""
    return [
        {
            "shape": shape,
            "fanout": fanout,
            "form": form,
            "window": 10_000,
            "rows": (40_000 if fanout < 100 else 20_000) if full else 10_000,
            "push": 1_000,
            "rounds": 7 if full else 3,
        }
        for form in FORMS
        for shape in SHAPES
        for fanout in FANOUTS
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the ratios of a point, its nanoseconds per arrival, and the bytes of ring values."""
    shape, fanout, form = str(point["shape"]), int(point["fanout"]), str(point["form"])
    workload = AggregatesWorkload(shape, fanout, form, int(point["window"]), int(point["push"]))
    name = f"fanout{fanout}.{shape}" + (".end" if form == "end" else "")
    fill = workload.pushes(int(1.3 * point["window"] * len(workload.streams)))
    # The choice between the methods needs some pushes in full windows.
    settle = workload.pushes(60_000)
    rounds = [workload.pushes(int(point["rows"])) for _ in range(point["rounds"] + 1)]

    def work(runtime: eddy.Runtime) -> Iterator[tuple[float, object]]:
        for pushes in rounds:
            start = thread_time()
            for order, batches in pushes:
                runtime.push(batches, order)
            yield thread_time() - start, _totals(runtime)

    works: dict[str, Work] = {}
    for way, runtime in workload.runtimes.items():
        say(f"{name}: filling the windows of {way}")
        for order, batches in fill + settle:
            runtime.push(batches, order)
        works[way] = work(runtime).__next__
    taken = take_turns(name, works, int(point["rounds"]), say)
    better = min("enumeration", "ring", key=lambda way: sorted(taken[way])[len(taken[way]) // 2])
    engines = {way: runtime._pipeline.join for way, runtime in workload.runtimes.items()}
    ring, plain = engines["ring"].rings, engines["enumeration"]
    assert ring is not None
    ns = {way: 1e9 * sorted(seconds)[len(seconds) // 2] / int(point["rows"]) for way, seconds in taken.items()}
    rows: list[Row] = [
        {"figure": f"{name}.ring_vs_enumeration", **speed(taken, "ring", "enumeration")},
        {"figure": f"{name}.chosen_vs_better", **speed(taken, "chosen", better)},
        {"figure": f"{name}.ring_bytes", "value": ring.nbytes},
        {"figure": f"{name}.ring_bytes_vs_rest", "value": ring.nbytes / plain.nbytes},
    ]
    rows += [{"figure": f"{name}.{way}_ns_per_arrival", "value": ns[way]} for way in WAYS]
    return rows


def _totals(runtime: eddy.Runtime) -> object:
    """Return the sums over all groups."""
    groups = runtime.groups()
    return len(groups), *(sum(x or 0 for x in groups[name].to_pylist()) for name in groups.column_names[1:])


NAMES = [f"fanout{n}.{shape}{end}" for n in FANOUTS for shape in SHAPES for end in ("", ".end")]
WHAT = {
    "ring_vs_enumeration": "speed of ring values, enumeration = 1",
    "chosen_vs_better": "speed of the choice, the better way = 1",
    **{f"{way}_ns_per_arrival": f"ns per arrival, {way}" for way in WAYS},
    "ring_bytes": "bytes of ring values",
    "ring_bytes_vs_rest": "bytes of ring values, all other state = 1",
}
TITLES = {f"{name}.{what}": f"{name}: {text}" for name in NAMES for what, text in WHAT.items()}

FIGURES = (
    Figure(
        "aggregates",
        "Counts and sums over joins of streams with ROWS windows, in pushes of 1,000 rows, grouped by a column of one"
        " stream. Three runtimes take the same pushes in turns: one enumerates the joined rows, one has ring values"
        " (counts and sums by key along the tree of the streams), and one chooses by its own measurements, which take"
        " part of its time. `fanoutN` has N results per arrival; *live* rows are changelogs over the live windows, rows"
        " with `.end` totals of an input that ends. The groups of all three are compared after each round. CPU times.",
        points,
        measure,
        tables=(NAMED,),
        titles=TITLES,
        bars={
            **{f"fanout100.{shape}.ring_vs_enumeration": "≥ 2.5" for shape in ("star", "snowflake")},
            **{f"{name}.chosen_vs_better": "≥ 0.9" for name in NAMES},
        },
    ),
)
