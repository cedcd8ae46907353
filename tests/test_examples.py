"""The examples print the output that they promise (the one on Spark: tests/spark/test_example_programs.py)."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from tests.examples import NOTEBOOKS, PROGRAMS, SPARK, cells, execute, run, same

VARIES = re.compile(r"state [\d.]+ \w+$|(?<=  plan )[^,]+|\d+ changes?$", re.MULTILINE)
"""The parts of a runtime's text that may differ between runs: the bytes of state depend on the versions of numpy and
pyarrow; the plan and the number of its changes depend on how long the decisions of the policy take."""


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Assert that the garbage holds no open files or folders: their warnings would come within any later test."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


@pytest.mark.parametrize(
    "program", [program for program in PROGRAMS if program not in SPARK], ids=lambda path: path.name
)
def test_a_program_prints_what_it_says(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with nothing_left_open():
        promised = run(program)
    printed = capsys.readouterr().out
    assert promised
    assert same(promised, printed), printed


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_the_cells_of_a_notebook_have_their_outputs(
    notebook: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib.use("agg")
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda: None)
    monkeypatch.chdir(notebook.parent)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook)):
        value = execute(cell.code, f"{notebook.name}, code cell {number}", names)
        assert same(cell.printed, capsys.readouterr().out), number
        assert len(pyplot.get_fignums()) == cell.figures
        pyplot.close("all")
        if cell.value is not None:
            assert VARIES.sub("", repr(value)) == VARIES.sub("", cell.value)
            assert hasattr(value, "_repr_html_") == cell.html
        del value
    with nothing_left_open():
        names.clear()


def test_the_notebooks_are_small_and_have_plots() -> None:
    plotted = [notebook.stem for notebook in NOTEBOOKS if any(cell.figures for cell in cells(notebook))]
    expected = "ad_conversions", "changing_tables", "flight_itineraries", "log_correlation", "stock_ticks"
    assert plotted == [*expected, "traffic_sensors"]
    assert all(notebook.stat().st_size < 300_000 for notebook in NOTEBOOKS)
    assert [program.stem for program in SPARK] == ["debezium_to_delta", "spark_streaming"]
