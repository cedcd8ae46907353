"""The machine, the versions and the sources with which a point was measured."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numba", "numpy", "pyarrow", "pyspark", "polars", "duckdb")
MEASURED = ("stairs", "jisc", "eddy", "bench")
"""Packages whose sources change what is measured; `bench.harness` only reports it."""


def processor() -> str:
    """Return the number of cores and the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else f"{os.cpu_count()} × {platform.machine()}"


@cache
def machine() -> str:
    """Return processor, memory, operating system, and the versions of Python and the packages that are installed."""
    found = [f"Python {'.'.join(map(str, sys.version_info[:3]))}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{processor()}, {memory:.0f} GiB, {system}, {', '.join(found)}"


@cache
def sources() -> str:
    """Return a digest of the sources that are measured."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in MEASURED:
        for source in sorted((root / package).rglob("*.py")):
            if "harness" not in source.parts:
                digest.update(source.relative_to(root).as_posix().encode())
                digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
