"""A type checker finds typos in names of strategies, policies and formats; the types list the registries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

from eddy.routing.policies import POLICIES, PolicyName
from eddy.show.formats import FORMATS, Format
from jisc.strategies import STRATEGIES, StrategyName
from tests.documents import ROOT

PROGRAM = """
import eddy
import eddy.spark

def right(query: eddy.Query) -> None:
    runtime = eddy.Runtime(query, strategy="moving-state", policy="a-greedy", output="changelog")
    runtime.explain("svg")
    eddy.spark.join(query, {}, strategy="jisc", policy="cost")

def wrong(query: eddy.Query) -> None:
    eddy.Runtime(query, strategy="movingstate")
    eddy.Runtime(query, policy="greedy")
    eddy.Runtime(query, output="changes")
    eddy.Runtime.restore(b"", query, strategy="stair")
    eddy.Runtime(query).explain("png")
    eddy.spark.join(query, {}, strategy="Jisc")
"""
FIRST_WRONG = PROGRAM.splitlines().index("def wrong(query: eddy.Query) -> None:") + 2


def test_the_types_list_the_registries() -> None:
    for names, registry in ((StrategyName, STRATEGIES), (PolicyName, POLICIES), (Format, FORMATS)):
        assert set(get_args(names)) == set(registry)


def test_mypy_finds_typos(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(tmp_path / "program.py"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if "program.py" in line and ": error:" in line]
    assert [int(line.split(":")[1]) for line in lines] == list(range(FIRST_WRONG, FIRST_WRONG + 6)), done.stdout
