"""The query and the streams of the plan migration paper: A, B, C and D in a chain, Poisson arrivals, one time window.

Each pair of neighbours joins on its own attribute: A.x = B.x, B.y = C.y, C.z = D.z. Keys are uniform over 1 / reduction
factor values, so the reduction factor is the probability that two tuples join.

The paper's rates are some tens of tuples a second. At `scale` k there are k times as many tuples and k times as many
keys, so each tuple has as many partners as in the paper, and every state has k times the entries.
Source: Zhu, Rundensteiner, Heineman, SIGMOD 2004, sec. 6.1 and table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from time import thread_time
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.harness.figure import Row, number
from eddy import Query, Range, Runtime, Stream
from eddy.routing.strategies import strategy_name

NAMES = "ABCD"
PAIRS = ("ab", "bc", "cd")
OLD, NEW = "((A B) C) D", "A ((B C) D)"
"""The plans of the paper's figure 4. Both have height 3; they share no inner state."""
HEIGHT = 3
COLUMNS = {"A": ("x",), "B": ("x", "y"), "C": ("y", "z"), "D": ("z",)}
JOINS = [("A.x", "B.x"), ("B.y", "C.y"), ("C.z", "D.z")]

Int64s = npt.NDArray[np.int64]
Push = tuple[dict[str, pa.RecordBatch], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class MigrationSetting:
    """A column of table 2, at a scale.

    w_ms    the window of every stream
    delays  ms: mean delay from one tuple to the next of A, B, C and D, as in the paper
    sigmas  reduction factors of A ⋈ B, B ⋈ C and C ⋈ D, as in the paper
    scale   factor of the numbers of tuples and keys
    """

    w_ms: int
    delays: tuple[float, float, float, float]
    sigmas: tuple[float, float, float]
    scale: int = 1

    @classmethod
    def of(cls, row: Row) -> MigrationSetting:
        """Return the setting of a point made with `columns`, or of a row of it."""
        a, b, c, d = (number(row, f"i_{name.lower()}_ms") for name in NAMES)
        ab, bc, cd = (number(row, f"sigma_{pair}") for pair in PAIRS)
        return cls(int(number(row, "w_ms")), (a, b, c, d), (ab, bc, cd), int(number(row, "scale")))

    def columns(self) -> dict[str, str | int | float | bool]:
        """Return the setting as columns of a point."""
        return {
            "w_ms": self.w_ms,
            **{f"i_{name.lower()}_ms": delay for name, delay in zip(NAMES, self.delays, strict=True)},
            **{f"sigma_{pair}": sigma for pair, sigma in zip(PAIRS, self.sigmas, strict=True)},
            "scale": self.scale,
        }

    @property
    def rates(self) -> tuple[float, ...]:
        """Tuples a second of each stream, at this scale."""
        return tuple(1e3 * self.scale / delay for delay in self.delays)

    @property
    def keys(self) -> tuple[int, ...]:
        """Number of values of each attribute, at this scale."""
        return tuple(round(self.scale / sigma) for sigma in self.sigmas)

    def query(self, names: str = NAMES) -> Query:
        """Return the join of neighbouring streams, all four if none are named."""
        window = Range(timedelta(milliseconds=self.w_ms))
        streams = [Stream(name, _schema(name), window=window, time="t") for name in names]
        joins = [f"{left} = {right}" for left, right in JOINS if left[0] in names and right[0] in names]
        return Query(streams, joins, watermark="fastest")  # as in the paper, all tuples come in order of time


def _schema(name: str) -> pa.Schema:
    return pa.schema([*((column, pa.int64()) for column in COLUMNS[name]), ("t", pa.timestamp("us"))])


@dataclass(frozen=True)
class PaperArrivals:
    """Tuples of all streams in the order of arrival.

    order  uint8[n], the stream of each tuple
    times  int64[n], µs since the start, ascending
    keys   int64[n, 2], the attributes of its stream; the second is 0 in A and D
    """

    setting: MigrationSetting
    order: npt.NDArray[np.uint8]
    times: Int64s
    keys: Int64s

    def pushes(self, edges_ms: Sequence[float]) -> list[Push]:
        """Return the tuples between each edge and the next as one push, beginning at 0.

        A tuple that comes at an edge belongs to the later push. Tuples after the last edge are in no push.
        """
        bounds = np.searchsorted(self.times, 1e3 * np.array([0.0, *edges_ms]), side="left")
        return [self.between(int(first), int(last)) for first, last in pairwise(bounds)]

    def between(self, first: int, last: int) -> Push:
        """Return tuples first .. last - 1 as a push: rows by stream, and their order."""
        order = self.order[first:last]
        rows = {}
        for i, name in enumerate(NAMES):
            positions = np.flatnonzero(order == i) + first
            columns = [pa.array(self.keys[positions, k]) for k in range(len(COLUMNS[name]))]
            times = pa.array(self.times[positions], pa.timestamp("us"))
            rows[name] = pa.RecordBatch.from_arrays([*columns, times], schema=_schema(name))
        return rows, order

    def first_at(self, ms: float) -> int:
        """Return the number of the first tuple that comes at `ms` or later."""
        return int(np.searchsorted(self.times, 1e3 * ms, side="left"))


def draw(setting: MigrationSetting, stream_ms: int, seed: int) -> PaperArrivals:
    """Return the tuples of `stream_ms`. The same seed gives the same arrivals for every window."""
    rng = np.random.default_rng(seed)
    times, order, keys = [], [], []
    for i, name in enumerate(NAMES):
        moments = _poisson(1e3 * setting.delays[i] / setting.scale, 1e3 * stream_ms, rng)
        drawn = np.zeros((len(moments), 2), np.int64)
        for k in range(len(COLUMNS[name])):
            drawn[:, k] = rng.integers(0, setting.keys[max(i - 1, 0) + k], len(moments))
        times.append(moments)
        order.append(np.full(len(moments), i, np.uint8))
        keys.append(drawn)
    all_moments = np.concatenate(times)
    by_time = np.argsort(all_moments, kind="stable")
    return PaperArrivals(setting, np.concatenate(order)[by_time], all_moments[by_time], np.concatenate(keys)[by_time])


def _poisson(delay: float, until: float, rng: np.random.Generator) -> Int64s:
    """Return the moments of a Poisson process before `until`, whole µs; delays are exponential with this mean."""
    expected = until / delay
    moments = np.cumsum(rng.exponential(delay, int(expected + 8 * np.sqrt(expected) + 16)))
    return cast(Int64s, moments[moments < until].astype(np.int64))


@dataclass(frozen=True)
class StrategyRun:
    """The run of a strategy over the stream.

    Each push has an entry: CPU seconds of the push and of the transition before it, results, and entries of inner
    states of all running plans after it.

    made   entries immediately after the transition
    ended  the number of the tuple with which the stage ended, None if the stage did not end
    """

    seconds: list[float]
    stall: list[float]
    results: list[int]
    entries: list[int]
    made: int = 0
    ended: int | None = None


def run(
    setting: MigrationSetting,
    pushes: Sequence[Push],
    strategy: str,
    change: int | None,
    plan: str = OLD,
    purge: Literal["exact", "paper"] = "exact",
) -> StrategyRun:
    """Take the pushes, and change from `plan` to the new one before push number `change`."""
    runtime = Runtime(setting.query(), plan, strategy=strategy_name(strategy), count_only=True, purge=purge)
    seconds, stall, results, entries, made = [], [], [], [], 0
    for k, push in enumerate(pushes):
        start = thread_time()
        if k == change:
            runtime.transition(NEW)
        middle = thread_time()
        if k == change:
            made = sum(stair.rows for stair in runtime.stairs)
        again = thread_time()
        table = runtime.push(*push)
        seconds.append(thread_time() - again)
        stall.append(middle - start if k == change else 0.0)
        results.append(counted(table))
        entries.append(sum(stair.rows for stair in runtime.stairs))
    history = runtime.history()
    runtime.dismantle()
    return StrategyRun(
        seconds, stall, results, entries, made, history["ended"][0].as_py() if history.num_rows else None
    )


def counted(table: pa.Table) -> int:
    """Return the number of results of a push of a Runtime that counts."""
    return int(table.column("count")[0].as_py())


def steps(first: float, last: float, step: float) -> list[float]:
    """Return the edges of pushes after `first`, up to `last` itself."""
    return [*np.arange(first + step, last - step / 1e3, step).tolist(), float(last)] if last > first else []
