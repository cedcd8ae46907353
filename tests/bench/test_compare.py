"""Comparison of two files of figures: the figures that changed by more than the noise."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench import cli
from bench.compare import (
    BETTER,
    CHANGED,
    SAME,
    WORSE,
    CompareError,
    MeasuredFigure,
    better,
    compare,
    read,
    show,
    verdict,
)


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("W1.engine_vs_loop", MeasuredFigure(0.6, 0.55, 0.65), MeasuredFigure(0.5, 0.45, 0.54), WORSE),
        ("W1.engine_vs_loop", MeasuredFigure(0.6, 0.55, 0.65), MeasuredFigure(0.5, 0.45, 0.56), SAME),
        ("W1.arrow_vs_loop", MeasuredFigure(0.470, 0.467, 0.477), MeasuredFigure(0.434, 0.316, 0.462), SAME),
        ("W1.engine_vs_loop", MeasuredFigure(0.6, 0.60, 0.60), MeasuredFigure(0.61, 0.61, 0.61), SAME),
        ("fig7/joins=5/seconds", MeasuredFigure(1.0, 0.9, 1.1), MeasuredFigure(0.5, 0.4, 0.6), BETTER),
        ("fig7/joins=5/seconds", MeasuredFigure(0.5), MeasuredFigure(0.6), WORSE),
        ("fig7/joins=5/seconds", MeasuredFigure(0.5), MeasuredFigure(0.55), SAME),
        ("fig7/joins=5/seconds", MeasuredFigure(0.5, 0.4, 0.6), MeasuredFigure(0.55), SAME),
        ("W1.loop_tuples_per_s", MeasuredFigure(2e7), MeasuredFigure(3e7), BETTER),
        ("streaming.state_rows", MeasuredFigure(22), MeasuredFigure(3), CHANGED),
        ("spark.zero", MeasuredFigure(0), MeasuredFigure(0), SAME),
        ("spark.zero", MeasuredFigure(0), MeasuredFigure(1), CHANGED),
    ],
)
def test_verdicts(name: str, before: MeasuredFigure, after: MeasuredFigure, expected: str) -> None:
    assert verdict(name, before, after).verdict == expected


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("rows_vs_spark_default", 1),
        ("scaling_1_to_2", 1),
        ("trigger_4000_rows_s", -1),
        ("state.bytes_per_live_tuple", -1),
        ("normal.jisc_vs_symmetric_hash", -1),
        ("pause.moving_state_vs_jisc.1000", -1),
        ("W1.batch1000_vs_batch100000", 1),
    ],
)
def test_which_end_is_better(name: str, side: int) -> None:
    assert better(name) == side


def test_those_that_changed_come_first_and_only_they_are_shown() -> None:
    before = {"a_vs_b": MeasuredFigure(1), "c_vs_d": MeasuredFigure(1), "x": MeasuredFigure(1)}
    comparisons = compare(before, {"c_vs_d": MeasuredFigure(0.5), "a_vs_b": MeasuredFigure(1)})
    assert [(comparison.name, comparison.verdict) for comparison in comparisons] == [
        ("c_vs_d", WORSE),
        ("a_vs_b", SAME),
    ]
    said = io.StringIO()
    show(comparisons, Console(file=said, width=120))
    assert "c_vs_d" in said.getvalue()
    assert "a_vs_b" not in said.getvalue()
    assert "2 figures compared: 1 worse, 0 changed, 0 better, 1 same" in said.getvalue()


def written(path: Path, **figures: float | tuple[float, float, float]) -> Path:
    """Write a file of figures that name themselves, some with the ends of their spread."""
    rows = [
        [0, "2026-01-01", 0.0, name, *(v if isinstance(v, tuple) else (v, None, None))] for name, v in figures.items()
    ]
    columns = ["machine", "day", "others", "figure", "value", "value_low", "value_high"]
    content = {"machines": ["m"], "figures": {"limit": {"point": [], "columns": columns, "rows": rows}}}
    path.write_text(json.dumps(content))
    return path


def test_files_are_read_with_or_without_a_spread(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", a=1.0, b=(2.0, 1.5, 2.5))
    assert read(path) == {"a": MeasuredFigure(1.0), "b": MeasuredFigure(2.0, 1.5, 2.5)}


@pytest.mark.parametrize("text", ["", "[]", '{"machine": "m"}', '{"machines": [], "figures": {}}'])
def test_a_file_without_figures_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CompareError, match=r"a\.json"):
        read(path)


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_the_command_fails_only_when_asked_to(options: list[str], code: int, tmp_path: Path) -> None:
    before = written(tmp_path / "a.json", **{"W1.engine_vs_loop": 0.6})
    after = written(tmp_path / "b.json", **{"W1.engine_vs_loop": 0.3})
    done = CliRunner().invoke(cli.app, ["--compare", str(before), str(after), *options])
    assert done.exit_code == code, done.output
    assert "worse" in done.output
