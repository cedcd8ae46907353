"""A process that imports the libraries once, and forks a child for each program of a test.

The children import this project from a folder of the test, such as a copy with a defect. The libraries take over a
second to import, the project a quarter of that. Numba decides at import whether kernels are
compiled: here they are not.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

LIBRARIES = (
    "duckdb",
    "hypothesis.stateful",
    "lazy_loader",
    "numba.np.arrayobj",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pytest",
    "sortedcontainers",
    "sqlglot",
)
"""The libraries that programs of tests need; a program imports others itself."""
CPU_SECONDS = 300
"""A program that takes longer is killed."""
ENVIRONMENT = {
    "NUMBA_DISABLE_JIT": "1",
    # The course of a program is the same in each run, also where it depends on the order of a set.
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # NumPy integers warn on overflow; integers of compiled kernels wrap around, on which hashes rely.
    "PYTHONWARNINGS": "ignore::RuntimeWarning",
}


class ProgramEnd(NamedTuple):
    """The end of a program.

    code  its exit code, or -n if signal n killed it
    said  what it printed, standard error included
    """

    code: int
    said: str


class Forks:
    """The process, until `close`."""

    def __init__(self, folder: Path) -> None:
        """Start the process. `folder` takes what programs print."""
        self._said = folder / "said"
        environment = {**os.environ, **ENVIRONMENT}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [sys.executable, __file__], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, folder: Path, program: str) -> ProgramEnd:
        """Run a program in a folder, from which it imports."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"folder": str(folder), "said": str(self._said), "program": program}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline()
        assert code, f"the process that forks has ended with {self._process.wait()}"
        return ProgramEnd(int(code), self._said.read_text(errors="replace"))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    """Fork a child for each line of JSON, and write its exit code."""
    sys.path.pop(0)  # the folder of this file
    for library in LIBRARIES:
        import_module(library)
    _look_at_modules()
    gc.freeze()  # the collector of a child passes over all of this
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _play(asked["folder"], asked["said"], asked["program"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _look_at_modules() -> None:
    """Run an empty test: with the first one, Hypothesis looks at all imported modules, which takes long."""
    from hypothesis import given, settings
    from hypothesis.strategies import none

    given(none())(settings(database=None)(lambda _: None))()


def _play(folder: str, said: str, program: str) -> None:
    """Run a program in this process and exit."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    none, out = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, descriptor in enumerate((none, out, out)):
        os.dup2(descriptor, number)
    os.chdir(folder)
    sys.path.insert(0, folder)
    code: object = 1
    try:
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
