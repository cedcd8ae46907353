"""Compiled kernels for a package to ship, so that its first use compiles nothing (`stairs.kernels.compiled`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stairs.kernels.compiled import MADE, OFF, SHIPPED, made

PROCESSOR = "x86-64-v3"
"""The level of x86-64 that processors from 2015 on have, as its ABI defines it."""
# fmt: off
FEATURES = [
    "64bit", "avx", "avx2", "bmi", "bmi2", "cmov", "crc32", "cx16", "cx8", "f16c", "fma", "fxsr", "lzcnt",
    "mmx", "movbe", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
]
# fmt: on
PROGRAM = "import eddy; eddy.warmup()"
"""What compiles the kernels to ship."""


def ship(tree: Path) -> Path:
    """Compile all kernels of the packages in `tree` for `PROCESSOR` into it, and return their directory.

    `tree` contains the folders `stairs`, `jisc` and `eddy` with the same sources as those that run. It takes about a
    minute. Raises CalledProcessError if a kernel does not compile.
    """
    folder = tree / SHIPPED.parent.name / SHIPPED.name
    with tempfile.TemporaryDirectory() as scratch:
        options = {"EDDY_CACHE_DIR": scratch, OFF: "0", "NUMBA_CPU_NAME": PROCESSOR, "PYTHONPATH": str(tree)}
        features = {"NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in FEATURES)}
        program = [sys.executable, "-P", "-c", PROGRAM]
        subprocess.run(program, cwd=scratch, env={**os.environ, **options, **features}, check=True)
        (compiled,) = Path(scratch).iterdir()
        folder.mkdir(exist_ok=True)
        for path in compiled.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / MADE).write_text(json.dumps({**made(), "features": FEATURES}))
    return folder
