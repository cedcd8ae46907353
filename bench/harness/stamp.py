"""Where and with what figures were measured."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numba", "numpy", "pyarrow", "pyspark", "polars", "duckdb")
MEASURED = ("stairs", "jisc", "eddy", "bench")
"""Packages whose sources change what is measured; `bench.harness` only tells it."""


@dataclass(frozen=True)
class Stamp:
    """What a measurement depends on beside its point.

    machine   cores and processor
    memory    GiB
    system    operating system and the first two numbers of its release
    versions  Python and packages
    sources   a digest of the sources measured
    """

    machine: str
    memory: int
    system: str
    versions: str
    sources: str

    def text(self) -> str:
        """Return it as a line for a reader."""
        return f"{self.machine}, {self.memory} GiB, {self.system}, {self.versions}; sources {self.sources}"

    def row(self) -> dict[str, str | int]:
        """Return its fields."""
        return asdict(self)


def processor() -> str:
    """Return the number of cores and the name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return f"{len(names)} × {names[0]}"
    return f"{os.cpu_count()} × {platform.machine()}"


def versions() -> str:
    """Return the versions of Python and of the packages that figures depend on, those that are there."""
    found = [f"Python {'.'.join(map(str, sys.version_info[:3]))}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _digest() -> str:
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in MEASURED:
        for source in sorted((root / package).rglob("*.py")):
            if "harness" not in source.parts:
                digest.update(source.relative_to(root).as_posix().encode())
                digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


@cache
def stamp() -> Stamp:
    """Return the stamp of this process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return Stamp(processor(), round(memory / 2**30), system, versions(), _digest())
