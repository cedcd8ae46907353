"""Several queries on one hub: each has the results of its versions, each once, and the log has each row once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import Hub, Source
from eddy.spark.streaming.hub.hub import KINDS
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.state import compaction
from tests.spark.streaming.hub_reference import Asked, Batches, Owned
from tests.spark.streaming.jobs import Inputs, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
COLUMNS = {"k": "R.k", "r": "R.v", "s": "S.v"}


def asked(ranges: dict[str, int], least: int = 0) -> Asked:
    keep = (lambda row: row["v"] >= least) if least else (lambda row: True)
    return Asked(ranges, {name: tuple(place.split(".")) for name, place in COLUMNS.items()}, keep)  # type: ignore[misc]


def query(ranges: dict[str, int], least: int = 0, **more: Any) -> eddy.Query:
    """Return the query of `asked` with the same arguments."""
    keep = pc.field("v") >= least if least else None
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(d), time="t", filter=keep) for n, d in ranges.items()]
    names = list(ranges)
    on = [f"{left}.k = {right}.k" for left, right in pairwise(names)]
    return eddy.Query(streams, on, select=COLUMNS, **more)


def hub_of(spark: SparkSession, inputs: Inputs, checkpoint: Path, keep: int | None = None, **how: Any) -> Hub:
    window = None if keep is None else eddy.Range(keep)
    sources = [
        Source(eddy.Stream(name, SCHEMA, window=window, time="t"), inputs.frame(spark, name), key="k")
        for name in inputs.schemas
    ]
    how.setdefault("key_groups", 4)
    return Hub(spark, sources, checkpoint, lateness=60, **how)


class Rows:
    """Inputs that are drawn from a seed, with the rows of each micro-batch."""

    def __init__(self, root: Path, seed: int, names: str = "RST") -> None:
        self.inputs = Inputs(root, **dict.fromkeys(names, SCHEMA))
        self.chance = random.Random(seed)
        self.batches: dict[str, list[list[dict[str, int]]]] = {name: [] for name in names}

    def add(self, rows: int = 30) -> None:
        """Add a file to each stream: one micro-batch."""
        for name, batches in self.batches.items():
            begin = 20 * len(batches)
            batches.append(
                [
                    {
                        "k": self.chance.randrange(6),
                        "t": begin + self.chance.randrange(30),
                        "v": self.chance.randrange(99),
                    }
                    for _ in range(rows)
                ]
            )
            self.inputs.add(name, batches[-1])


def found(out: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in published(out).to_pylist())


def expected(batches: Batches, *versions: Owned) -> Counter[tuple[Any, ...]]:
    return sum((one.results(batches) for one in versions), Counter())


def finished(running: StreamingJoinQuery) -> StreamingJoinQuery:
    assert running.awaitTermination(120), "it did not end"
    return running


@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_queries_have_their_results_and_the_log_has_each_row_once(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    rows = Rows(tmp_path / "in", 1)
    for _ in range(4):
        rows.add()
    hub = hub_of(spark, rows.inputs, tmp_path / "state", transport=transport)
    queries: dict[str, tuple[dict[str, int], int]] = {
        "pairs": ({"R": 30, "S": 20}, 0),
        "wide": ({"R": 50, "S": 50}, 40),
        "all": ({"R": 25, "S": 40, "T": 15}, 0),
    }
    for name, (ranges, least) in queries.items():
        hub.start(name, query(ranges, least), tmp_path / name)
    running = finished(hub.run(availableNow=True))
    for name, (ranges, least) in queries.items():
        wanted = expected(rows.batches, Owned(asked(ranges, least)))
        assert found(tmp_path / name) == wanted, name
        assert hub[name].results == wanted.total() > 30
    figures = running.batches().to_pylist()
    assert sum(one["rows"] for one in figures) == 4 * 3 * 30
    assert sum(one["results"] for one in figures) == sum(hub[name].results for name in queries)
    assert hub[name].state == "running"


OLD, NEW = {"R": 30, "S": 20}, {"R": 45, "S": 40}
CHANGED = 3


def first_result(batches: Batches, new: Asked) -> int:
    """Return the first micro-batch with a result of rows from the change on."""
    return min(last for first, last, _ in new.matches(batches) if first >= CHANGED)


class Forgetful(ParquetSink):
    """Lets the workers forget their engines after each micro-batch."""

    act: Callable[[int], None] = staticmethod(lambda batch: None)

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession | None = None) -> None:
        super().publish(batch, files, spark)
        type(self).act(batch)


@pytest.mark.parametrize("engines", ["live", "loaded"])
def test_changes_of_all_kinds(
    spark: SparkSession, tmp_path: Path, engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live engines and engines from the log, which compaction has rewritten, have the same results."""
    rows = Rows(tmp_path / "in", 2)
    for _ in range(11):
        rows.add(20)
    hub = hub_of(spark, rows.inputs, tmp_path / "state", keep=60)
    for kind in KINDS:
        handle = hub.start(kind, query(OLD), Forgetful(tmp_path / kind) if kind == "handover" else tmp_path / kind)
        handle.change(query(NEW, 30), how=kind, at=CHANGED)
        assert (handle.state, handle.waiting) == ("scheduled", 2)
    hub.start("stopped", query(OLD), tmp_path / "stopped").stop(at=5)
    hub.start("drained", query(OLD), tmp_path / "drained").stop("drain", at=CHANGED)
    hub.start("later", query(NEW), tmp_path / "later", at=4)
    hub.start("warm", query({"R": 40, "S": 40, "T": 10}), tmp_path / "warm", at=4, warm=True)
    if engines == "loaded":
        monkeypatch.setattr(compaction, "MERGED", 2)
    running = hub.run(availableNow=True)
    if engines == "loaded":
        monkeypatch.setattr(Forgetful, "act", staticmethod(lambda batch: running.forget_engines()))
    finished(running)
    events = {(e["query"], e["version"], e["event"]): e["batch"] for e in hub.history().to_pylist()}
    old, new = asked(OLD), asked(NEW, 30)
    begun = events["delayed-drain", 1, "fresh start"]
    assert CHANGED < begun < 10
    first = first_result(rows.batches, new)
    versions: dict[str, list[Owned]] = {
        "immediate": [Owned(old, stop=CHANGED), Owned(new, start=CHANGED)],
        "delayed-drain": [Owned(old, drain=CHANGED), Owned(new, start=begun)],
        "drain-stream": [Owned(old, drain=CHANGED), Owned(new, start=CHANGED)],
        "graceful": [Owned(old, stop=first), Owned(new, start=CHANGED)],
        "graceful-drain": [Owned(old, drain=first), Owned(new, start=CHANGED)],
        "handover": [Owned(old, stop=CHANGED), Owned(new, start=CHANGED, warm=True)],
        "stopped": [Owned(old, stop=5)],
        "drained": [Owned(old, drain=CHANGED)],
        "later": [Owned(asked(NEW), start=4)],
        "warm": [Owned(asked({"R": 40, "S": 40, "T": 10}), start=4, warm=True)],
    }
    assert set(versions) == {*KINDS, "stopped", "drained", "later", "warm"}
    for name, own in versions.items():
        assert found(tmp_path / name) == expected(rows.batches, *own), name
        assert hub[name].state == ("stopped" if name in ("stopped", "drained") else "running"), name
    assert events["drained", 0, "end"] == begun
    sources = running.groups()["source"].to_pylist()
    assert (sources.count("loaded") > 20) == (engines == "loaded")
    assert running.compaction_problem is None
    # The watermark was below zero when they began.
    assert all((hub[name].complete_from or 0) < 0 for name in ("warm", "handover"))
