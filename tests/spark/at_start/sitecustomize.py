"""Python imports this module when it starts below a JVM of the tests; see `tests/spark/runners.py`."""

import os
import sys

if sys.orig_argv[-1] == os.environ["EDDY_RUNNER"]:
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(f"\0{os.environ['EDDY_RUNNER_FORKS']}")
        socket.send_fds(forks, [json.dumps(dict(os.environ)).encode()], [0, 1, 2])
        forks.recv(1)  # the end of the fork
    os._exit(0)
