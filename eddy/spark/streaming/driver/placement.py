"""Where the join steps of a streaming join run: in one round over the grid of key groups, or in hops over nodes.

The placement may change in each micro-batch. All rows are in the log, and tasks use an engine or a copy of a window
only in the state that the newest manifest names. So a change needs no protocol: the tasks make missing engines or
copies from the rows of the log, and the commit of the manifest completes the change.

Each manifest stores the requested placement, the hops that ran, and the figures to which the costs of this join are
fitted. A start without a requested placement continues with all of them; "hops" and "auto" begin with the hops and the
costs.

"hops" and "auto" choose plans by forecasts; "auto" also chooses between hops and the grid. For a change, several
successive forecasts must predict a sufficient gain that exceeds the cost of reading the log. After a change the new
placement stays for a number of micro-batches.

Samples and forecasts take time themselves. So every micro-batch is measured at the start, after a change, and while a
change is predicted to be worthwhile; otherwise one in several micro-batches is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from eddy.log import LOG
from eddy.placement.keys import classes_of
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.hops.hops import Hops, own_hops
from eddy.spark.hops.measured import PlacementCosts
from eddy.spark.hops.placing import Placement, check_placement
from eddy.spark.hops.saved import SavedPlacement, saved
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.operators import why_unplaced
from eddy.spark.streaming.driver.forecast import Forecast, Forecasts
from eddy.spark.streaming.worker.samples import Sample

WORTH = 1.1
"""Least predicted gain, as a factor of speed, for which a job changes its placement."""
PATIENCE, REST = 2, 6
"""Successive micro-batches in which another placement must be better; micro-batches without a change after a change."""
EVERY = 4
"""While no other placement is predicted to be better, one in EVERY micro-batches is measured."""
HORIZON = 32
"""Number of micro-batches within which the gain of a change must exceed its cost."""


def check_streaming(job: Job, placement: Placement, memory: int | None) -> None:
    """Raise SparkJoinError, or PlanError for a plan, unless a streaming join can be placed in this way."""
    check_placement(placement)
    why = None if placement == "grid" else _why_grid(job, memory, placement == "auto")
    if why is not None and placement != "auto":
        raise SparkJoinError(f'placement={placement!r}: {why}; such a join runs in one round: pass "grid"')
    if isinstance(placement, Mapping):
        own_hops(job.query, placement, 1, timed=True)


def _why_grid(job: Job, memory: int | None, chosen: bool) -> str | None:
    """Return why a streaming join can only run in one round; None if it can run in hops.

        chosen   whether the placement is chosen by figures; this choice must not make a join fail that succeeds in the
    grid
    """
    why = why_unplaced(job.query)
    if why is None and job.changing:
        return "output='changelog' takes results back, and hops have no windows whose rows end"
    if why is None and memory is not None:
        return "memory= bounds engines, and hops have none; max_bytes= bounds a node"
    if why is None and chosen and job.options.max_bytes is not None:
        return "max_bytes= bounds an engine, and a node of hops takes more"
    return why


def nearest(query: Query) -> dict[str, list[tuple[str, str]]]:
    """Return a plan for each head before the first measurement: each step joins the next stream that is connected."""
    names, classes, plan = query.graph.names, classes_of(query), {}
    for head in range(len(names)):
        bound, left, steps = set(classes[head]), set(range(len(names))) - {head}, []
        while left:
            j = min((j for j in left if bound & classes[j]), key=lambda j: abs(j - head))
            steps.append((names[j], "ship"))
            bound |= classes[j]
            left.remove(j)
        plan[names[head]] = steps
    return plan


class Placing:
    """The placement of a running join. Thread-safe.

    nodes       number of nodes in hops
    placement   None = the placement that `before` requested, "grid" without `before`
    before      the placement of the newest manifest
    """

    def __init__(
        self,
        job: Job,
        nodes: int,
        placement: Placement | None,
        memory: int | None,
        before: SavedPlacement | None = None,
    ) -> None:
        self._job, self._nodes, self._memory = job, nodes, memory
        self._lock = Lock()
        self._asked: Placement = "grid"
        self._measured = PlacementCosts() if before is None else before.costs
        self._forecasts: Forecasts | None = None
        self._live: Sequence[int] = [0] * len(job.query.streams)
        self._better = self._rest = self._watched = self._unmeasured = 0
        self._measures = self._fresh = False
        """Whether the newest micro-batch is measured, and whether figures exist that no forecast has used."""
        self._forecast: Forecast | None = None
        self.hops: Hops | None = None
        """The hops of the newest planned micro-batch; None in one round."""
        asked = placement if placement is not None else "grid" if before is None else before.asked
        self.ask(asked)
        if before is not None and asked in ("hops", "auto") and self._why_grid(asked) is None:
            self.hops = before.hops(job.query, nodes)

    def _why_grid(self, placement: Placement) -> str | None:
        return _why_grid(self._job, self._memory, placement == "auto")

    def ask(self, placement: Placement) -> None:
        """Request another placement from the next micro-batch on."""
        if isinstance(placement, Mapping):
            # The caller may change its plan object later, so the checked plan is copied and the copy runs.
            placement = {
                head: tuple(route) if isinstance(route, Iterable) else route for head, route in placement.items()
            }
        check_streaming(self._job, placement, self._memory)
        with self._lock:
            self._asked = placement
            self._better, self._rest, self._watched = 0, 0, REST
            follows = placement in ("hops", "auto") and self._why_grid(placement) is None
            if not follows:
                self._forecasts = None
            elif self._forecasts is None:
                self._forecasts = Forecasts(self._job, self._nodes, self._measured)

    @property
    def measures(self) -> bool:
        """Whether the newest micro-batch that was planned is measured."""
        return self._measures

    def next(self) -> Hops | None:
        """Return the hops of the next micro-batch, None for one round."""
        with self._lock:
            asked = self._asked
            if isinstance(asked, Mapping):
                self.hops = own_hops(self._job.query, asked, self._nodes, timed=True)
            else:
                self.hops = None if self._forecasts is None else self._decided(self._forecasts, asked)
            watched = self._forecast is None or self._better or self._watched
            self._measures = self._forecasts is not None and bool(watched or self._unmeasured + 1 >= EVERY)
            self._unmeasured = 0 if self._measures else self._unmeasured + 1
            self._watched -= self._watched > 0
            self._rest -= self._rest > 0
            return self.hops

    def _decided(self, forecasts: Forecasts, asked: str) -> Hops | None:
        now = self.hops
        if asked == "hops" and now is None:
            now = own_hops(self._job.query, nearest(self._job.query), self._nodes, timed=True)
        if not self._fresh:
            return now
        forecast, self._fresh = forecasts.forecast(self._live, now), False
        if forecast is None:
            return now
        self._forecast = forecast
        ways: list[tuple[float, Hops | None]] = [(forecast.hops_s, forecast.hops)]
        if asked == "auto":
            ways.append((forecast.grid_s, None))
        least, best = min(ways, key=lambda way: way[0])
        present = forecast.grid_s if forecast.present_s is None else forecast.present_s
        pays = least * WORTH < present and (present - least) * HORIZON > forecast.rebuilt_s
        self._better = self._better + 1 if pays and not self._rest else 0
        if self._better < PATIENCE:
            return now
        LOG.info("the join changes to %s: predicted %.3g s instead of %.3g s", _kind(best), least, present)
        self._better, self._rest, self._watched = 0, REST, REST
        return best

    def saved(self, hops: Hops | None) -> dict[str, Any]:
        """Return the entries of a manifest: the requested placement, the hops that ran, and the costs."""
        with self._lock:
            return saved(self._job.query, self._asked, hops, self._measured)

    def steps(self, rows: Sequence[int]) -> tuple[int, ...] | None:
        """Return the distance between two rows that the tasks sample, for each stream; None if they sample no row."""
        forecasts = self._forecasts
        return forecasts.steps(rows) if forecasts is not None and self._measures else None

    def saw(
        self,
        rows: Sequence[int],
        live: Sequence[int],
        samples: Sequence[Mapping[int, Sample]],
        seconds: float | None,
    ) -> None:
        """Take the figures of a committed micro-batch.

        rows, live   of each stream: in the batch, and in the log before it
                seconds      CPU seconds of its tasks; None if they are not usable as a measurement of the placement
        """
        with self._lock:
            if self._forecasts is not None:
                self._forecasts.add(rows, samples)
                if seconds is not None:
                    self._forecasts.took(self.hops, rows, live, seconds)
                self._live, self._fresh = live, True

    def explain(self) -> str:
        """Return a text on the placement."""
        with self._lock:
            asked, forecast, hops = self._asked, self._forecast, self.hops
        how = f"{asked!r}" if isinstance(asked, str) else "a plan for each head"
        why = self._why_grid(asked) if asked == "auto" else None
        lines = [f"placement: {_kind(hops)}; {how} is asked for{'' if why is None else f', and {why}'}"]
        if hops is not None:
            labels = [f"[{key_class}]" for key_class in self._job.shares.classes]
            lines += hops.lines(self._job.query.graph.names, labels)
        if forecast is not None and self._forecasts is not None:
            lines.append(
                f"  predicted per micro-batch: {forecast.grid_s:.3g} s in the grid, {forecast.hops_s:.3g} s in hops"
            )
        if self._forecasts is not None:
            grid, hop = len(self._measured.grid), len(self._measured.hops)
            lines.append(f"  costs fitted to the micro-batches of this join: {grid} in the grid, {hop} in hops")
        return "\n".join(lines)


def _kind(hops: Hops | None) -> str:
    if hops is None:
        return "one round over the grid of key groups"
    return f"{hops.rounds} rounds of hops over {hops.partitions} nodes"
