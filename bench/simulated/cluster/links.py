"""Links of the simulation: latency, bandwidth, and the order of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stairs.errors import InputError

Delay = Callable[[str, str, int], float]
"""Extra seconds of the n-th message from one address to another."""


@dataclass(frozen=True)
class Link:
    """A link between two processes of different machines.

    latency    seconds
    bandwidth  bytes per second
    delay      extra seconds of the n-th message, as a function (from, to, n); for tests of interleavings
    """

    latency: float = 0.0005
    bandwidth: float = 125e6
    delay: Delay | None = None

    def __post_init__(self) -> None:
        if self.latency < 0 or not self.bandwidth > 0:
            raise InputError(f"{self}: a latency is 0 or more, and a bandwidth is above 0")


class Links:
    """All links, one for every pair of addresses. The messages of a link arrive in order."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._free: dict[tuple[str, str], float] = {}
        self._last: dict[tuple[str, str], float] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def arrival(self, source: str, to: str, nbytes: int, now: float) -> float:
        """Return the arrival time of a message of some bytes that is sent now."""
        pair = source, to
        count = self._counts[pair] = self._counts.get(pair, -1) + 1
        begin = max(now, self._free.get(pair, 0.0))
        self._free[pair] = end = begin + nbytes / self.link.bandwidth
        more = self.link.delay(source, to, count) if self.link.delay is not None else 0.0
        arrival = max(end + self.link.latency + more, self._last.get(pair, 0.0))
        self._last[pair] = arrival
        return arrival
