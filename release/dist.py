"""Build the distributions for PyPI, by `make dist`, and check them as a user gets them: nothing is downloaded.

The checks: twine accepts the metadata and the README; the wheel, built from the sdist, has the packages, their files
that are not Python, and nothing else; installed apart from this clone, it imports in time and its command runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from release.sources import ROOT, copy_sources, python

FILES = {
    "eddy/py.typed", "stairs/py.typed", "jisc/py.typed", "eddy/__init__.pyi", "eddy/show/page.html",
    "eddy/demo/data/flights.parquet", "eddy/demo/data/tweets/LICENSE", "pyspark_eddy.py",
}  # fmt: skip
PACKAGES = {"eddy", "stairs", "jisc"}
SECONDS = 0.4
"""Bound on `import eddy`."""


def build(out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, in the folder `out`; return both paths."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, built = Path(scratch, "copy"), Path(scratch, "built")
        copy_sources(copy)
        python("build", "--no-isolation", "--outdir", built, copy)
        python("twine", "check", "--strict", *built.iterdir())
        out.mkdir(exist_ok=True)
        sdist, wheel = (Path(shutil.copy(next(built.glob(kind)), out)) for kind in ("*.tar.gz", "*.whl"))
        return sdist, wheel


def check_files(wheel: Path) -> None:
    """Exit with a message if a file is missing in the wheel or does not belong there."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if FILES - names or tops != PACKAGES | {"pyspark_eddy.py"}:
        sys.exit(f"{wheel.name}: missing {sorted(FILES - names)}; it has {sorted(tops)}")


def check_installed(wheel: Path) -> float:
    """Install the wheel in a folder of its own, run it there, and return the seconds that `import eddy` takes."""
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch, "site")
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--target", site)
        python("pip", "install", *options, wheel)
        environment = os.environ | {"PYTHONPATH": str(site)}

        def run(*command: str) -> tuple[str, float]:
            begun = time.perf_counter()
            done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(command)}")
            return done.stdout, time.perf_counter() - begun

        code = "import time; t = time.perf_counter(); import eddy; print(time.perf_counter() - t, eddy.__file__)"
        imports = [run(sys.executable, "-c", code)[0].split() for _ in range(5)]
        if any(not Path(path).is_relative_to(site) for _, path in imports):
            sys.exit(f"{imports[0][1]} was imported, and not the wheel")
        run(sys.executable, "-c", "import eddy, stairs, jisc; from eddy import Engine, Query, Runtime, serve, sql")
        run(sys.executable, str(site / "bin" / "eddy"), "--help")
        return min(float(seconds) for seconds, _ in imports)


if __name__ == "__main__":
    sdist, wheel = build(ROOT / "dist")
    check_files(wheel)
    seconds = check_installed(wheel)
    if seconds > SECONDS:
        sys.exit(f"`import eddy` takes {seconds:.2f} s, more than {SECONDS} s")
    print(f"{sdist}\n{wheel}\n`import eddy` takes {1000 * seconds:.0f} ms")
