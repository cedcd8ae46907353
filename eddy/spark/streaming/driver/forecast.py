"""Predicts from measured figures how many CPU seconds a micro-batch takes in each placement of a streaming join.

The tasks sample the keys of the rows, and the log counts the live rows. As in a batch join, a forecast uses these
figures to find the cheapest plan in hops. The forecast predicts the seconds of this plan and of the grid, over all
tasks: the work of a micro-batch, times the costs of its parts. The costs are those of the join itself: they are fitted
to the CPU seconds that its tasks took in each placement (`eddy/spark/hops/measured.py`). A placement that never ran has
the default costs, times the ratio of fitted to default costs of the other placement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eddy.log import LOG
from eddy.placement.keys import classes_of
from eddy.placement.shares import Shares
from eddy.placement.synopses import Distribution, Synopsis, distribution
from eddy.query.query import Query
from eddy.spark.hops.costs import TaskCosts, TaskWork, bytes_of_row, grid_work, hops_work, planner_of
from eddy.spark.hops.hops import Hops
from eddy.spark.hops.measured import PlacementCosts
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.worker.samples import Sample

GRID = TaskCosts(0.0, 0.0022, 1.4e-8, 1.6e-8, 7e-10, 6e-8, 8.2e-8)
HOPS = TaskCosts(0.0, 0.004, 1.5e-8, 1.7e-7, 7e-10, 1e-7, 3.8e-8)
"""The default costs; a task is a key group in the grid, and a node in a round of hops.

Fitted by least squares of relative errors to the CPU seconds that the tasks of 126 micro-batches took: the points of
`eddy bench placement-stream --full`, on two cores that also ran other work. The predictions are off by 11 % in the
median. The fit leaves out micro-batches in which all engines took several times as long, probably because they grew."""
SAMPLE_ROWS = 4096
"""Approximate number of rows of a stream that are sampled in a micro-batch."""
SAMPLES = 4
"""Number of micro-batches whose samples count, with all of their keys."""
WEIGHT = 0.25
"""The weight of the newest micro-batch in the smoothed rates of the streams."""


@dataclass(frozen=True)
class Forecast:
    """CPU seconds of a micro-batch, over all tasks.

    hops        the cheapest plan
    grid_s, hops_s   seconds of the grid, and of the cheapest plan
    present_s   seconds of the running plan, None if no plan runs
    rebuilt_s   seconds to make copies or engines from the log
    """

    hops: Hops
    grid_s: float
    hops_s: float
    present_s: float | None
    rebuilt_s: float


class Forecasts:
    """The forecasts of one join, from the figures of its micro-batches.

    measured   the costs of the join, which each micro-batch updates
    """

    def __init__(self, job: Job, nodes: int, measured: PlacementCosts) -> None:
        self._job = job
        self._planner = planner_of(job.query, nodes, HOPS)
        self._nodes = nodes
        self._rates: list[float] = [0.0] * len(job.query.streams)
        self._samples: list[deque[Sample]] = [deque(maxlen=SAMPLES) for _ in job.query.streams]
        self._keys: list[dict[int, Distribution]] | None = None
        """The distributions of the keys; None if there are new samples."""
        self._measured = measured

    def steps(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the distance between two sampled rows of each stream, given the rows of the micro-batch by stream."""
        return tuple(max(1, count // SAMPLE_ROWS) for count in rows)

    def add(self, rows: Sequence[int], samples: Iterable[Mapping[int, Sample]]) -> None:
        """Take the rows of a micro-batch by stream, and the samples of its tasks."""
        parts: dict[int, list[Sample]] = {}
        for task in samples:
            for stream, sample in task.items():
                parts.setdefault(stream, []).append(sample)
        for stream, of_stream in parts.items():
            self._samples[stream].append({c: np.concatenate([part[c] for part in of_stream]) for c in of_stream[0]})
        for stream, count in enumerate(rows):
            before = self._rates[stream]
            self._rates[stream] = before + (WEIGHT if before else 1.0) * (count - before)
        self._keys = None

    def took(self, hops: Hops | None, rows: Sequence[int], live: Sequence[int], seconds: float) -> None:
        """Take the CPU seconds that a micro-batch took in hops, or None in the grid.

        rows, live   of each stream: in the micro-batch, and in the windows before it
        """
        if not all(self._samples):
            return
        streams = self._synopses(rows, live)
        work = self._grid_work(streams) if hops is None else self._hops_work(hops, streams)
        kept, usual = (self._measured.grid, GRID) if hops is None else (self._measured.hops, HOPS)
        way = "the grid" if hops is None else "hops"
        LOG.debug("placement: %s, usually %.3g s, took %.3g s in %s", work, usual.seconds(work), seconds, way)
        kept.add(work, seconds)

    def costs(self) -> tuple[TaskCosts, TaskCosts]:
        """Return the costs of the grid and of hops."""
        measured = self._measured
        grid, hops = measured.grid.factor(GRID), measured.hops.factor(HOPS)
        factors = [factor for factor in (grid, hops) if factor is not None]
        other = factors[0] if factors else 1.0
        return (
            measured.grid.costs(GRID, other if grid is None else grid),
            measured.hops.costs(HOPS, other if hops is None else hops),
        )

    def forecast(self, live: Sequence[int], present: Hops | None) -> Forecast | None:
        """Return the forecast; None before each stream had rows.

        live      rows of each stream in the windows
        present   the hops that run
        """
        if not all(self._samples):
            return None
        streams = self._synopses(self._rates, live)
        planned = Hops(self._nodes, self._planner.starts, dict(enumerate(self._planner.hop_routes(streams))), True)
        grid, hops = self.costs()
        return Forecast(
            planned,
            grid.seconds(self._grid_work(streams)),
            hops.seconds(self._hops_work(planned, streams)),
            None if present is None else hops.seconds(self._hops_work(present, streams)),
            sum(rows * _moved(self._job.query, self._job.shares, i) for i, rows in enumerate(live)),
        )

    def _grid_work(self, streams: Sequence[Synopsis]) -> TaskWork:
        return grid_work(self._planner, self._job.shares, streams)

    def _hops_work(self, hops: Hops, streams: Sequence[Synopsis]) -> TaskWork:
        dealt: dict[int, set[int]] = {}
        for stream, c in (*hops.copies, *hops.entries.items()):
            dealt.setdefault(stream, set()).add(c)
        return hops_work(self._planner, hops, streams, [dealt])

    def _synopses(self, rates: Sequence[float], live: Sequence[int]) -> list[Synopsis]:
        """Return the synopses of the streams, with the same distributions until new samples come.

        rates   rows of each stream in a micro-batch
        """
        if self._keys is None:
            # Each pair of distributions is compared once.
            self._keys = [
                {
                    c: distribution(np.concatenate([sample[c] for sample in kept]), SAMPLES * SAMPLE_ROWS)
                    for c in classes
                }
                for classes, kept in zip(classes_of(self._job.query), self._samples, strict=True)
            ]
        synopses = []
        for stream, keys, rate, held in zip(self._job.query.streams, self._keys, rates, live, strict=True):
            rows = max(rate, 1.0)
            synopses.append(Synopsis(rows, held + rows, bytes_of_row(stream.schema), keys))
        return synopses


def _moved(query: Query, shares: Shares, stream: int) -> float:
    """Return the seconds to read a row of the log and to insert it again."""
    row_bytes = bytes_of_row(query.streams[stream].schema)
    return HOPS.c_read + max(HOPS.carried(row_bytes), shares.copies(stream) * GRID.carried(row_bytes))
