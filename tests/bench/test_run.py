"""Figures are measured point by point, kept, and an interrupted run resumes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bench.harness import run
from bench.harness.figure import Figure, Point, Row, Say
from bench.harness.store import MeasuredPoint, Store, StoreError, figures_text, flat, read_figures, record_of


class RecordedWork:
    """A measurement that records the points it was called with."""

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
def work() -> RecordedWork:
    return RecordedWork()


def figure(work: RecordedWork) -> Figure:
    def points(full: bool) -> list[Point]:
        return [{"size": size} for size in ((1, 2, 3) if full else (1, 2))]

    return Figure("sizes", "What sizes take.", points, work, "Sizes")


def measured(of: Figure, store: Store, *, full: bool = False, again: bool = False) -> tuple[list[run.FailedPoint], str]:
    said = io.StringIO()
    failures = run.measure([of], store, full=full, again=again, console=Console(file=said, width=200))
    return failures, said.getvalue()


def test_points_are_measured_once(work: RecordedWork, tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert measured(figure(work), store)[0] == []
    assert measured(figure(work), store)[1].startswith("2 points were measured before")
    assert work.asked == [1, 2]
    measured(figure(work), store, full=True)
    assert work.asked == [1, 2, 3]
    measured(figure(work), store, again=True)
    assert work.asked == [1, 2, 3, 1, 2]
    assert sorted(int(record.point["size"]) for record in store.records("sizes")) == [1, 2, 3]
    assert all(record.others is not None and record.others >= 0 for record in store.records("sizes"))


def test_a_point_that_fails_is_told_and_measured_when_the_run_is_taken_up(work: RecordedWork, tmp_path: Path) -> None:
    store = Store(tmp_path)
    work.broken = {1}
    failures, said = measured(figure(work), store)
    assert [(failure.figure, dict(failure.point)) for failure in failures] == [("sizes", {"size": 1})]
    assert "no luck" in failures[0].reason
    assert "no luck" in said
    work.broken = set()
    assert measured(figure(work), store)[0] == []
    assert work.asked == [1, 2, 1]


def test_points_of_other_sources_are_measured_anew(
    work: RecordedWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    measured(figure(work), store)
    monkeypatch.setattr(run, "sources", lambda: "another")
    measured(figure(work), store)
    assert work.asked == [1, 2, 1, 2]


def test_only_points_with_a_value(work: RecordedWork) -> None:
    assert run.chosen(figure(work), True, ["size=3"]) == [{"size": 3}]
    assert run.chosen(figure(work), False, ["other=3"]) == [{"size": 1}, {"size": 2}]


def test_records_are_read_as_they_were_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = record_of({"size": 1, "name": "R ⋈ S"}, [{"way": None, "ok": True, "value": 0.5}], 1.5, 0.0)
    store.add("sizes", record)
    assert store.records("sizes") == [record]
    assert record.merged() == [{"size": 1, "name": "R ⋈ S", "way": None, "ok": True, "value": 0.5}]


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"point": {}}'])
def test_a_damaged_file_is_refused_by_name_and_line(line: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("sizes", record_of({"size": 1}, [], 0.0, 0.0))
    with store.path("sizes").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(StoreError, match=r"sizes\.jsonl, line 2"):
        store.records("sizes")


def test_the_file_of_figures_holds_the_records_without_series(tmp_path: Path) -> None:
    series = Figure("sizes", "About.", lambda full: [], lambda point, say: [], series={"shows": ["rate"]})
    records = [
        MeasuredPoint(
            {"size": 1}, [{"shows": "case", "ms": 1 / 3}, {"shows": "rate", "ms": 1.0}], "a machine", "2026-01-01"
        ),
        MeasuredPoint({"size": 2, "seed": 7}, [{"shows": "case", "ms": 2, "ok": False}], "another", "2026-01-02", 0.4),
    ]
    path = tmp_path / "figures.json"
    path.write_text(figures_text({"sizes": (series, records)}))
    assert read_figures(path) == {
        "sizes": [
            MeasuredPoint({"size": 1}, [{"shows": "case", "ms": 0.33333}], "a machine", "2026-01-01"),
            MeasuredPoint(
                {"size": 2, "seed": 7}, [{"shows": "case", "ms": 2, "ok": False}], "another", "2026-01-02", 0.4
            ),
        ]
    }
    assert read_figures(tmp_path / "none.json") == {}


def test_a_value_that_is_missing_leaves_the_order_of_columns_as_it_is_read_back(tmp_path: Path) -> None:
    about = Figure("sizes", "About.", lambda full: [], lambda point, say: [])
    rows: list[Row] = [{"rate": None, "never": None, "ms": 1}, {"rate": 2, "ms": 3}]
    path = tmp_path / "figures.json"
    path.write_text(figures_text({"sizes": (about, [MeasuredPoint({"size": 1}, rows, "a machine", "2026-01-01")])}))
    assert '"columns": ["size", "machine", "day", "others", "ms", "rate"]' in path.read_text()
    assert figures_text({"sizes": (about, read_figures(path)["sizes"])}) == path.read_text()


def test_flat_figures_have_their_spread() -> None:
    named = MeasuredPoint({"sizes": "full"}, [{"figure": "W1.a_vs_b", "value": 0.5}], "m", "2026-01-01")
    assert flat("limit", [named]) == {"W1.a_vs_b": (0.5, None, None)}
    row: Row = {"way": "a", "seconds": 1.0, "seconds_low": 0.5, "seconds_high": 2.0, "results": 7}
    figures = flat("fig7", [MeasuredPoint({"joins": 5}, [row], "m", "2026-01-01")])
    assert figures == {"fig7/joins=5,way=a/seconds": (1.0, 0.5, 2.0)}
