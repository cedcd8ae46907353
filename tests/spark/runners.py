"""The processes in which Spark asks a Python source what is new, as forks of one that has imported the libraries.

Spark starts such a process with each start of a streaming query, and its imports took most of the time of a short test.
A process that starts below a JVM with the variables of `forking` imports `at_start/sitecustomize.py`. If it is one of
those, it sends its environment and its standard streams to `serve`, and waits for the end of the fork, which runs in
its place.

Drivers in processes of their own, such as those of `streaming/faults`, have what users have.
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
from importlib import import_module
from pathlib import Path

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
AT_START = Path(__file__).parent / "at_start"
_LONGEST = 1 << 20
"""Bytes of an environment."""
_LOOK_S = 2.0


@contextmanager
def forking() -> Iterator[dict[str, str]]:
    """Serve forks in the block; yield the environment variables of a JVM that uses them."""
    name = f"eddy-runners-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        server = subprocess.Popen([sys.executable, "-m", __name__], stdin=listener)
    path = os.pathsep.join(filter(None, [str(AT_START), os.environ.get("PYTHONPATH")]))
    try:
        yield {"EDDY_RUNNER": RUNNER, "EDDY_RUNNER_FORKS": name, "PYTHONPATH": path}
    finally:
        server.terminate()
        server.wait()


def serve(listener: socket.socket) -> None:
    """Fork for each process that connects, until the parent of this one has ended."""
    import_module(RUNNER)
    import_module("eddy.spark.streaming.inputs.source")
    del sys.modules[RUNNER]  # runs as the program
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
        environment, descriptors, _, _ = socket.recv_fds(replaced, _LONGEST, 3)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(json.loads(environment), descriptors)
        replaced.close()
        for one in descriptors:
            os.close(one)


def _run(environment: dict[str, str], descriptors: list[int]) -> None:
    """Run Spark's program in this process and exit."""
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    try:
        runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
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
