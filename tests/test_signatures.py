"""Each kernel is compiled once, whatever the use: the library converts its input to one kind of array at the boundary.

A kernel that received another kind (int32, strided, read-only) would be compiled again and stop a stream for seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import eddy
from stairs.kernels.compiled import cache_directory

MOST_BYTES = 3 << 20
"""Bytes of a compiled kernel, about twice the largest one."""
ROOT = Path(__file__).parent.parent
WITHIN_OTHERS = {
    "stairs.kernels.keys.drop_key",
    "stairs.kernels.marks.clear_outwards",
    "stairs.kernels.payload.release_all",
    "stairs.kernels.promotion.promote",
}
"""Kernels that only other kernels, tests and the push after an interrupted one call, so they may not be loaded by
themselves, as steps may not."""
COLD = {
    "stairs.kernels.lookups.lost_key",
    "stairs.kernels.lookups.lost_string",
    "stairs.kernels.stair.all_attempted",
}
"""Kernels that `warmup` leaves out: only checks, tests and the push after an interrupted one call them."""


def test_each_kernel_has_one_signature_and_is_compiled_by_a_warmup() -> None:
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
    said = json.loads(done.stdout.splitlines()[-1])
    assert set(said["cold"]) == COLD
    signatures = said["signatures"]
    pushes = {"one_key.push_one_key", "batched.push_batched", "one_by_one.push_singly"}
    assert {f"stairs.kernels.{name}" for name in pushes} <= signatures.keys()
    assert all(signatures.pop(name) <= 1 for name in WITHIN_OTHERS | set(said["steps"]))
    assert {name: count for name, count in signatures.items() if count != 1} == {}


def test_no_kernel_takes_minutes_to_compile() -> None:
    """A kernel that others inline at each of their calls had 9 MB of machine code, and took three minutes."""
    eddy.warmup()
    sizes = {path.name: path.stat().st_size for path in cache_directory().glob("*.nbc")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}
