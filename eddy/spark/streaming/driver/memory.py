"""The bound `memory=` on the bytes of engines on each host, and the shares of its workers.

Each worker has a share, and keeps its live engines within the share (`worker/engines.py`). Shares are max-min fair: no
worker gets more than it needs while another worker gets less than it needs. Bytes that no worker needs are divided
evenly, for engines that grow. The need of a worker is the number of bytes of all its engines, live or spilled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from eddy.show.text import bytes_text
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.worker.engines import Holding
from eddy.spark.streaming.worker.tasks import MemoryReport


def check_bound(memory: int | None, empty: int) -> None:
    """Raise SparkJoinError for a bound that is smaller than an empty engine, of `empty` bytes."""
    if memory is not None and memory < empty:
        raise SparkJoinError(
            f"memory={memory:,}: an engine without rows takes {empty:,} bytes already; give the bytes that all engines"
            " on a host may take"
        )


def fair(bound: int, needs: Sequence[int]) -> list[int]:
    """Return max-min fair shares of a bound for workers with these needs, in bytes. O(workers * log workers).

    >>> fair(100, [10, 50, 70]), fair(100, [10, 30])
    ([10, 45, 45], [40, 60])
    """
    shares, left = [0] * len(needs), bound
    order = sorted(range(len(needs)), key=needs.__getitem__)
    for done, k in enumerate(order):
        shares[k] = min(needs[k], left // (len(needs) - done))
        left -= shares[k]
    return [share + left // len(needs) for share in shares]


def shares(bound: int, holdings: Sequence[Holding]) -> list[int]:
    """Return the share of the worker of each task; the shares on a host add up to the bound at most."""
    tasks: dict[str, list[int]] = defaultdict(list)
    for task, holding in enumerate(holdings):
        tasks[holding.host].append(task)
    by_task = [0] * len(holdings)
    for host_tasks in tasks.values():
        for task, share in zip(host_tasks, fair(bound, [holdings[task].nbytes for task in host_tasks]), strict=True):
            by_task[task] = share
    return by_task


class HostMemory(NamedTuple):
    """The engines on one host after a micro-batch; see `worker.tasks.MemoryReport`.

    share  the least share of its workers, None = no bound
    peak   sum of the peaks of its workers, which need not coincide
    """

    workers: int
    share: int | None
    live: int
    nbytes: int
    peak: int
    spilled: int
    spilled_bytes: int


def by_host(reports: Sequence[MemoryReport]) -> dict[str, HostMemory]:
    """Return the figures of each host."""
    hosts: dict[str, list[MemoryReport]] = defaultdict(list)
    for report in reports:
        hosts[report.host].append(report)
    return {
        host: HostMemory(
            len(host_reports),
            min((report.share for report in host_reports if report.share is not None), default=None),
            sum(report.live for report in host_reports),
            sum(report.nbytes for report in host_reports),
            sum(report.peak for report in host_reports),
            sum(report.spilled for report in host_reports),
            sum(report.spilled_bytes for report in host_reports),
        )
        for host, host_reports in sorted(hosts.items())
    }


def memory_figures(reports: Sequence[MemoryReport]) -> dict[str, int]:
    """Return the figures of a micro-batch: of the fullest host, and sums over all hosts."""
    hosts = by_host(reports).values()
    return {
        "memory_bytes": max((host.nbytes for host in hosts), default=0),
        "memory_peak_bytes": max((host.peak for host in hosts), default=0),
        "spilled_bytes": sum(host.spilled_bytes for host in hosts),
        "trims": sum(report.trims for report in reports),
        "spills": sum(report.spills for report in reports),
        "drops": sum(report.drops for report in reports),
    }


def explain_memory(memory: int | None, reports: Sequence[MemoryReport], hits: Sequence[tuple[str, float]]) -> str:
    """Return a text on the memory of the engines.

    hits   source of an engine -> number of joins of a key group with an engine of this source since the start
    """
    bound = "no bound" if memory is None else f"{bytes_text(memory)} for the engines of each host"
    lines = [f"memory: {bound}"]
    for host, figures in by_host(reports).items():
        share = "" if figures.share is None else f", each {bytes_text(figures.share)} or more"
        spilled = (
            f"; {figures.spilled} spilled in {bytes_text(figures.spilled_bytes)} of files" if figures.spilled else ""
        )
        lines.append(
            f"  host {host}: {figures.live} engines in {bytes_text(figures.nbytes)}, at most"
            f" {bytes_text(figures.peak)} during the"
            f" batch{spilled}; {figures.workers} workers{share}"
        )
    joins = sum(count for _, count in hits)
    if joins:
        sources = ", ".join(f"{name} {count:,.0f} ({count / joins:.0%})" for name, count in hits)
        lines.append(f"  engines since the start: {sources}")
    return "\n".join(lines)


def too_small(memory: int, reports: Sequence[MemoryReport], largest: tuple[int, int]) -> str | None:
    """Return a warning if the largest engine (key group, bytes) does not fit into a share; else None."""
    group, nbytes = largest
    least = min((report.share for report in reports if report.share is not None), default=None)
    if least is None or nbytes <= least:
        return None
    return (
        f"memory={memory:,}: the engine of key group {group} takes {nbytes:,} bytes, but the share of a worker is"
        f" {least:,}: it is spilled after every micro-batch with rows for it, and exceeds the bound while it joins;"
        " raise memory=, or begin a checkpoint with more key_groups"
    )
