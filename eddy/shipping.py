"""Compiled kernels that a package ships, so that its first use compiles no kernel (`stairs.kernels.compiled`)."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from stairs.errors import InputError
from stairs.kernels.compiled import MADE, OFF, SHIPPED, made

MACHINE, PROCESSOR = "x86_64", "x86-64-v3"
"""The level of x86-64 of processors from 2015 on, as defined by its ABI."""
# fmt: off
FEATURES = [
    "64bit", "avx", "avx2", "bmi", "bmi2", "cmov", "crc32", "cx16", "cx8", "f16c", "fma", "fxsr", "lzcnt",
    "mmx", "movbe", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
]
# fmt: on
PROGRAM = """
import eddy
from eddy.spark.hops import windows
from eddy.spark.partitioning import pieces

eddy.warmup()
pieces.warmup()
windows.warmup()
"""
"""The program that compiles the kernels."""


def ship(tree: Path) -> Path:
    """Compile all kernels of the packages in `tree` for `PROCESSOR` into it, and return their directory.

    `tree` contains the folders `stairs`, `jisc` and `eddy`. It takes a minute or two. Raises InputError on another kind
    of machine, CalledProcessError if a kernel does not compile.
    """
    if platform.machine() != MACHINE:
        raise InputError(
            f"kernels are shipped for {MACHINE}, and this machine is {platform.machine()}: build them there"
        )
    package = tree / SHIPPED.parent.name
    folder = package / SHIPPED.name
    with tempfile.TemporaryDirectory() as scratch:
        options = {"EDDY_CACHE_DIR": scratch, OFF: "0", "NUMBA_CPU_NAME": PROCESSOR, "PYTHONPATH": str(tree)}
        features = {"NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in FEATURES)}
        subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM], cwd=scratch, env={**os.environ, **options, **features}, check=True
        )
        (compiled,) = Path(scratch).iterdir()
        shutil.copytree(compiled, folder)
    (folder / MADE).write_text(json.dumps({**made(package), "features": FEATURES}))
    return folder
