"""Loads of partition groups: rows, entries of stored states, rows that wait, and seconds of work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from bench.simulated.cluster.balancing import GroupMemory
from bench.simulated.cluster.machine import Machine, MachineTurn
from bench.simulated.cluster.manager import Manager
from bench.simulated.cluster.records import GROUPS
from bench.simulated.cluster.split import SplitOperator


def kept(
    machines: Sequence[Machine | None], owners: Sequence[int] | None
) -> tuple[dict[int, GroupMemory], dict[int, int]]:
    """Return the memory of each group, and the number of its waiting rows. O(tracks + rows that wait).

    owners   per group the node whose copy counts; None = all copies, of which PTLB has two
    """
    states: dict[int, GroupMemory] = defaultdict(lambda: GroupMemory(0, 0))
    waiting: dict[int, int] = defaultdict(int)
    for machine in machines:
        if machine is None:
            continue
        for (group, _), track in machine.processor.tracks.items():
            if owners is None or owners[group] == machine.number:
                stairs = [] if track.runtime is None else track.runtime.stairs
                rows, entries = states[group]
                states[group] = GroupMemory(rows + track.n_rows, entries + sum(stair.rows for stair in stairs))
        for queued in machine.queue:
            for entry in queued.entries:
                waiting[entry.group] += 0 if entry.rows is None else len(entry.rows)
    return states, waiting


class Loads:
    """The work of all groups, in this period and before it."""

    def __init__(self) -> None:
        self._period: dict[int, float] = defaultdict(float)
        """Seconds of work of each group in this period, at speed 1."""
        self._before: dict[int, float] = defaultdict(float)
        self._joined = 0

    def turned(self, machine: Machine, done: MachineTurn) -> None:
        """Count a turn of a machine."""
        for group, seconds in done.by_group.items():
            self._period[group] += seconds * machine.speed
        self._joined += sum(rows.n_rows for rows in done.rows)

    def in_time(self, groups: Sequence[int], waiting: Mapping[int, int], seconds: float) -> dict[int, float]:
        """Return the seconds of work per second of each group in a period, including the work of waiting rows."""
        row = sum(self._period.values()) / max(1, self._joined)
        return {group: (self._period[group] + waiting[group] * row) / seconds for group in groups}

    def next_period(self) -> None:
        """Begin a new period."""
        for group, seconds in self._period.items():
            self._before[group] += seconds
        self._period.clear()
        self._joined = 0

    def table(self, machines: Sequence[Machine | None], manager: Manager, splits: Sequence[SplitOperator]) -> pa.Table:
        """Return one row per group."""
        states, waiting = kept(machines, None)
        joined: dict[int, list[int]] = defaultdict(lambda: [0] * len(splits))
        for machine in machines:
            for (group, _), track in (machine.processor.tracks if machine else {}).items():
                for i, intervals in enumerate(track.known.intervals):
                    joined[group][i] = max(joined[group][i], intervals[-1][1] if intervals else 0)
        rows = [
            {
                "group": group,
                "node": node,
                "rows": states[group].rows,
                "entries": states[group].entries,
                "waiting": waiting[group],
                "joined": joined[group],
                "work": self._before[group] + self._period[group],
            }
            for group, node in enumerate(manager.owners)
        ]
        return pa.Table.from_pylist(rows, schema=GROUPS)
