"""The parent process of Spark's Python workers: it loads the engine once and then forks the workers.

The setting `spark.python.daemon.module` names this module (see `session.py`). A forked worker shares the imported
modules and the compiled kernels of its parent, so no task compiles or loads kernels. If the warm-up fails, the workers
still run, and each worker loads the kernels when it first uses them.

Invariant: no code writes to the standard output before `manager()` writes its port, which the JVM reads there.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback

from eddy.spark.environment.ending import ending_quietly


def warm() -> bool:
    """Import the modules that tasks need and load the kernels; return False after a failure, which goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import eddy
            from eddy.spark.batch import hop_tasks, partition_join  # noqa: F401
            from eddy.spark.hops import windows
            from eddy.spark.partitioning import pieces
            from eddy.spark.transports import packed, rows  # noqa: F401

            eddy.warmup()
            pieces.warmup()
            windows.warmup()
        except Exception:
            print("eddy: the warm-up of the workers failed; they load the kernels on first use:", file=sys.stderr)
            traceback.print_exc()
            return False
    # A worker collects garbage after each task. Freezing excludes the half million objects of the compiler and the
    # libraries: collecting these objects would cost more than a small task and would copy their shared memory pages.
    gc.collect()
    gc.freeze()
    return True


if __name__ == "__main__":
    from pyspark import daemon

    warm()
    vars(daemon)["worker"] = ending_quietly(daemon.worker)
    daemon.manager()
