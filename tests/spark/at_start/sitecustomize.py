"""Python imports this module when it starts below a JVM of the tests; see `tests/spark/forks.py`."""

import os
import sys

OF_SOURCES = ("pyspark.sql.streaming.", "pyspark.sql.worker.")
PARENT = "tests.spark.streaming.faults.daemon"

if any(argument == PARENT or argument.startswith(OF_SOURCES) for argument in sys.orig_argv):
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(f"\0{os.environ['EDDY_FORKS']}")
        asked = {"arguments": sys.orig_argv[2:], "environment": dict(os.environ)}  # they begin with -m
        socket.send_fds(forks, [json.dumps(asked).encode()], [0, 1, 2])
        forks.recv(1)  # the end of the fork
    os._exit(0)
