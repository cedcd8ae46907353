"""The CPU time of others is that of the machine less that of this process and its children."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bench.harness import run
from bench.harness.run import Others

SPIN = "import time\nwhile time.process_time() < 0.4: pass\nprint('spun', flush=True)\ninput()"


def test_cores_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"busy": 100.0, "own": 7.0, "clock": 50.0}
    monkeypatch.setattr(run, "_busy_s", lambda: now["busy"])
    monkeypatch.setattr(run, "_own_s", lambda: now["own"])
    monkeypatch.setattr(run, "perf_counter", lambda: now["clock"])
    watch = Others()
    now.update(busy=118.0, own=16.0, clock=60.0)
    assert watch.cores() == pytest.approx(0.9)
    now.update(own=99.0)  # clocks are read one after the other
    assert watch.cores() == 0


def test_what_was_started_is_not_other_work() -> None:
    """A child process does not count as other work, neither while it runs nor when it has ended."""
    before = run._own_s()
    command = [sys.executable, "-c", SPIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "spun\n"
        running = run._own_s()
        child.communicate("\n")
    assert running - before >= 0.35
    assert run._own_s() >= running - 0.001  # the sums are taken in another order


def test_a_machine_at_work_is_busy() -> None:
    before = run._busy_s()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert run._busy_s() - before >= 0.2
