"""Several queries on one hub: each has the results of its versions, each once, and the log has each row once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import Hub, Source
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
    on = [f"{left}.k = {right}.k" for left, right in zip(names, names[1:], strict=False)]
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
