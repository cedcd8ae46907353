"""A carrier for tests: it delivers the pending messages of actors in any order, one at a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bench.simulated.placement.messages import Sent


class Scheduler:
    """Delivers messages to `handlers` by node; `seed` picks the next one."""

    def __init__(self, handlers: Sequence[Callable[[Any], list[Sent]]], seed: int) -> None:
        self.handlers, self.random = handlers, random.Random(seed)
        self.pending: list[tuple[int, Sent]] = []
        self.counts: Counter[str] = Counter()

    def send(self, source: int, sent: list[Sent]) -> None:
        self.pending += [(source, envelope) for envelope in sent]

    def step(self) -> None:
        source, envelope = self.pending.pop(self.random.randrange(len(self.pending)))
        if source != envelope.to:
            self.counts[type(envelope.message).__name__] += 1
        self.send(envelope.to, self.handlers[envelope.to](envelope.message))

    def run(self) -> None:
        while self.pending:
            self.step()
