"""The cache of compiled kernels belongs to the sources, wherever they are installed; compiling shows."""

from __future__ import annotations

import gc
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest
from numba.core import config
from numba.core.event import Event, EventStatus

from stairs.kernels.accelerate import Collector
from stairs.kernels.pipeline import KernelCompiler
from stairs.progress import CompilationProgress
from tests.documents import ROOT

pytestmark = pytest.mark.versions

PROGRAM = """
import numpy as np
from stairs.kernels.stable_hashes import mix_words
mix_words(np.zeros(1, np.int64), np.zeros(1, np.uint64))
print(sum(mix_words.stats.cache_hits.values()), sum(mix_words.stats.cache_misses.values()))
"""


def run(sources: Path, cache: Path, program: str = PROGRAM, **variables: str) -> tuple[str, str]:
    """Compile or load a kernel in another process; return cache hits and misses, and standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment |= {"PYTHONPATH": str(sources), "EDDY_CACHE_DIR": str(cache), **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=sources, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_copies_of_the_same_sources_share_compiled_kernels_and_an_edit_starts_anew(tmp_path: Path) -> None:
    first, other, cache = tmp_path / "one", tmp_path / "other", tmp_path / "cache"
    for copy in (first, other):
        shutil.copytree(ROOT / "stairs", copy / "stairs", ignore=shutil.ignore_patterns("__pycache__"))
    counts, said = run(first, cache)
    assert counts == "0 1"
    assert said.count("eddy compiles its kernels for this machine and keeps them in") == 1
    assert str(cache) in said
    assert run(other, cache) == ("1 0", "")
    path = other / "stairs" / "kernels" / "bits.py"
    path.write_text(path.read_text() + "\n# An edit of another file.\n")
    assert run(other, cache, EDDY_PROGRESS="0") == ("0 1", "")


SEARCH = """
import numpy as np
from stairs.kernels import byte_strings
arena = byte_strings.BytesArena(
    np.zeros(9, np.uint8), np.zeros(2, np.int64), np.full(2, -1, np.int32), np.zeros(2, np.int64),
    np.zeros(2, np.int32), np.full(4, -1, np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32),
    np.zeros(byte_strings.B_FIELDS, np.int64),
)
byte_strings.settle(arena, np.zeros(1, np.int64))
assert arena.users[0] == 1
cached = [hasattr(one._cache, "_cache_file") for one in (byte_strings.settle, byte_strings.hash_bytes)]
print(*cached, len(byte_strings.settle.signatures))
"""


def test_kernels_are_cached_and_their_steps_are_not(tmp_path: Path) -> None:
    assert run(ROOT, tmp_path, program=SEARCH)[0] == "True False 1"


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_step_is_compiled_once_whatever_constants_it_gets() -> None:
    compiled = numba.njit(pipeline_class=KernelCompiler, no_cfunc_wrapper=True, no_cpython_wrapper=True, _nrt=False)
    called = numba.njit(pipeline_class=KernelCompiler, no_cfunc_wrapper=True, _nrt=False)

    @compiled  # type: ignore[untyped-decorator]
    def power(x: int, n: int) -> int:
        return x**n

    @called  # type: ignore[untyped-decorator]
    def sum_of_powers(x: int) -> int:
        return int(power(x, 1) + power(x, 2) + power(2, x) + power(x, x))

    assert sum_of_powers(3) == 3 + 9 + 8 + 27
    assert len(power.signatures) == 1


def test_cycles_are_collected_seldom_only_while_some_thread_compiles() -> None:
    usual = gc.get_threshold()
    collector = Collector()
    with collector.slow():
        assert gc.get_threshold()[0] > usual[0]
        with pytest.raises(ZeroDivisionError), collector.slow():
            _ = 1 // 0
        assert gc.get_threshold()[0] > usual[0]
    assert gc.get_threshold() == usual


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_the_compilation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    progress = CompilationProgress(lambda: "/cache")
    ours, other = (SimpleNamespace(py_func=SimpleNamespace(__module__=name)) for name in ("stairs.x", "elsewhere"))
    began, ended = (
        [Event("numba:compile", status, {"dispatcher": dispatcher}) for dispatcher in (ours, other)]
        for status in EventStatus
    )
    for event in (began[1], began[0], began[0]):
        progress.on_start(event)
    for event in (ended[0], ended[0], ended[1]):
        progress.on_end(event)
    assert out.getvalue() == (
        "eddy compiles its kernels for this machine and keeps them in /cache; later starts take none of this time\n"
        "\r  functions: 1, seconds: 0\r  functions: 2, seconds: 0\r  functions: 2, seconds: 0\n"
    )


@pytest.mark.parametrize("broken", [None, "closed"])
def test_a_process_without_standard_error_compiles(broken: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    out.close()
    monkeypatch.setattr(sys, "stderr", broken and out)
    ours = SimpleNamespace(py_func=SimpleNamespace(__module__="stairs.x"))
    progress = CompilationProgress(lambda: "/cache")
    for status, hear in zip(EventStatus, (progress.on_start, progress.on_end), strict=True):
        hear(Event("numba:compile", status, {"dispatcher": ours}))
