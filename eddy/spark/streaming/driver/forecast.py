"""Predicts from measured figures how many CPU seconds a micro-batch takes in each placement of a streaming join.

The tasks sample the keys of the rows, and the log counts the live rows. As in a batch join, a forecast uses these
figures to find the plan in hops that costs least. It predicts the seconds of this plan and of the grid, over all tasks.
A prediction is a sum over rows dealt, inserts, probes and matches, and a fixed amount for each key group, or for
each node and round. One factor per placement corrects it: the CPU seconds that tasks really took, over those predicted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eddy.log import LOG
from eddy.placement.keys import classes_of
from eddy.placement.synopses import Synopsis, distribution
from eddy.spark.hops.figures import bytes_of_row
from eddy.spark.hops.hops import Hops
from eddy.spark.hops.placing import TaskCosts, carried, grid_seconds, hops_seconds, planner_of
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.shares import Shares
from eddy.spark.streaming.worker.samples import Sample

GRID = TaskCosts(0.0, 0.001, 2e-8, 0.0, 0.0, 3e-7, 1.2e-7, 6e-8)
HOPS = TaskCosts(0.0, 0.004, 2e-8, 8e-8, 1e-9, 2e-7, 1.5e-7, 6e-8)
"""CPU seconds, fitted by hand to a few runs of chains on a busy machine with two cores; `c_task` of a key group, or of
a node in a round."""
SAMPLE_ROWS = 4096
"""About so many rows of a stream are sampled in a micro-batch."""
SAMPLES = 4
"""The samples of so many micro-batches count."""
WEIGHT = 0.25
"""The weight of the newest micro-batch in smoothed figures."""
MOST_FACTOR = 4.0
"""A prediction is corrected by this factor at most."""


@dataclass(frozen=True)
class Forecast:
    """CPU seconds of a micro-batch, over all tasks.

    hops        the plan that costs least
    grid_s, hops_s   of the grid, and of that plan
    present_s   of the plan that runs, None if none does
    rebuilt_s   to make copies or engines of the log
    """

    hops: Hops
    grid_s: float
    hops_s: float
    present_s: float | None
    rebuilt_s: float


class Figures:
    """The measured figures of one join."""

    def __init__(self, job: Job, nodes: int) -> None:
        self._job = job
        self._planner = planner_of(job.query, nodes, HOPS)
        self._nodes = nodes
        self._rates: list[float] = [0.0] * len(job.query.streams)
        self._samples: list[deque[Sample]] = [deque(maxlen=SAMPLES) for _ in job.query.streams]
        self._factors: dict[bool, float] = {}

    def steps(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return every how manieth row of each stream the tasks sample, for a micro-batch with these rows."""
        return tuple(max(1, own // SAMPLE_ROWS) for own in rows)

    def add(self, rows: Sequence[int], samples: Iterable[Mapping[int, Sample]]) -> None:
        """Take the rows of a micro-batch by stream, and the samples of its tasks."""
        parts: dict[int, list[Sample]] = {}
        for task in samples:
            for stream, sample in task.items():
                parts.setdefault(stream, []).append(sample)
        for stream, own in parts.items():
            self._samples[stream].append({c: np.concatenate([one[c] for one in own]) for c in own[0]})
        for stream, count in enumerate(rows):
            before = self._rates[stream]
            self._rates[stream] = before + (WEIGHT if before else 1.0) * (count - before)

    def correct(self, hops: Hops | None, live: Sequence[int], measured_s: float) -> None:
        """Take the CPU seconds that a micro-batch took in hops, or None in the grid, with these live rows before it."""
        if not all(self._samples):
            return
        streams = self._synopses(live)
        if hops is None:
            predicted_s = grid_seconds(self._planner, self._job.shares, streams, GRID)
        else:
            predicted_s = self._seconds(hops, streams)
        way = "the grid" if hops is None else "hops"
        LOG.debug("placement: predicted %.3g s, measured %.3g s in %s", predicted_s, measured_s, way)
        factor = min(MOST_FACTOR, max(1 / MOST_FACTOR, measured_s / max(predicted_s, 1e-9)))
        before = self.factor(hops is not None)
        self._factors[hops is not None] = before + WEIGHT * (factor - before)

    def factor(self, hops: bool) -> float:
        """Return the correction; what never ran is corrected like the other placement, for the same machine."""
        return self._factors.get(hops, self._factors.get(not hops, 1.0))

    def forecast(self, live: Sequence[int], present: Hops | None) -> Forecast | None:
        """Return the forecast; None before each stream had rows.

        live      rows of each stream in the windows
        present   the hops that run
        """
        if not all(self._samples):
            return None
        streams = self._synopses(live)
        planner, shares = self._planner, self._job.shares
        found = Hops(self._nodes, planner.starts, dict(enumerate(planner.hop_routes(streams))), True)
        in_grid, in_hops = self.factor(False), self.factor(True)
        return Forecast(
            found,
            in_grid * grid_seconds(planner, shares, streams, GRID),
            in_hops * self._seconds(found, streams),
            None if present is None else in_hops * self._seconds(present, streams),
            sum(rows * _moved(self._job, shares, i) for i, rows in enumerate(live)),
        )

    def _seconds(self, hops: Hops, streams: Sequence[Synopsis]) -> float:
        dealt: dict[int, set[int]] = {}
        for stream, c in (*hops.copies, *hops.entries.items()):
            dealt.setdefault(stream, set()).add(c)
        return hops_seconds(self._planner, hops, streams, HOPS, [dealt])

    def _synopses(self, live: Sequence[int]) -> list[Synopsis]:
        found = []
        for i, stream in enumerate(self._job.query.streams):
            hashes = {c: np.concatenate([one[c] for one in self._samples[i]]) for c in classes_of(self._job.query)[i]}
            keys = {c: distribution(own) for c, own in hashes.items()}
            rate = max(self._rates[i], 1.0)
            found.append(Synopsis(rate, live[i] + rate, bytes_of_row(stream.schema), keys))
        return found


def _moved(job: Job, shares: Shares, stream: int) -> float:
    """Return the seconds to read a row of the log and to insert it again."""
    row_bytes = bytes_of_row(job.query.streams[stream].schema)
    return HOPS.c_read + max(carried(HOPS, row_bytes), shares.copies(stream) * carried(GRID, row_bytes))
