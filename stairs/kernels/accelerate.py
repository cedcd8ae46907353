"""The jit decorators of all kernels.

numba keeps compiled kernels in a directory of this package (`stairs.kernels.compiled`). numba's own setting is
restored, so the caches of other libraries in the process do not move.

Three conventions of the kernels have their reason here. Only kernels that Python calls are `jit`, and their steps are
`step` or `inlined`: numba would compile the unpacking of Python's arguments, some hundred array fields, for each step
too, which took a quarter of the time. Kernels allocate nothing and are compiled without numba's reference counting:
with it, each array field named in a branch costs atomic operations, which made a walk take four times as long. And
kernels index the large arrays by `u64(…)`: for a signed index numba adds the wrap-around of negative indices to every
access, which took a quarter of the run time.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numpy import uint64 as u64

from stairs.kernels.arguments import Bundle, bundled
from stairs.kernels.compiled import cache_directory
from stairs.kernels.pipeline import KernelCompiler
from stairs.progress import show_progress

__all__ = ["Bundle", "bundled", "inlined", "jit", "step", "u64"]

F = TypeVar("F", bound=Callable[..., Any])

_COMPILING = _thread.allocate_lock()
"""Held by a thread that compiles on behalf of the main thread."""


@atexit.register
def _let_it_end() -> None:
    """Wait for a compilation whose caller was interrupted: LLVM must not shut down before it ends."""
    with _COMPILING:
        pass


show_progress(cache_directory)


@cache
def _digest(folder: Path) -> str:
    """Return a digest of a folder: a kernel may use steps, arrays and constants of its neighbours."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class Locator:
    """The place of a compiled kernel; numba asks it in place of its own locators (`NUMBA_CACHE_LOCATOR_CLASSES`)."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._name = f"{function.__module__}-{function.__code__.co_firstlineno}"
        self._file = Path(file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Locator:
        """Return the place of a function that is defined in `file`."""
        return cls(function, file)

    def ensure_cache_path(self) -> None:
        """Create the directory."""
        cache_directory()

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        """Return a digest of the folder; the name of the directory has that of this package only."""
        return _digest(self._file.parent)

    def get_disambiguator(self) -> str:
        """Return what tells functions with the same name apart: module and line."""
        return self._name


def _known_by_directory(kernel: Any) -> Any:
    """Return the kernel without the processor in the keys of its cache: the name of the directory has it.

    So a copy of shipped kernels, compiled for a common processor, is found.
    """
    if not hasattr(getattr(kernel, "_cache", None), "_index_key"):
        return kernel  # a step, or numba is switched off
    full_key = kernel._cache._index_key

    def key(signature: Any, codegen: Any) -> Any:
        argument_types, _, code = full_key(signature, codegen)
        return argument_types, code

    kernel._cache._index_key = key
    return kernel


class Collector:
    """Python's collector of cycles, which runs seldom while kernels compile: it took a sixth of the time.

    A compilation makes millions of objects, most of which stay. Less than a tenth more memory is used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._usual = gc.get_threshold()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Collect seldom until the end of the context; contexts of several threads may overlap."""
        with self._lock:
            if self._open == 0:
                self._usual = gc.get_threshold()
                gc.set_threshold(max(self._usual[0], 50_000) if self._usual[0] else 0, *self._usual[1:])
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    gc.set_threshold(*self._usual)


_COLLECTOR = Collector()


def _shielded(kernel: Any) -> Any:
    """Return the kernel with compilation and loading moved to a separate thread when the main thread needs it.

    Signal handlers run in the main thread. A handler that raises there (Ctrl-C during a compilation, which takes
    seconds) would leave numba's registries half filled, and the process could not compile any more. So the main thread
    only waits and can be interrupted; the compilation continues.
    """
    if not hasattr(kernel, "_compile_for_args"):
        return kernel  # numba is switched off
    compile_for = kernel._compile_for_args

    def compile_here(*args: Any, **kwargs: Any) -> Any:
        with _COLLECTOR.slow():
            return compile_for(*args, **kwargs)

    def compile_aside(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != threading.main_thread().ident:
            return compile_here(*args, **kwargs)
        compiled: list[Any] = []
        errors: list[BaseException] = []
        done = _thread.allocate_lock()
        done.acquire()

        def work() -> None:
            try:
                with _COMPILING:
                    compiled.append(compile_here(*args, **kwargs))
            except BaseException as error:
                errors.append(error)
            finally:
                done.release()

        # Not `threading.Thread`: its `start` and `join` never release their locks if a signal handler raises in them.
        _thread.start_new_thread(work, ())
        done.acquire()
        if errors:
            raise errors[0]
        return compiled[0]

    kernel._compile_for_args = compile_aside
    return kernel


def _compile(function: F, part: bool, **options: bool) -> F:
    """Compile a function, or a part of others, for which Python has no entry."""
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Locator.__name__}"
    try:
        decorate = numba.njit(
            _nrt=False,
            cache=not part,
            nogil=True,
            boundscheck=False,
            error_model="numpy",
            no_cpython_wrapper=part,
            no_cfunc_wrapper=True,
            pipeline_class=KernelCompiler,
            **options,
        )
        return _shielded(_known_by_directory(decorate(function)))
    finally:
        config.CACHE_LOCATOR_CLASSES = before


def jit(function: F) -> F:
    """Compile a kernel that Python calls: nopython, no GIL, no bounds checks, cached on disk.

    A kernel raises nothing and returns counts or a status code; its caller raises.

    A kernel is not inlined into others, unless the compiler finds it small: numba would give an option that is not set
    the value of the caller, and an inlined step would inline the kernel at each of its calls.
    """
    return _compile(function, part=False, forceinline=False)


def step(function: F) -> F:
    """Compile a step of kernels, which Python cannot call.

    A step that an inlined step calls is inlined as well: it takes this option from its caller. Without that, jisc,
    stairs and cacq took 1.35 to 1.47 times as long.
    """
    return _compile(function, part=True)


def inlined(function: F) -> F:
    """Compile a step that is always inlined: a call would pass dozens of array fields on the stack."""
    return _compile(function, part=True, forceinline=True)
