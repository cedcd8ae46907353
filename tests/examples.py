"""The example programs: the promised and the actual output of each."""

from __future__ import annotations

import doctest
import json
import runpy
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).parent.parent / "examples"
PROGRAMS = sorted(ROOT.glob("*.py"))
NOTEBOOKS = sorted(ROOT.glob("*.ipynb"))
SPARK = [program for program in PROGRAMS if "eddy.spark" in program.read_text()]


def run(program: Path) -> str:
    """Run a program as a script; return the output that its docstring promises."""
    names = runpy.run_path(str(program), run_name="__main__")
    return dedent(names["__doc__"].partition("Output:\n\n")[2])


def cells(notebook: Path) -> list[tuple[str, str]]:
    """Return the code of each cell of a notebook, and the output stored with it."""
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return [
        ("".join(cell["source"]), "".join("".join(output["text"]) for output in cell["outputs"]))
        for cell in found
        if cell["cell_type"] == "code"
    ]


def same(promised: str, printed: str) -> bool:
    """Return whether a program printed what it promised; `...` stands for any text."""
    return doctest.OutputChecker().check_output(promised, printed, doctest.ELLIPSIS)
