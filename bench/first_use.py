"""The time from the start of a process to the first result of the query in the README, with an empty cache of kernels.

`first_use_s` includes the compilation of the kernels, `first_use_wheel_s` does not: a wheel ships them
(`eddy.shipping`). Both figures are wall time, since a user waits for it.
"""

from __future__ import annotations

import doctest
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench.harness.figure import Row, Say, spread
from eddy import EddyError
from eddy.shipping import MACHINE, ship

ROOT = Path(__file__).parents[1]
PACKAGES = ("stairs", "jisc", "eddy")


def program() -> str:
    """Return the first example of the README, up to its first result."""
    (block, *_) = re.findall(r"```python\n(>>>.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    sources = [example.source for example in doctest.DocTestParser().get_examples(block)]
    last = max(k for k, source in enumerate(sources) if "runtime.push" in source)
    return "".join(sources[: last + 1])


def _seconds(tree: Path, shipped: bool) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "first.py")
        script.write_text(program())
        options = {"PYTHONPATH": str(tree), "EDDY_CACHE_DIR": scratch + "/cache", "EDDY_SHIPPED": str(int(shipped))}
        start = perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", script], env={**os.environ, **options}, cwd=scratch, capture_output=True, text=True
        )
        taken = perf_counter() - start
    if done.returncode:
        raise EddyError(f"the first example of the README failed: {done.stderr.strip()[-500:]}")
    return taken


def first_uses(count: int, say: Say) -> list[Row]:
    """Return the seconds of `count` first uses of each kind, as `first_use_s` and `first_use_wheel_s`."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        # An installation compiles the sources to bytecode as well.
        subprocess.run([sys.executable, "-m", "compileall", "-q", tree], check=True)
        kinds, rows = [("first_use_s", False)], list[Row]()
        if platform.machine() == MACHINE:
            say("compiling the kernels of a wheel")
            ship(tree)
            kinds.append(("first_use_wheel_s", True))
        else:
            rows.append({"skipped": f"the first use of a wheel: its kernels are for {MACHINE}"})
        for name, shipped in kinds:
            taken = []
            for number in range(count):
                say(f"{name}, {number + 1} of {count}")
                taken.append(_seconds(tree, shipped))
            rows.append({"figure": name, **spread(taken, "value")})
    return rows
