"""The contract of operators (`eddy.pipeline.operator`): its laws hold for each kind of operator, alone and together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import eddy
from eddy import agg
from eddy.aggregates.groups import Groups
from eddy.join.join import Join
from eddy.partners.partners import Partners
from eddy.pipeline.pipeline import Pipeline
from eddy.pipeline.push import prepare
from eddy.storage.arrow_bytes import read_batch
from eddy.tops.tops import Tops
from stairs.storage.parts import Memory, Parts
from tests.cases import text_rows

SCHEMA = pa.schema([("a", pa.int64()), ("t", pa.int64()), ("p", pa.string())])


def query(branches: str, groups: str, top: bool) -> eddy.Query:
    """Return a query over R, S and T.

    branches  how S and T hang on R: "" = in one inner join
    groups    "" = none, "windows" of event time, "all" = without windows
    """
    r, s, t = (eddy.Stream(name, SCHEMA, window=eddy.Range(6), time="t") for name in "RST")
    aggregates: dict[str, Any] = {}
    if groups:
        # Without integers alone, ring values cannot serve.
        aggregates = {"group_by": ["R.p"], "aggregates": {"n": agg.count(), "most": agg.max("R.t")}}
    if groups == "rings":
        aggregates = {"group_by": ["R.p"], "aggregates": {"n": agg.count(), "sum": agg.sum("S.t")}}
    if groups == "windows":
        aggregates |= {"group_window": eddy.Tumbling(4)}
    if top:
        order = ["R.t desc", "R.p"] if not groups else ["n desc"]
        aggregates["top"] = eddy.Top(2, "R.p" if not groups else "most", order)
    if not branches:
        return eddy.Query([r, s, t], ["R.a = S.a", "S.a = T.a"], lateness=2, **aggregates)
    hung = [eddy.Branch([s], ["S.a = R.a"], branches), eddy.Branch([t], ["T.a = R.a"], "semi")]
    return eddy.Query([r], [], branches=hung, lateness=2, **aggregates)


PIPELINES: dict[str, tuple[str, str, str, set[type]]] = {
    "first rows": ("", "", "changelog", {Join, Tops}),
    "first groups": ("", "all", "changelog", {Join, Groups, Tops}),
    "first rows of partners": ("left", "", "changelog", {Join, Partners, Tops}),
    "a join": ("", "", "append", {Join}),
    "a changelog": ("", "", "changelog", {Join}),
    "groups in windows": ("", "windows", "append", {Join, Groups}),
    "groups that change": ("", "all", "changelog", {Join, Groups}),
    "ring values": ("", "rings", "changelog", {Join, Groups}),
    "left partners": ("left", "", "append", {Join, Partners}),
    "anti partners that change": ("anti", "", "changelog", {Join, Partners}),
    "partners and groups in windows": ("left", "windows", "append", {Join, Partners, Groups}),
    "partners and groups that change": ("left", "all", "changelog", {Join, Partners, Groups}),
}


class Drive:
    """A pipeline of a kind, and pushes for it."""

    def __init__(self, kind: str, seed: int = 3) -> None:
        branches, groups, output, self.operators = PIPELINES[kind]
        self.query = query(branches, groups, Tops in self.operators)
        self.options = {"output": output, "strategy": "jisc"}
        self.runtime = self.made()
        self._draw, self._clock = random.Random(seed), 0

    def made(self) -> eddy.Runtime:
        """Return a new runtime."""
        return eddy.Runtime(self.query, **self.options)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the runtime."""
        return self.runtime._pipeline

    def rows(self) -> dict[str, Any]:
        """Return the rows of the next push."""
        self._clock += 2
        draw = self._draw
        return {
            name: [
                {"a": draw.randrange(5), "t": self._clock + draw.randrange(-3, 3), "p": f"p{draw.randrange(3)}"}
                for _ in range(draw.randrange(7))
            ]
            for name in "RST"
        }


def state(runtime: eddy.Runtime) -> Any:
    """Return what a push that does not happen leaves as it is: the snapshot; the rows of groups, unordered."""
    return sorted(text_rows(runtime.groups())) if runtime.query.aggregation else runtime.snapshot()


class Here(Memory):
    """The arrays of parts that were never written: a part is its own place."""

    def array(self, place: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return a copy of the array."""
        assert place.dtype == dtype
        assert len(place.shape) == len(shape)
        return np.array(place)

    def arrow(self, place: Any, kind: pa.DataType) -> pa.Array:
        """Return the array."""
        assert place.type == kind
        return place

    def batch(self, place: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch of its bytes."""
        return read_batch(pa.py_buffer(place), schema)


@pytest.fixture(params=PIPELINES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    made = Drive(request.param)
    yield made
    assert made.pipeline.n_results, "the test should not be about nothing"
    assert {type(operator) for operator in made.pipeline.operators} == made.operators
    made.runtime.check()


def test_a_push_that_is_rolled_back_leaves_no_trace(drive: Drive) -> None:
    twin = drive.made()
    for _ in range(12):
        rows, pipeline = drive.rows(), drive.pipeline
        before = state(drive.runtime)
        prepare(pipeline, rows, None, None)
        for operator in reversed(pipeline.operators):
            operator.roll_back()
            operator.roll_back()
        pipeline.roll_back()
        for operator in pipeline.operators:
            operator.check()
        assert state(drive.runtime) == before
        assert sorted(text_rows(drive.runtime.push(rows))) == sorted(text_rows(twin.push(rows)))


def test_nothing_under_way_is_nothing_to_roll_back(drive: Drive) -> None:
    for _ in range(12):
        drive.runtime.push(drive.rows())
        before = state(drive.runtime)
        for operator in drive.pipeline.operators:
            operator.roll_back()
        assert state(drive.runtime) == before


def test_operators_settle_once_or_twice(drive: Drive) -> None:
    twin = drive.made()
    for _ in range(12):
        rows, pipeline = drive.rows(), drive.pipeline
        prepared = prepare(pipeline, rows, None, None)
        for operator, record in zip(pipeline.operators, prepared.commit.operators, strict=True):
            operator.settle(record)
            operator.settle(record, again=True)
        pipeline.settle(prepared)
        assert sorted(text_rows(prepared.results)) == sorted(text_rows(twin.push(rows)))
        assert drive.runtime.snapshot() == twin.snapshot()


def test_an_operator_continues_from_the_parts_of_another(drive: Drive) -> None:
    twin = drive.made()
    for _ in range(12):
        rows, old = drive.rows(), drive.pipeline
        other = drive.made()
        new = other._pipeline
        for mine, given in zip(new.operators, old.operators, strict=True):
            mine.load_parts(Parts(given.to_parts(), Here(), "an operator"), old.watermark)
            mine.check()
            assert mine.nbytes > 0
        # What is no operator's: the clock, and counts.
        if old.clock is not None and new.clock is not None:
            new.clock.state = old.clock.state
        new.position, new.n_results, new.n_deleted = old.position, old.n_results, old.n_deleted
        new.late.rows = old.late.rows
        assert other.snapshot() == drive.runtime.snapshot()
        drive.runtime = other
        assert sorted(text_rows(other.push(rows))) == sorted(text_rows(twin.push(rows)))


def test_what_a_pipeline_weighs_is_what_its_operators_weigh(drive: Drive) -> None:
    for _ in range(12):
        drive.runtime.push(drive.rows())
    aside = drive.pipeline.late.rows.nbytes + drive.pipeline.failed.rows.nbytes
    assert drive.runtime.nbytes == aside + sum(operator.nbytes for operator in drive.pipeline.operators)
