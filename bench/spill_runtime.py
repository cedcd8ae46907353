"""`eddy bench spill-runtime`: windows that are larger than the memory for them, with their rows in files.

Three processes take the same pushes in turns: one has all rows in memory, one has them in files that the system may
cache, and the memory of one is bounded, so that the system can cache an eighth of the files.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa

import eddy
from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.memory_limit import memory_limit
from bench.harness.turns import speed, take_turns

STREAMS = ("R", "S")
COLUMNS = 24
SCHEMA = pa.schema([("k", pa.int64()), *((f"v{i}", pa.int64()) for i in range(COLUMNS))])
MEMORY, FILES, LIMITED = "memory", "files", "limited"
CACHED = 8
"""The part of the files that the bound leaves room for, as 1 / CACHED."""
RECENT = 50_000
"""Rows between a row and its partner, on average, if the access is recent."""


def points(full: bool) -> list[Point]:
    """Return a point for each access to the window and share of rows with a partner."""
    size = {"window": 2_000_000, "push": 100_000, "turns": 8}
    if not full:
        size = {"window": 400_000, "push": 20_000, "turns": 4}
    return [
        {"access": access, "matched": matched, "seed": 1, **size}
        for access in ("recent", "even")
        for matched in ((0.1, 1.0) if full else (0.1,))
    ]


class WidePushes:
    """Pushes of both streams, row by row in turns. A share `matched` of the rows has a key of the other stream."""

    def __init__(self, point: Point) -> None:
        self.point, self.n = point, 0
        self.chance = np.random.default_rng(point["seed"])
        self.order = np.tile([0, 1], point["push"]).astype(np.uint8)

    def next(self) -> dict[str, pa.RecordBatch]:
        """Return the batches of the next push."""
        batches = {name: self._batch(side) for side, name in enumerate(STREAMS)}
        self.n += 1
        return batches

    def _batch(self, side: int) -> pa.RecordBatch:
        n, window = self.point["push"], self.point["window"]
        place = self.n * n + np.arange(n)
        recent = self.point["access"] == "recent"
        key = (place - self.chance.geometric(1 / RECENT, n)) % window if recent else self.chance.integers(0, window, n)
        key = np.where(self.chance.random(n) < self.point["matched"], key, -2 * place - side - 1)
        return pa.record_batch([pa.array(key + i) for i in range(COLUMNS + 1)], schema=SCHEMA)


class Filled(NamedTuple):
    """Bytes of a process whose windows are full: its own memory, the state in memory, and rows in files."""

    private: int
    state: int
    files: int


def run(way: str, point: Point, folder: str, control: Connection) -> None:
    """Run one way in a process of its own, as `WayProcess` asks. `folder` is the directory for rows in files."""
    windows = [eddy.Stream(name, SCHEMA, window=eddy.Rows(point["window"])) for name in STREAMS]
    runtime = eddy.Runtime(eddy.Query(windows, ["R.k = S.k"]), spill=None if way == MEMORY else folder)
    source = WidePushes(point)
    while (asked := control.recv()) != "end":
        if asked == "fill":
            for _ in range(point["window"] // point["push"] + 1):
                runtime.push(source.next(), source.order)
            memory = psutil.Process().memory_info()
            control.send(Filled(memory.rss - memory.shared, runtime.nbytes, runtime.file_bytes))
        elif asked == "push":
            batches = source.next()
            began = time.perf_counter()
            table = runtime.push(batches, source.order)
            taken = time.perf_counter() - began
            control.send((taken, (len(table), *(int(np.asarray(column).sum()) for column in table.columns))))
        else:
            Path(asked).write_text(str(os.getpid()))
            control.send(None)


class WayProcess:
    """A process that runs one way."""

    def __init__(self, way: str, point: Point, folder: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._control, other = spawn.Pipe()
        self._process = spawn.Process(target=run, args=(way, point, folder, other))
        self._process.start()
        other.close()

    def _ask(self, what: str) -> Any:
        self._control.send(what)
        return self._control.recv()

    def fill(self) -> Filled:
        """Fill the windows."""
        filled: Filled = self._ask("fill")
        return filled

    def push(self) -> tuple[float, object]:
        """Push the next rows; return the seconds, and the number of results and the sum of each column."""
        pushed: tuple[float, object] = self._ask("push")
        return pushed

    def join(self, group: Path) -> None:
        """Make the process a member of a group, named by its file of processes."""
        self._ask(str(group))

    def end(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._control.send("end")
        self._process.join(60)
        self._process.kill()


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one point."""
    with tempfile.TemporaryDirectory(prefix="eddy-spill-") as folder, ExitStack() as stack:
        ways = {}
        for way in (MEMORY, FILES, LIMITED):
            ways[way] = WayProcess(way, point, folder)
            stack.callback(ways[way].end)
        return _measured(point, ways, say)


def _measured(point: Point, ways: dict[str, WayProcess], say: Say) -> list[Row]:
    name, filled = f"{point['access']}.{point['matched']}", {}
    for way in (MEMORY, FILES):
        say(f"{name}: filling the windows, {way}")
        filled[way] = ways[way].fill()
    with memory_limit(filled[FILES].private + filled[FILES].files // CACHED) as group:
        works = {way: process.push for way, process in ways.items() if way != LIMITED or group is not None}
        if group is not None:
            say(f"{name}: filling the windows, {LIMITED}")
            ways[LIMITED].join(group)
            ways[LIMITED].fill()
        taken = take_turns(name, works, point["turns"], say)
        # A group can be removed once it has no process.
        ways[LIMITED].end()
    rows: list[Row] = [{"figure": f"{name}.{way}", **speed(taken, way, MEMORY)} for way in works if way != MEMORY]
    if group is None:
        rows.append({"skipped": "bounded memory: this process may not make a control group, which takes root on Linux"})
    rows.append({"figure": f"{name}.window_vs_memory", "value": filled[MEMORY].state / filled[FILES].state})
    rate = 2 * point["push"] / median(taken[MEMORY]) / 1e6
    return [*rows, {"figure": f"{name}.million_rows_a_second", "value": rate}]


NAMES = [f"{access}.{matched}" for access in ("recent", "even") for matched in (0.1, 1.0)]
WHAT = {
    FILES: "speed with rows in files that fit into memory, all in memory = 1",
    LIMITED: "speed with an eighth of the files in memory, all in memory = 1",
    "window_vs_memory": "state of the runtime in memory, that beside the files = 1",
    "million_rows_a_second": "million rows a second, all in memory",
}

FIGURES = (
    Figure(
        "spill-runtime",
        f"Two streams of {COLUMNS + 1} columns with ROWS windows on one key, in pushes of both (`Runtime(spill=…)`)."
        " Three processes take the same pushes in turns: one has all rows in memory, one has them in files, and the"
        " memory of one is bounded by a control group, cached pages included, so that an eighth of the files fits."
        f" The partner of a row is some {RECENT:,} rows older (`recent`) or any row of the window (`even`); the number"
        " is the share of rows with a partner. Results are compared after each push. Wall times.",
        points,
        measure,
        tables=(NAMED,),
        titles={f"{name}.{what}": f"{name}: {text}" for name in NAMES for what, text in WHAT.items()},
        bars={
            "recent.0.1.limited": "≥ 0.6",
            "even.0.1.limited": "≥ 0.15",
            "recent.1.0.limited": "≥ 0.6",
            "even.1.0.limited": "≥ 0.15",
        },
    ),
)
