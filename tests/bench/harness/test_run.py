"""Figures are measured point by point, kept, and taken up again."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bench.harness import run
from bench.harness.figure import Figure, Point, Row, Say
from bench.harness.flat import flat
from bench.harness.stamp import stamp
from bench.harness.store import Record, Store, StoreError, record_of, rows_of, write_data


class Work:
    """Something to measure that notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.broken: set[int] = set()

    def __call__(self, point: Point, say: Say) -> Sequence[Row]:
        size = int(point["size"])
        say(f"size {size}")
        self.asked.append(size)
        if size in self.broken:
            raise RuntimeError("no luck")
        return [{"way": "a", "seconds": size / 10, "seconds_low": size / 11, "seconds_high": size / 9}]


@pytest.fixture
def work() -> Work:
    return Work()


def figure(work: Work) -> Figure:
    def points(full: bool) -> list[Point]:
        return [{"size": size} for size in ((1, 2, 3) if full else (1, 2))]

    return Figure("sizes", "Sizes", "What sizes take.", points, work)


def measured(of: Figure, store: Store, *, full: bool = False, again: bool = False) -> tuple[list[run.Failure], str]:
    said = io.StringIO()
    failures = run.measure([of], store, full=full, again=again, console=Console(file=said, width=200))
    return failures, said.getvalue()


def test_points_are_measured_once(work: Work, tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert measured(figure(work), store)[0] == []
    assert measured(figure(work), store)[1].startswith("2 points are known")
    assert work.asked == [1, 2]
    measured(figure(work), store, full=True)
    assert work.asked == [1, 2, 3]
    measured(figure(work), store, again=True)
    assert work.asked == [1, 2, 3, 1, 2]
    assert sorted(int(record.point["size"]) for record in store.records("sizes")) == [1, 2, 3]
    assert all(record.others is not None and record.others >= 0 for record in store.records("sizes"))


def test_a_point_that_fails_is_told_and_measured_when_the_run_is_taken_up(work: Work, tmp_path: Path) -> None:
    store = Store(tmp_path)
    work.broken = {1}
    failures, said = measured(figure(work), store)
    assert [(one.figure, dict(one.point)) for one in failures] == [("sizes", {"size": 1})]
    assert "no luck" in failures[0].reason
    assert "no luck" in said
    work.broken = set()
    assert measured(figure(work), store)[0] == []
    assert work.asked == [1, 2, 1]


def test_points_of_other_sources_are_measured_anew(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    measured(figure(work), store)
    other = replace(stamp(), sources="another")
    monkeypatch.setattr(run, "stamp", lambda: other)
    measured(figure(work), store)
    assert work.asked == [1, 2, 1, 2]
    assert {record.stamp.sources for record in store.records("sizes")} == {"another"}


def test_records_are_read_as_they_were_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = record_of({"size": 1, "name": "R ⋈ S"}, [{"way": None, "ok": True, "value": 0.5}], stamp(), 1.5)
    store.add("sizes", record)
    assert store.records("sizes") == [record]
    assert rows_of([record]) == [{"origin": "here", "size": 1, "name": "R ⋈ S", "way": None, "ok": True, "value": 0.5}]


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"point": {}}'])
def test_a_damaged_file_is_refused_by_name_and_line(line: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("sizes", record_of({"size": 1}, [], stamp(), 0.0))
    with store.path("sizes").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(StoreError, match=r"sizes\.jsonl, line 2"):
        store.records("sizes")


def test_data_have_every_column_of_any_row(tmp_path: Path) -> None:
    write_data("sizes", [{"size": 1, "value": 2}, {"size": 2, "value": 0.5, "skipped": None}, {"why": "x"}], tmp_path)
    assert pq.read_table(tmp_path / "sizes.parquet").to_pylist() == [
        {"size": 1, "value": 2.0, "skipped": None, "why": None},
        {"size": 2, "value": 0.5, "skipped": None, "why": None},
        {"size": None, "value": None, "skipped": None, "why": "x"},
    ]
    assert (tmp_path / "sizes.csv").read_text().splitlines()[0] == '"size","value","skipped","why"'


def test_flat_figures_have_their_spread_and_are_json() -> None:
    named = Record({"sizes": "full"}, [{"figure": "W1.a_vs_b", "value": 0.5}], stamp(), 0.0, "")
    assert flat("limit", [named]) == {"W1.a_vs_b": 0.5}
    row: Row = {"way": "a", "seconds": 1.0, "seconds_low": 0.5, "seconds_high": 2.0, "results": 7}
    found = flat("fig7", [Record({"joins": 5}, [row], stamp(), 0.0, "")])
    assert found == {"fig7/joins=5,way=a/seconds": {"value": 1.0, "low": 0.5, "high": 2.0}}
    assert json.loads(json.dumps(found)) == found
