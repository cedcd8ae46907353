"""Jobs of the tests of hubs: queries as the engine and as the reference have them, inputs, outputs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import Hub, Source
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.spark.streaming.hub_reference import Batches, HubReferenceQuery, HubReferenceVersion
from tests.spark.streaming.jobs import Inputs, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
    from eddy.spark.streaming.state.manifest import Manifest

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
COLUMNS = {"k": "R.k", "r": "R.v", "s": "S.v"}
OLD, NEW = {"R": 30, "S": 20}, {"R": 45, "S": 40}


def asked(ranges: dict[str, int], least: int = 0) -> HubReferenceQuery:
    keep = (lambda row: row["v"] >= least) if least else (lambda row: True)
    return HubReferenceQuery(ranges, {name: tuple(place.split(".")) for name, place in COLUMNS.items()}, keep)  # type: ignore[misc]


def query(ranges: dict[str, int], least: int = 0, **more: Any) -> eddy.Query:
    """Return the query of `asked` with the same arguments."""
    keep = pc.field("v") >= least if least else None
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(d), time="t", filter=keep) for n, d in ranges.items()]
    names = list(ranges)
    on = [f"{left}.k = {right}.k" for left, right in pairwise(names)]
    return eddy.Query(streams, on, select=COLUMNS, **more)


def grouped(size: int, ranges: dict[str, int] = OLD, **more: Any) -> eddy.Query:
    """Return a query with aggregates in windows of a size."""
    groups: dict[str, Any] = {
        "select": None,
        "group_by": {"k": "R.k"},
        "aggregates": {"n": eddy.agg.count(), "total": eddy.agg.sum("S.v")},
        "group_window": eddy.Tumbling(size),
    }
    base = query(ranges)
    return eddy.Query(base.streams, base.on, **{**groups, **more})


def hub_of(spark: SparkSession, inputs: Inputs, checkpoint: Path | str, keep: int | None = None, **how: Any) -> Hub:
    window = None if keep is None else eddy.Range(keep)
    sources = [
        Source(eddy.Stream(name, SCHEMA, window=window, time="t"), inputs.frame(spark, name), key="k")
        for name in inputs.schemas
    ]
    how.setdefault("key_groups", 4)
    return Hub(spark, sources, checkpoint, lateness=60, **how)


class DrawnRows:
    """Inputs that are drawn from a seed, with the rows of each micro-batch; `nulls` is the share of null keys."""

    def __init__(self, root: Path, seed: int, names: str = "RST", nulls: float = 0) -> None:
        self.nulls = nulls
        self.inputs = Inputs(root, **dict.fromkeys(names, SCHEMA))
        self.chance = random.Random(seed)
        self.batches: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}

    def add(self, rows: int = 30) -> None:
        """Add a file to each stream: one micro-batch."""
        for name, batches in self.batches.items():
            begin = 20 * len(batches)
            batches.append(
                [
                    {
                        "k": None if self.nulls and self.chance.random() < self.nulls else self.chance.randrange(6),
                        "t": begin + self.chance.randrange(30),
                        "v": self.chance.randrange(99),
                    }
                    for _ in range(rows)
                ]
            )
            self.inputs.add(name, batches[-1])

    def greatest(self, before: int) -> int:
        """Return the greatest event time of the micro-batches before one."""
        earlier = (row["t"] for batches in self.batches.values() for rows in batches[:before] for row in rows)
        return max(earlier, default=-1 << 62)


def times(rows: pa.RecordBatch, stream: str) -> npt.NDArray[np.int64]:
    """Return the event times of rows, as the join of a hub asks for them."""
    return rows.column("t").to_numpy()


def results_of(out: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in published(out).to_pylist())


def expected(batches: Batches, *versions: HubReferenceVersion) -> Counter[tuple[Any, ...]]:
    return sum((version.results(batches) for version in versions), Counter())


def finished(running: StreamingJoinQuery) -> StreamingJoinQuery:
    assert running.awaitTermination(120), "it did not end"
    return running


class Acting(ParquetSink):
    """Calls a function after it has published a batch."""

    def __init__(self, path: Path, act: Callable[[int], None]) -> None:
        super().__init__(path)
        self._act = act

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        self._act(batch)


class Failures:
    """Failures of the driver, each once, at a `place` of a micro-batch after the first one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = ""
        commit, mark = Checkpoint.commit, Checkpoint.mark_published

        def committing(checkpoint: Checkpoint, manifest: Manifest) -> None:
            self.reach("commit", manifest.batch)
            commit(checkpoint, manifest)

        def marking(checkpoint: Checkpoint, batch: int) -> None:
            self.reach("mark", batch)
            mark(checkpoint, batch)

        monkeypatch.setattr(Checkpoint, "commit", committing)
        monkeypatch.setattr(Checkpoint, "mark_published", marking)

    def reach(self, place: str, batch: int) -> None:
        """Fail here if it is the place."""
        if self.place == place and batch:
            self.place = ""
            raise RuntimeError(f"injected: {place}")

    def end(self, running: StreamingJoinQuery) -> None:
        """Await the end of a job, which fails if it has a place to fail at."""
        if not self.place:
            finished(running)
            return
        with pytest.raises(Exception, match="injected"):
            running.awaitTermination(120)


class FailingParquet(ParquetSink):
    """Fails before or after it has published a batch, at the place "before NAME" or "after NAME"."""

    def __init__(self, path: Path, failures: Failures) -> None:
        super().__init__(path)
        self._failures = failures

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        self._failures.reach(f"before {self.path.name}", batch)
        super().publish(batch, files, spark)
        self._failures.reach(f"after {self.path.name}", batch)
