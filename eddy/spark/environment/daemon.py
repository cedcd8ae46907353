"""The parent of Spark's Python workers: loads the engine once, then forks workers that have it.

Named by the setting `spark.python.daemon.module` (see `session.py`). A forked worker shares the imported modules and
the compiled kernels of its parent, so no task compiles or loads anything. When the warm-up fails, the workers still
run and load the kernels on their first use.

Invariant: nothing is written to the standard output before `manager()` has written its port there, the JVM reads it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback


def warm() -> bool:
    """Import what a task needs and make the kernels ready; false when that failed (said on the standard error)."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import eddy
            from eddy.spark.batch import engine, merge, packed, rows  # noqa: F401
            from eddy.spark.partitioning import split

            eddy.warmup()
            split.warmup()
        except Exception:
            print("eddy: the workers start cold, because warming up failed:", file=sys.stderr)
            traceback.print_exc()
            return False
    # A worker collects garbage after each task. Frozen, the half million objects of the compiler and the libraries
    # are left out of that, which would cost more than a small task, and their pages stay shared with this process.
    gc.collect()
    gc.freeze()
    return True


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
