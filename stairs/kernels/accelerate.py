"""The one place that makes jit decorators.

`cache=True` of numba looks at the file of a function only and misses an edit of a kernel in another file, so the cache
directory is named after a digest of all kernel sources: an edit anywhere starts a new one. The directory is
`$EDDY_CACHE_DIR`, or `eddy` under `$XDG_CACHE_HOME` or `~/.cache`, or under the temporary directory when none of them
can be written to. numba's own setting is put back, so the caches of other libraries in the process stay where they are.

What lies in the directory is loaded as code, in numba's own format. So a directory that belongs to another user, or
that others may write to, is passed over with a warning (`stairs.storage.private`).

Two habits of the kernels have their reason here. They allocate nothing and are compiled without numba's reference
counting: with it, each array field named in a branch costs atomic operations, measured at four times the run time of a
walk. And they index the large arrays by `u64(…)`: for a signed index numba adds the wrap-around of negative ones to
every access, measured at a quarter of the run time.
"""

from __future__ import annotations

import _thread
import atexit
import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numpy import uint64 as u64

from stairs.errors import InputError
from stairs.storage.private import private_directory

__all__ = ["cache_directory", "inlined", "jit", "u64"]

LOG = logging.getLogger("eddy.kernels")

F = TypeVar("F", bound=Callable[..., Any])
_COMPILING = _thread.allocate_lock()
"""Held by a thread that compiles on behalf of the main thread."""


@atexit.register
def _let_it_end() -> None:
    """Wait for a compilation that nobody waits for any more: LLVM must not be torn down under it."""
    with _COMPILING:
        pass


def _usable(directory: Path) -> bool:
    """Make a directory if it is missing, and tell whether this user alone can write to it."""
    try:
        return os.access(private_directory(directory), os.W_OK | os.X_OK)
    except OSError:
        return False
    except InputError as refused:
        LOG.warning("compiled kernels are kept elsewhere: %s", refused)
        return False


@cache
def cache_directory() -> Path:
    """Return the directory that holds the compiled kernels of exactly these sources.

    Created on the first call; later calls return the same path.
    """
    here = Path(__file__).parents[1]
    digest = hashlib.sha256(f"numba {numba.__version__}".encode())
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    named = os.environ.get("EDDY_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    candidates = [Path(named)] if named else []
    candidates += [Path(user) / "eddy", Path(tempfile.gettempdir()) / f"eddy-{os.getuid()}"]
    for candidate in candidates:
        directory = candidate / digest.hexdigest()[:16]
        if _usable(directory):
            return directory
    return Path(tempfile.mkdtemp(prefix="eddy-"))


def _shielded(kernel: Any) -> Any:
    """Let a kernel be compiled, or loaded, in a thread of its own when the main thread needs it; return the kernel.

    Signal handlers run in the main thread. One that raises there (Ctrl-C while kernels are compiled, which takes
    seconds) would leave numba's registries half filled, and the process could compile nothing any more. So the main
    thread only waits, and may be interrupted; the compilation goes on.
    """
    if not hasattr(kernel, "_compile_for_args"):
        return kernel  # numba is switched off
    compile_here = kernel._compile_for_args

    def compile_aside(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != threading.main_thread().ident:
            return compile_here(*args, **kwargs)
        found: list[Any] = []
        errors: list[BaseException] = []
        done = _thread.allocate_lock()
        done.acquire()

        def work() -> None:
            try:
                with _COMPILING:
                    found.append(compile_here(*args, **kwargs))
            except BaseException as error:
                errors.append(error)
            finally:
                done.release()

        # Not `threading.Thread`, whose `start` and `join` keep locks for ever when a signal handler raises in them.
        _thread.start_new_thread(work, ())
        done.acquire()
        if errors:
            raise errors[0]
        return found[0]

    kernel._compile_for_args = compile_aside
    return kernel


def _compile(function: F, **options: bool) -> F:
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_directory())
    try:
        decorate = numba.njit(_nrt=False, cache=True, nogil=True, boundscheck=False, error_model="numpy", **options)
        return _shielded(decorate(function))
    finally:
        config.CACHE_DIR = before


def jit(function: F) -> F:
    """Compile a kernel: nopython, no GIL, no bounds checks, cached on disk.

    A kernel raises nothing and returns counts or a status code; its caller raises.
    """
    return _compile(function)


def inlined(function: F) -> F:
    """Compile a step of a kernel that is always inlined: a call would pass dozens of array fields over the stack."""
    return _compile(function, forceinline=True)
