"""The operators of one task without Spark: an attempt that fails leaves nothing that another one counts again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy import agg
from eddy.spark.groups.operators import operator_of
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.operator_files import OperatorFile, QueryAbove
from eddy.spark.streaming.worker.operator_stage import OperatorStage
from eddy.spark.streaming.worker.peers import Parcel
from eddy.spark.streaming.worker.tasks import OperatorsTask, OperatorTask

ROWS = pa.schema([("k", pa.int64()), ("g", pa.string())])
QUERY = eddy.Query(
    [eddy.Stream(name, ROWS) for name in "RS"], ["R.k = S.k"], group_by=["R.g"], aggregates={"n": agg.count()}
)


class OneTask:
    """The other tasks of a task that is alone: what it sends comes back."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []

    def send(self, exchange: int, task: int, kind: int, code: int, node: int, rows: pa.RecordBatch) -> None:
        self.parcels.append(Parcel(kind, code, node, rows))

    def receive(self, exchange: int) -> list[Parcel]:
        return self.parcels

    def end(self, exchange: int) -> None:
        """Do nothing."""

    let_go = end


class Broken(OSError):
    """A disk that is full."""


@pytest.mark.parametrize("place", ["add", "write"])
@pytest.mark.parametrize("before", [None, "state"])
def test_an_attempt_that_fails_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, place: str
) -> None:
    locations = Locations(tmp_path, "test", tmp_path)
    locations.log.mkdir()
    engines: Any = SimpleNamespace(above=lambda key: QueryAbove(QUERY), locations=locations, parts={})

    def run(batch: int, state: str | None, after: str) -> list[tuple[Any, ...]]:
        task = OperatorTask("", "", state, after, frozenset(), None, tmp_path / "out", (0,) * 4)
        stage: Any = OperatorStage(engines, OneTask(), 0, OperatorsTask(batch, None, None, (task,)), 0)  # type: ignore[arg-type]
        stage.outlets[""].write(pa.Table.from_pylist([{"R.g": g} for g in "aab"], operator_of(QUERY).rows))
        files = stage.run().operators[""].files
        rows = (row for file in files for row in pq.read_table(tmp_path / "out" / file.file).to_pylist())
        return sorted(tuple(row.values()) for row in rows)

    if before is not None:
        assert run(0, None, before) == [("+I", "a", 2), ("+I", "b", 1)]
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise Broken

        patch.setattr(OperatorFile, place, fail)
        with pytest.raises(Broken):
            run(1, before, "failed")
    if before is None:
        assert run(1, None, "after") == [("+I", "a", 2), ("+I", "b", 1)]
        assert run(2, "after", "later") == [("+I", "a", 4), ("+I", "b", 2), ("-D", "a", 2), ("-D", "b", 1)]
    else:
        # The next attempt loads the parts that have changed.
        assert len(engines.parts[""]) == (place == "add")
