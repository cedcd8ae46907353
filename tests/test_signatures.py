"""However the library is used, each kernel is compiled once: what comes in is made one kind of array at the boundary.

A kernel that meets another kind (int32, strided, read-only) would stop a stream for seconds while it is compiled again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WITHIN_OTHERS = {
    "stairs.climb_kernels.stair_newest",
    "stairs.climb_kernels.take_back",
    "stairs.eddy_kernels.route",
    "stairs.keys_kernels.adopt",
    "stairs.keys_kernels.drop_key",
    "stairs.push_kernels.probe_stored",
    "stairs.push_kernels.retire",
    "stairs.push_kernels.retire_all",
    "stairs.stair_kernels.promote",
    "stairs.star_kernels.fetch_heads",
    "stairs.star_kernels.fetch_partners",
    "stairs.star_kernels.push_star",
}
"""Kernels that only kernels call, and so may not have been loaded by themselves."""
NOT_BY_RUNTIME = ("stairs.stair_kernels.insert", "stairs.stair_kernels.probe")
"""What no push calls; its own tests do."""


def test_each_kernel_has_one_signature() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.varied_use"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "stairs.push_kernels.push" in found
    called = {name: count for name, count in found.items() if not name.startswith(NOT_BY_RUNTIME)}
    assert all(called.pop(name) <= 1 for name in WITHIN_OTHERS)
    assert {name: count for name, count in called.items() if count != 1} == {}
