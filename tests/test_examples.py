"""The example programs print the output that they promise (the one on Spark: tests/spark/test_example_programs.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.examples import NOTEBOOKS, PROGRAMS, SPARK, cells, run, same


@pytest.mark.parametrize("program", [one for one in PROGRAMS if one not in SPARK], ids=lambda path: path.name)
def test_a_program_prints_what_it_says(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    promised = run(program)
    printed = capsys.readouterr().out
    assert promised
    assert same(promised, printed), printed


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_the_cells_of_a_notebook_print_their_outputs(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, (code, promised) in enumerate(cells(notebook)):
        exec(compile(code, f"{notebook.name}, code cell {number}", "exec"), names)
        assert same(promised, capsys.readouterr().out)


def test_there_are_five_examples_and_one_is_a_notebook() -> None:
    assert len(PROGRAMS) + len(NOTEBOOKS) == 5
    assert len(NOTEBOOKS) == 1
    assert len(SPARK) == 1
