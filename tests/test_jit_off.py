"""A subset of the oracle tests with the JIT off: the kernels as plain Python, so that coverage measures them.

It runs in a process of its own, because numba decides at import. It requires that all but a few lines of each
kernel file that joins use are covered (only very large pushes need some of the code for room).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUBSET = (
    "tests/eddy/test_bands.py::test_matches_of_a_band_are_counted",
    "tests/eddy/test_bands.py::test_versions_that_ended_stay_in_a_band_and_are_no_matches",
    "tests/eddy/test_branches.py",
    "tests/eddy/test_branches_of_tables.py::test_upserts_by_the_keys_of_tables",
    "tests/eddy/test_runtime_oracle.py",
    "tests/eddy/test_comparisons.py",
    "tests/eddy/test_scans.py",
    "tests/eddy/test_failed_push.py",
    "tests/eddy/test_key_hash.py",
    "tests/eddy/test_long_streams.py",
    "tests/eddy/test_marks.py",
    "tests/eddy/test_payload.py",
    "tests/eddy/test_snapshot.py",
    "tests/eddy/test_stored_room.py",
    "tests/eddy/test_tables.py",
    "tests/eddy/test_tables_interrupted.py::test_a_failed_push_leaves_tables_as_they_were",
    "tests/eddy/test_transitions_machine.py",
    "tests/stairs/test_bands.py",
    "tests/stairs/test_ledger.py",
    "tests/stairs/test_modules_check.py",
    "tests/stairs/test_rows.py",
    "tests/stairs/test_samples.py",
    "tests/stairs/test_stair.py",
    "tests/stairs/test_stair_machine.py",
    "tests/stairs/test_one_key.py",
    "tests/stairs/test_payload.py::test_every_kind_of_column",
    # A changelog with Range windows and a given watermark. The drawn cases of the other files reach it by chance only.
    "tests/eddy/test_watermark.py::test_a_watermark_that_fails_leaves_no_trace",
)
FOR_COMPILED_KERNELS = (
    "larger_than_any_room",  # 270 000 results
    "learning_rests_where_nothing_dangles",
    "same_with_and_without_marks",
    "many_arrivals_over_small_windows",
    "picks_are_spread",
    "profiles_count_what_is_there",
    "more_results_than_can_be",
    "chain_on_two_classes",
    "windows_that_have_turned_over",
    "metrics_count_what_happened",
    "memory_follows_the_live_entries",
    "room_of_a_large_push_is_given_back",
    "random_joins_give_what_duckdb_gives",
    "forged",
    # A word alone would also be found in the names of folders.
    "nested_loops_in_one_plan and not ([eddy-append or [jisc-changelog or [cacq-append)",
    "a_column_comes_out_as_it_went_in",
    "one_arrival_makes_more_composites",
    "set_differences_in_any_order",
    "another_process_writes_the_same_bytes",  # coverage does not follow the code into another process
    "depends_on_the_seeds",
    "in_a_snowflake_that_few",
    "grows_step_by_step",
    # Two words of bits are enough; with 128 streams, cacq alone has lines of its own.
    "many_streams_with_a_transition and not (65] or [cacq-128)",
)
"""Tests of these files that take seconds each in plain Python, and most of the total time. They alone cover some twenty
lines of kernels, mostly the interning of many strings."""
NO_LOOPS = (
    "__init__.py",
    "accelerate.py",
    "arguments.py",
    "bits.py",
    "by_address.py",
    "compiled.py",
    "memory.py",
    "pipeline.py",
)
"""Files of the kernel package that run other code in plain Python, or that do the compiling."""
LEAST_PERCENT = 90


@pytest.mark.campaign(0)
@pytest.mark.slow
def test_subset_with_jit_off(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "HYPOTHESIS_PROFILE": "few",
        "COVERAGE_FILE": str(tmp_path / "coverage"),
    }
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]

    # NumPy integers warn on overflow; integers of compiled kernels wrap around, on which hashes rely.
    pytest_arguments = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::RuntimeWarning")
    chosen = ("-k", f"not ({' or '.join(f'({name})' for name in FOR_COMPILED_KERNELS)})", *SUBSET)
    # pyproject.toml leaves the kernels out, since `make coverage` runs them compiled.
    measured = ("--branch", "--source=stairs/kernels", "--omit=tests/*")
    run("coverage", "run", *measured, "-m", "pytest", *pytest_arguments, *chosen)
    report = tmp_path / "coverage.json"
    run("coverage", "json", "-q", "--fail-under=0", "-o", str(report))
    files = json.loads(report.read_text())["files"]
    covered = {
        name: (figures["summary"]["percent_covered"], figures["missing_lines"])
        for name, figures in files.items()
        if Path(name).name not in NO_LOOPS and figures["summary"]["covered_lines"]
    }
    assert covered, f"no kernel was run: {sorted(files)}"
    thin = {name: reached for name, reached in covered.items() if reached[0] < LEAST_PERCENT}
    assert not thin, f"kernels covered by less than {LEAST_PERCENT} %, with the lines missed: {thin}"
