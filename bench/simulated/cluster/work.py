"""Work of engines as counts, and its cost in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eddy.runtime import Runtime
from stairs.descriptors import V_MATCHES, V_PROBES


class WorkCounts(NamedTuple):
    """Counts of the work of a processor.

    pushes    calls of an engine
    rows      rows joined
    probes    chains walked
    matches   tuples found in the chains
    entries   entries of stored states computed or inserted
    results   results emitted
    loaded    rows loaded without a probe
    packed    rows, and entries of states, written into a package or forwarded
    """

    pushes: int = 0
    rows: int = 0
    probes: int = 0
    matches: int = 0
    entries: int = 0
    results: int = 0
    loaded: int = 0
    packed: int = 0

    def __add__(self, other: tuple[int, ...]) -> WorkCounts:  # type: ignore[override]
        return WorkCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: WorkCounts) -> WorkCounts:
        return WorkCounts(*(a - b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Costs:
    """Seconds of a processor of speed 1 for each unit of work, and for messages.

    push, row, probe, match, entry, result, load, pack   per unit of `WorkCounts`
    message   per control message handled

    The defaults are rounded medians of three calls of `fitted` on a busy machine of two cores; `fitted` fits the costs
    to your machine. A push has no cost, because nodes of the simulation push in small batches.
    """

    push: float = 0.0
    row: float = 1.9e-7
    probe: float = 6e-8
    match: float = 3e-8
    entry: float = 6e-7
    result: float = 1.2e-7
    load: float = 1.4e-7
    pack: float = 3e-8
    message: float = 1e-5

    def seconds(self, work: WorkCounts) -> float:
        """Return the time of some work at speed 1."""
        unit = (self.push, self.row, self.probe, self.match, self.entry, self.result, self.load, self.pack)
        return sum(count * cost for count, cost in zip(work, unit, strict=True))


def counters(runtime: Runtime) -> WorkCounts:
    """Return the probes, matches and entries of an engine since its start. O(hops)."""
    strategy = runtime._pipeline.join.strategy
    counts = strategy.routes.counts
    probes = int(counts[V_PROBES].sum() + strategy.past[:, 0].sum())
    matches = int(counts[V_MATCHES].sum() + strategy.past[:, 1].sum())
    strategy_counts = strategy.counters()
    return WorkCounts(
        probes=probes,
        matches=matches,
        entries=strategy_counts.get("computed", 0) + strategy_counts.get("intermediate", 0),
    )
