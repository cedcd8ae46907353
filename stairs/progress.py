"""A line on standard error while kernels compile, so that nobody takes the first push for a hang.

Compiled kernels are kept on disk, so the line appears once for each machine and version. On a terminal, it counts the
functions and the seconds. `EDDY_PROGRESS=0` switches it off.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from numba.core.event import Event, Listener, register

OURS = ("stairs.", "jisc.", "eddy.", "bench.")
"""Modules whose functions count; a user's own functions are no concern of ours."""
OFF = "EDDY_PROGRESS"


class CompilationProgress(Listener):
    """Listens to numba: says when compilation begins, and on a terminal how far it is.

    directory   returns where compiled kernels are kept
    """

    def __init__(self, directory: Callable[[], object]) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open = self._functions = 0
        self._began = 0.0
        self._said = False

    def on_start(self, event: Event) -> None:
        """Count a function; say so if it is the first."""
        if not self._is_ours(event):
            return
        with self._lock:
            if self._open == 0:
                self._began, self._functions = monotonic(), 0
            self._open += 1
            self._functions += 1
            first, self._said = not self._said, True
            self._say(first)

    def on_end(self, event: Event) -> None:
        """End the line when the outermost function is compiled."""
        if not self._is_ours(event):
            return
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._say(False)

    def _is_ours(self, event: Event) -> bool:
        function: Any = event.data["dispatcher"].py_func
        return str(function.__module__).startswith(OURS) and os.environ.get(OFF) != "0"

    def _say(self, first: bool) -> None:
        out = sys.stderr
        try:
            live = out.isatty()
            if first:
                why = f"eddy compiles its kernels for this machine and keeps them in {self._directory()}"
                out.write(f"{why}; later starts take none of this time\n")
            if live:
                seconds = monotonic() - self._began
                end = "\n" if self._open == 0 else ""
                out.write(f"\r  functions: {self._functions}, seconds: {seconds:.0f}{end}")
            if first or live:
                out.flush()
        except (AttributeError, OSError, ValueError):
            # No standard error, or a closed one.
            return


def show_progress(directory: Callable[[], object]) -> None:
    """Show the progress of all compilations in this process from now on."""
    register("numba:compile", CompilationProgress(directory))
