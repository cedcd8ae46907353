"""The cache of compiled kernels belongs to the sources, wherever they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT

PROGRAM = """
import numpy as np
from stairs.kernels.keys import spread
spread(np.int64(5), np.int64(60))
print(sum(spread.stats.cache_hits.values()), sum(spread.stats.cache_misses.values()))
"""


def hits_and_misses(sources: Path, cache: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment |= {"PYTHONPATH": str(sources), "EDDY_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], cwd=sources, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_copies_of_the_same_sources_share_compiled_kernels_and_an_edit_starts_anew(tmp_path: Path) -> None:
    one, other, cache = tmp_path / "one", tmp_path / "other", tmp_path / "cache"
    for copy in (one, other):
        shutil.copytree(ROOT / "stairs", copy / "stairs", ignore=shutil.ignore_patterns("__pycache__"))
    assert hits_and_misses(one, cache) == "0 1"
    assert hits_and_misses(other, cache) == "1 0"
    path = other / "stairs" / "kernels" / "bits.py"
    path.write_text(path.read_text() + "\n# An edit of another file.\n")
    assert hits_and_misses(other, cache) == "0 1"
