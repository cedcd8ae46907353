"""A copy of the sources to build from: setuptools leaves files next to sources, and packs those of earlier builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("stairs", "jisc", "eddy", "pyspark_eddy.py", "pyproject.toml", "README.md", "LICENSE")


def copy_sources(to: Path) -> None:
    """Copy the sources into a new folder, without compiled files."""
    to.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to)


def python(*arguments: str | Path) -> None:
    """Run a module of this Python; its messages are shown if it fails."""
    done = subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed: python -m {' '.join(map(str, arguments))}")
