"""The example programs and notebooks: the promised and the actual output of each.

After a change of a notebook, execute it with Jupyter, from its folder, so that its outputs are its own:

    jupyter nbconvert --to notebook --inplace --execute examples/NAME.ipynb
"""

from __future__ import annotations

import ast
import doctest
import json
import runpy
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Cell:
    """A cell of code: printed is its text output; figures, its pictures; value and html, the forms of its last line."""

    code: str
    printed: str
    figures: int
    value: str | None
    html: bool


def cells(notebook: Path) -> list[Cell]:
    """Return the cells of code of a notebook, with the outputs stored with them."""
    entries: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return [_cell(cell) for cell in entries if cell["cell_type"] == "code"]


def _cell(cell: dict[str, Any]) -> Cell:
    outputs = cell["outputs"]
    values = [output["data"] for output in outputs if output["output_type"] == "execute_result"]
    return Cell(
        "".join(cell["source"]),
        "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream"),
        sum("image/png" in output["data"] for output in outputs if output["output_type"] == "display_data"),
        "".join(values[0]["text/plain"]) if values else None,
        any("text/html" in value for value in values),
    )


def execute(code: str, name: str, names: dict[str, Any]) -> Any:
    """Execute the code of a cell as Jupyter does; return the value of its last line if that is an expression."""
    body = ast.parse(code).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)
    return None if last is None else eval(compile(last, name, "eval"), names)


def same(promised: str, printed: str) -> bool:
    """Return whether a program printed what it promised; `...` stands for any text."""
    return doctest.OutputChecker().check_output(promised, printed, doctest.ELLIPSIS)
