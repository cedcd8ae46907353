"""The events of a streaming join that matter to an operator, as records of the logger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eddy.log import LOG
from eddy.spark.streaming.driver.key_groups import KeyGroupLayout
from eddy.spark.streaming.driver.memory import too_small
from eddy.spark.streaming.driver.metrics import Metrics
from eddy.spark.streaming.worker.tasks import LOADED


class Events:
    """Logs the events of one join.

    title    of the join in records
    memory   bound on the bytes of the engines of each host, None = none
    """

    def __init__(self, title: str, memory: int | None, metrics: Metrics) -> None:
        self._title, self._memory, self._metrics = title, memory, metrics
        self._logged = 0
        self._warned_bytes = 0
        """The bytes of the largest engine for which a warning was logged that it exceeds its share."""

    def recoveries(self, texts: Sequence[str]) -> None:
        """Log recoveries, each text once; `texts` has all texts since the start."""
        for text in texts[self._logged :]:
            LOG.warning("%s: %s", self._title, text)
        self._logged = len(texts)

    def batch(self, batch: int, groups: list[dict[str, Any]], layout: KeyGroupLayout) -> None:
        """Log the events of a batch that matter to an operator."""
        self._warn_of_memory(groups)
        loaded = [row["group"] for row in groups if row["source"] == LOADED and row["group"] not in layout.by_log]
        if loaded:
            LOG.warning("%s: batch %d: loaded the engines of key groups %s from the log", self._title, batch, loaded)
        if moves := [
            (change.group, change.sender, change.receiver) for change in layout.changes if change.kind == "move"
        ]:
            LOG.debug("%s: batch %d: (key group, from, to) moved between partitions: %s", self._title, batch, moves)
        for row in groups:
            if row["transitions"]:
                decided = row["group"], row["plan"], row["reason"]
                LOG.debug("%s: batch %d: key group %d changed to plan %s; reason: %s", self._title, batch, *decided)

    def _warn_of_memory(self, groups: list[dict[str, Any]]) -> None:
        """Warn if an engine exceeds the share of its worker, and again if an engine is twice as large."""
        largest = max(((row["state_bytes"], row["group"]) for row in groups), default=(0, 0))
        if self._memory is None or largest[0] < 2 * self._warned_bytes:
            return
        text = too_small(self._memory, self._metrics.memory, largest[::-1])
        if text is not None:
            LOG.warning("%s: %s", self._title, text)
            self._warned_bytes = largest[0]
