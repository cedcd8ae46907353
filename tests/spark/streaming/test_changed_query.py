"""A restart of a streaming join with another query: a change of a stated kind, or a refusal that says why.

The reference joins the rows by nested loops. Each run adds a file to each stream, which is one micro-batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.driver.hot_group_rule import FragmentGroup, HotGroupRule
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.spark.streaming.jobs import Inputs, published, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64()), ("x", pa.int64())])
Row = dict[str, Any]
Pairs = set[tuple[int, int]]


def query(window: int, *more: str, least: int | None = None, columns: tuple[str, ...] = ()) -> eddy.Query:
    keep = None if least is None else pc.field("x") >= least
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(window), time="t", filter=keep) for n in "RS"]
    select = {"r": "R.n", "s": "S.n"} | {column: column for column in columns}
    return eddy.Query(streams, ["R.k = S.k", *more], select=select, lateness=60)


class Runs:
    """A join that is started again and again, and the rows of each run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.inputs = Inputs(folder / "in", R=SCHEMA, S=SCHEMA)
        self.chance = random.Random(5)
        self.rows: list[dict[str, list[Row]]] = []

    def add(self) -> None:
        run, rows = len(self.rows), {}
        for name in "RS":
            rows[name] = [
                {
                    "k": self.chance.randrange(4),
                    "t": 30 * run + self.chance.randrange(50),
                    "n": 100 * run + number,
                    "x": self.chance.randrange(10),
                }
                for number in range(12)
            ]
            self.inputs.add(name, rows[name])
        self.rows.append(rows)

    def start(self, asked: eddy.Query, **how: Any) -> Any:
        return run(asked, self.inputs.frames(self.spark), self.folder / "state", self.folder / "out", **how)

    def run(self, asked: eddy.Query, **how: Any) -> None:
        self.add()
        self.start(asked, **how)

    def given(self) -> Pairs:
        """Return the published results, each of which came once."""
        pairs = [(row["r"], row["s"]) for row in published(self.folder / "out").to_pylist()]
        assert len(pairs) == len(set(pairs))
        return set(pairs)

    def pairs(self, window: int, batches: Callable[[int, int], bool], where: Callable[[Row, Row], bool]) -> Pairs:
        """Return the results of a query whose micro-batches fulfil a condition: the last one and the first one."""
        pairs = set()
        for i, of_r in enumerate(self.rows):
            for j, of_s in enumerate(self.rows):
                for r in of_r["R"] if batches(max(i, j), min(i, j)) else ():
                    for s in of_s["S"]:
                        if r["k"] == s["k"] and abs(r["t"] - s["t"]) <= window and where(r, s):
                            pairs.add((r["n"], s["n"]))
        return pairs


def every(_: Row, __: Row) -> bool:
    return True


@pytest.fixture
def fragments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divide a further key group into fragments with each micro-batch."""

    most = 0

    def plan(_: HotGroupRule, tree: SplitTree, *__: Any) -> FragmentGroup | None:
        nonlocal most
        most = max(most, len(tree.dealt))
        whole = [group for group in range(tree.groups) if tree.deal_of(group) is None]
        return FragmentGroup(whole[0], 0, 2) if whole else None

    monkeypatch.setattr(HotGroupRule, "plan", plan)
    yield
    assert most > 0


@pytest.mark.usefixtures("fragments")
def test_a_handover_goes_on_with_the_rows_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    plan = {"strategy": "jisc", "plan": "R S"}
    for _ in range(2):
        runs.run(query(50, "R.x <> S.x"), **plan)
    # Narrower, and with other comparisons of the same columns.
    runs.run(query(35, "R.x <= S.x"), change="handover")
    runs.run(query(35, "R.x <= S.x"))  # the change has happened
    wanted = runs.pairs(50, lambda last, _: last < 2, lambda r, s: r["x"] != s["x"])
    wanted |= runs.pairs(35, lambda last, _: last >= 2, lambda r, s: r["x"] <= s["x"])
    assert runs.given() == wanted
    across = runs.pairs(35, lambda last, first: first < 2 <= last, lambda r, s: r["x"] <= s["x"])
    assert across, "no result has rows from before and after the change"
    # A wider window reaches back as far as the old one at least.
    runs.run(query(80, "R.x <= S.x"), change="handover")
    added = runs.given() - wanted
    assert runs.pairs(35, lambda last, _: last == 4, lambda r, s: r["x"] <= s["x"]) < added
    assert added <= runs.pairs(80, lambda last, _: last == 4, lambda r, s: r["x"] <= s["x"])


def test_a_query_changes_in_hops(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    for asked, how in ((query(50), None), (query(35), "handover"), (query(35), None)):
        runs.run(asked, change=how, placement="hops")
    wanted = runs.pairs(50, lambda last, _: last < 1, every) | runs.pairs(35, lambda last, _: last >= 1, every)
    assert runs.given() == wanted
    runs.run(query(80), change="immediate", placement="hops")
    assert runs.given() - wanted == runs.pairs(80, lambda _, first: first == 3, every)


@pytest.mark.usefixtures("fragments")
def test_an_immediate_change_starts_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    for _ in range(2):
        runs.run(query(50, least=5), transport="rows")
    # A wider filter and a column that the log does not have.
    wider = query(70, "R.x <= S.x", least=2)
    for _ in range(2):
        runs.run(wider, change="immediate", transport="rows")
    runs.run(wider, transport="rows")
    wanted = runs.pairs(50, lambda last, _: last < 2, lambda r, s: min(r["x"], s["x"]) >= 5)
    wanted |= runs.pairs(70, lambda _, first: first >= 2, lambda r, s: 2 <= r["x"] <= s["x"])
    assert runs.given() == wanted


def test_a_crash_before_the_first_batch_of_the_new_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, tmp_path)
    for _ in range(2):
        runs.run(query(50, "R.x <> S.x"))
    runs.add()
    commit = Checkpoint.commit

    def crash(self: Checkpoint, manifest: Any) -> None:
        raise OSError("the power is cut")

    for how in ("immediate", "handover"):  # the second change meets the first one before it took effect
        monkeypatch.setattr(Checkpoint, "commit", crash)
        with pytest.raises(Exception, match="the power is cut"):
            runs.start(query({"immediate": 20, "handover": 40}[how], least=1), change=how)
    monkeypatch.setattr(Checkpoint, "commit", commit)
    with pytest.raises(StreamingStateError, match="belongs to another join"):
        runs.start(query(50, "R.x <> S.x"))
    runs.start(query(40, least=1))
    runs.run(query(40, least=1))
    wanted = runs.pairs(50, lambda last, _: last < 2, lambda r, s: r["x"] != s["x"])
    wanted |= runs.pairs(40, lambda _, first: first >= 2, lambda r, s: min(r["x"], s["x"]) >= 1)
    assert runs.given() == wanted


def test_what_the_log_does_not_serve_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    runs.run(query(50, least=5))
    state = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    left = eddy.Query(
        [eddy.Stream("R", SCHEMA, window=eddy.Range(50), time="t")],
        branches=[eddy.Branch([eddy.Stream("S", SCHEMA, window=eddy.Range(50), time="t")], ["R.k = S.k"], "left")],
        select={"r": "R.n", "s": "S.n"},
        lateness=60,
    )
    other_key = eddy.Query(list(query(50).streams), ["R.x = S.x"], select={"r": "R.n", "s": "S.n"}, lateness=60)
    cases: list[tuple[eddy.Query, dict[str, Any], type[Exception], str]] = [
        (query(60, least=5), {}, StreamingStateError, "belongs to another join: stream R, window: .*change='handover'"),
        (query(60, least=2), {"change": "handover"}, StreamingStateError, "the log has the rows that the old filter"),
        (
            query(50, "R.x <= S.x", least=5),
            {"change": "handover"},
            StreamingStateError,
            "the log has the columns k, t, n, the new query needs k, t, n, x; a hub",
        ),
        (left, {"change": "handover"}, StreamingStateError, "with branches the new query starts without rows"),
        (other_key, {"change": "immediate"}, StreamingStateError, "rows are logged in this form"),
        (query(50), {"change": "drain-stream"}, SparkJoinError, "pass 'handover' or 'immediate'; queries on a hub"),
    ]
    for asked, how, error, message in cases:
        with pytest.raises(error, match=message):
            runs.start(asked, **how)
    assert {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()} == state
    with pytest.raises(SparkJoinError, match="change= is for a streaming join"):
        join(query(50), runs.inputs.batch_frames(spark), change="handover")  # type: ignore[call-overload]
    runs.run(left, change="immediate")
    runs.start(left)
