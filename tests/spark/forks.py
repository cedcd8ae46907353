"""The processes that Spark starts for Python code, as forks of one that has imported the libraries.

For a Python source Spark starts one with each start of a streaming query, which asks the source what is new, and three
more in each JVM. The imports of the first took most of the time of a short test. In the JVMs of the fault campaign the
parents of Python workers are forks as well: each of them loaded the kernels, which takes two seconds of a processor,
and each JVM has one for each pool (`eddy/spark/environment/pools.py`). Other tests look for workers below their JVM.
Each process of Python that starts below a JVM with the variables of `forking` imports `at_start/sitecustomize.py`. If
it is of these kinds, it sends its arguments, its environment and its standard streams to `serve`, and waits for the end
of the fork, which runs in its place.

`two_hosts.py`, `three_hosts.py` and `stops.py` run the processes that users have, and so does the long form of
`test_faults.py`.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path

from eddy.spark.environment.daemon import warm

LIBRARIES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    *(f"pyspark.sql.worker.{what}" for what in ("lookup_data_sources", "create_data_source", "plan_data_source_read")),
    "eddy.spark.streaming.inputs.source",
)
PARENT = "tests.spark.streaming.faults.daemon"
AT_START = Path(__file__).parent / "at_start"
_LONGEST = 1 << 20
"""Bytes of an environment with arguments."""
_LOOK_S = 2.0


@contextmanager
def forking() -> Iterator[dict[str, str]]:
    """Serve forks in the block; yield the environment variables of a JVM that uses them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")  # Linux gives it a free name
        name = listener.getsockname()[1:].decode()
        listener.listen()
        server = subprocess.Popen([sys.executable, "-m", __name__], stdin=listener)
    path = os.pathsep.join(filter(None, [str(AT_START), os.environ.get("PYTHONPATH")]))
    try:
        yield {"EDDY_FORKS": name, "PYTHONPATH": path}
    finally:
        server.terminate()
        server.wait()


def serve(listener: socket.socket) -> None:
    """Fork for each process that connects, until the parent of this one has ended."""
    for library in LIBRARIES:
        import_module(library)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    listener.settimeout(_LOOK_S)
    while os.getppid() == parent:
        try:
            replaced, _ = listener.accept()
        except TimeoutError:
            continue
        asked, descriptors, _, _ = socket.recv_fds(replaced, _LONGEST, 3)
        started = json.loads(asked)
        if PARENT in started["arguments"]:
            _load_kernels()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(descriptors, **started)
        replaced.close()
        for descriptor in descriptors:
            os.close(descriptor)


@cache
def _load_kernels() -> None:
    import_module("pyspark.daemon")
    import_module(PARENT)
    warm()


def _run(descriptors: list[int], arguments: list[str], environment: dict[str, str]) -> None:
    """Run a module in this process as `python -m` does, and exit."""
    sys.argv = arguments
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.modules.pop(arguments[0], None)  # runs as the program
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit:
        pass  # it has told Spark why
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
