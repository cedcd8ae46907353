"""Runs the driver program of one job repeatedly until the job is done; kills it and its workers at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from eddy.demo.object_server import object_server
from eddy.spark.streaming.sinks.transactions import snapshot
from tests.spark.streaming.faults.as_of_workload import AsOfWorkload
from tests.spark.streaming.faults.daemon import PARENTS, TRAPS
from tests.spark.streaming.faults.driver import REGROUPED
from tests.spark.streaming.faults.hub_program import (
    KINDS_OF,
    NAMES,
    HubProgram,
    Journal,
    counted_results,
    on_time,
    output_of,
    results_alone,
    versions,
)
from tests.spark.streaming.faults.object_driver import SERVER
from tests.spark.streaming.faults.processes import processes
from tests.spark.streaming.faults.schedule import plan
from tests.spark.streaming.faults.tables_workload import GroupsWorkload, TablesWorkload
from tests.spark.streaming.faults.traps import WORKER_KILLED, Traps
from tests.spark.streaming.faults.workload import LATENESS, STREAMS, FaultsWorkload, Result, Row, counted

PAUSED = "paused"
"""File with the process of a driver that stands still."""
ROOT = Path(__file__).resolve().parents[4]


@dataclass(frozen=True)
class Campaign:
    """One job and its faults.

    kills         ends of a batch at which the driver is killed, as `schedule.plan` takes them
    random_kills  how often the driver is killed at a random moment
    program       module of the driver
    long          whether the driver does what takes long as well
    """

    seed: int
    sink: str
    transport: str
    trigger: str
    batches: int
    kills: tuple[tuple[str, str], ...]
    random_kills: int = 1
    program: str = "driver"
    long: bool = False

    def run(self, root: Path, variables: Mapping[str, str], limit_s: float = 1500.0) -> Ended:
        """Run the campaign in a directory; return its outcome. Raises AssertionError if the driver gave up.

        variables  of the driver's environment, besides those of this process
        """
        workload = self._workload()
        workload.write(root / "sources")
        config = {
            "seed": self.seed,
            "sink": self.sink,
            "transport": self.transport,
            "trigger": self.trigger,
            "batches": self.batches,
            "lateness": LATENESS,
            "keep": 3,
            "long": self.long,
        }
        (root / "config.json").write_text(json.dumps(config))
        traps = Traps(root)
        traps.arm(list(plan(self.seed, self.batches, list(self.kills)).traps))
        chance = random.Random(f"parent {self.seed}")
        faults: Counter[str] = Counter()
        lives, code, until = 0, -signal.SIGKILL, time.monotonic() + limit_s
        while code == -signal.SIGKILL:
            assert time.monotonic() < until, f"the job is not done after {limit_s} s"
            lives += 1
            kill = faults["driver killed at random"] < self.random_kills
            code = _Start(root, self.program, variables, chance, until).run(kill, faults)
        assert code == 0, f"the driver ended with {code}:\n{_tail(root)}"
        for trap in traps.happened():
            faults[trap.kind] += 1
        if (root / "outcomes").exists():
            faults.update(f"damage: {line}" for line in (root / "outcomes").read_text().splitlines())
        left = [trap.kind for trap in traps.left()]
        results, late = self._expected(workload, root)
        regrouped = Counter((root / REGROUPED).read_text().splitlines())
        return Ended(faults, lives, left, self._results(root), results, late_rows(root), late, regrouped)

    def _workload(self) -> FaultsWorkload:
        return FaultsWorkload(self.seed, self.batches)

    def _expected(self, workload: FaultsWorkload, root: Path) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        return workload.expected()

    def _results(self, root: Path) -> Counter[Result]:
        if self.sink == "parquet":
            return parquet_results(root)
        if self.sink == "transactions":
            return _rows(snapshot(root / "out"))
        return _rows(sorted((root / "out").glob("*.parquet")))


class HubCampaign(Campaign):
    """One hub, its faults, and control elements at every point."""

    def _expected(self, workload: FaultsWorkload, root: Path) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        program, journal = HubProgram(self.seed), Journal(root)
        rows, late, marks = on_time(workload)
        results: Counter[Result] = Counter()
        for name in NAMES:
            if name in KINDS_OF:
                alone = results_alone(program, journal, name, rows, marks)
                results.update({(name, *result): count for result, count in alone.items()})
                continue
            for version in versions(program, journal, name, rows):
                results.update({(name, *result): count for result, count in version.results(rows).items()})
        return results, late

    def _results(self, root: Path) -> Counter[Result]:
        results: Counter[Result] = Counter()
        for name in NAMES:
            tables = [pq.ParquetFile(path).read() for path in sorted((root / "out" / name).glob("batch=*/*.parquet"))]
            for row, count in counted_results(tables).items():
                (sign, *result) = row if output_of(name) == "changelog" else ("+I", *row)
                results[name, *result] += count if sign in ("+I", "+U") else -count
        return Counter({result: count for result, count in results.items() if count})


class TablesCampaign(Campaign):
    """One job over tables and its faults. Its results are what its changelog adds up to, whatever the sign."""

    def _workload(self) -> FaultsWorkload:
        return TablesWorkload(self.seed, self.batches)

    def _results(self, root: Path) -> Counter[Result]:
        total: Counter[Result] = Counter()
        for (op, *row), count in parquet_results(root).items():
            total[tuple(row)] += count if op in ("+I", "+U") else -count
        return Counter({row: count for row, count in total.items() if count})


class GroupsCampaign(TablesCampaign):
    """One job with the first groups of a join of tables, and its faults."""

    def _workload(self) -> FaultsWorkload:
        return GroupsWorkload(self.seed, self.batches)


class AsOfCampaign(Campaign):
    """One job with an as-of join and its faults."""

    def _workload(self) -> FaultsWorkload:
        return AsOfWorkload(self.seed, self.batches)


class ObjectCampaign(Campaign):
    """One job with its checkpoint in an object store, which fails and is slow, and its faults.

    Of the requests, some fail before or after their effect, others are slow, and the driver is killed between two
    requests, or while one is under way. Once it only stands still, and goes on when another driver has taken over.
    """

    def run(self, root: Path, variables: Mapping[str, str], limit_s: float = 1500.0) -> Ended:
        """See `Campaign.run`."""
        with object_server() as server:
            (root / SERVER).write_text(json.dumps(server.options))
            faults = ServerFaults(root, self.seed, pauses=int(self.long))
            server.fault = faults
            ended = super().run(root, variables, limit_s)
            ended.faults.update(faults.happened)
            return ended


class ServerFaults:
    """The faults of an object store.

    pauses    how often the driver stands still until another one has taken its place
    happened  faults by kind
    """

    def __init__(self, root: Path, seed: int, pauses: int) -> None:
        self._root, self._chance = root, random.Random(f"server {seed}")
        self._lock = threading.Lock()
        self._to_kill = self._chance.randrange(20, 60)
        self._pauses = pauses
        self.happened: Counter[str] = Counter()

    def __call__(self, method: str, path: str) -> str | None:
        """Return the fault of a request, as `Fault` of the server does."""
        with self._lock:
            kind, kill = self._chance.random(), False
            if (self._root / "ready").exists():
                self._to_kill -= 1
                kill = not self._to_kill
            if kill:
                self._to_kill = self._chance.randrange(40, 120)
        if kill:
            # The request has its effect or not; nobody reads the answer.
            pid = int((self._root / "lives").read_text().split()[-1])
            pauses, self._pauses = self._pauses, 0
            self._note("driver paused at a request" if pauses else "driver killed at a request")
            with suppress(ProcessLookupError):
                if pauses:
                    (self._root / PAUSED).write_text(str(pid))
                os.killpg(pid, signal.SIGSTOP if pauses else signal.SIGKILL)
            if pauses:
                threading.Thread(target=self._resume, args=(pid,), daemon=True).start()
                return None
            return "before" if kind < 0.5 else "after"
        if kind < 0.03:
            self._note(f"{method} throttled")
            return "before"
        if kind < 0.06:
            self._note(f"{method} answered, and the answer lost")
            return "after"
        if kind < 0.15:
            self._note("a slow request")
            time.sleep(0.2)
        return None

    def _resume(self, pid: int) -> None:
        """Let a driver that stands still go on beside the one that has taken over, for a while."""
        lives = self._root / "lives"
        while int(lives.read_text().split()[-1]) == pid or not (self._root / "ready").exists():
            time.sleep(0.05)
        for what, pause in ((signal.SIGCONT, 10.0), (signal.SIGKILL, 0.0)):
            with suppress(ProcessLookupError):
                os.killpg(pid, what)
            time.sleep(pause)

    def _note(self, kind: str) -> None:
        with self._lock:
            self.happened[f"store: {kind}"] += 1


@dataclass(frozen=True)
class Ended:
    """The outcome of a campaign: faults by kind, starts of the driver, faults that never came, results, late rows, and
    moves and splits of key groups that took effect."""

    faults: Counter[str]
    lives: int
    left: list[str]
    results: Counter[Result]
    expected_results: Counter[Result]
    late: dict[str, Counter[Row]]
    expected_late: dict[str, Counter[Row]]
    regrouped: Counter[str]


def parquet_results(root: Path) -> Counter[Result]:
    """Return the rows that readers of a Parquet sink see."""
    return _rows(sorted((root / "out").glob("batch=*/*.parquet")))


def _rows(files: Iterable[Path]) -> Counter[Result]:
    results: Counter[Result] = Counter()
    for path in files:
        results.update(counted(pq.ParquetFile(path).read()))
    return results


def late_rows(root: Path) -> dict[str, Counter[Row]]:
    late = json.loads((root / "late.json").read_text())
    return {name: Counter(tuple(row) for row in late[name]) for name in STREAMS}


def _tail(root: Path) -> str:
    texts = []
    for path in (root / "unexplained", root / "driver.log"):
        if path.exists():
            texts.append(path.read_text(errors="replace")[-6000:])
    return "\n".join(texts)


class _Start:
    """One start of the driver, seen from outside."""

    def __init__(
        self, root: Path, program: str, variables: Mapping[str, str], chance: random.Random, until: float
    ) -> None:
        self._root = root
        self._program = program
        self._variables = variables
        self._chance = chance
        self._until = until
        self._ready = root / "ready"
        self._parents = root / PARENTS

    def run(self, kill: bool, faults: Counter[str]) -> int:
        """Start the driver and wait; return its exit code. `kill`: kill it at a random moment of its batches."""
        self._ready.unlink(missing_ok=True)
        self._parents.unlink(missing_ok=True)
        settings = {"PYTHONUNBUFFERED": "1", "SPARK_LOCAL_IP": "127.0.0.1", TRAPS: str(self._root)}
        environment = {**os.environ, **self._variables, **settings}
        with open(self._root / "driver.log", "a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.spark.streaming.faults.{self._program}", str(self._root)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._disturb(process, kill, faults)
            return -signal.SIGKILL if self._is_paused(process) else process.wait()
        finally:
            if not self._is_paused(process):
                self._end(process)

    def _is_paused(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether the driver stands still, and another one is to take its place."""
        paused = self._root / PAUSED
        return paused.exists() and paused.read_text() == str(process.pid)

    def _disturb(self, process: subprocess.Popen[bytes], kill: bool, faults: Counter[str]) -> None:
        while process.poll() is None and not self._ready.exists():
            time.sleep(0.02)
            if time.monotonic() > self._until:
                self._end(process)
        kill_at = time.monotonic() + self._chance.uniform(0.3, 4.0)
        worker_at = [time.monotonic() + self._chance.uniform(*span) for span in ((0.1, 2.0), (3.0, 6.0))]
        while process.poll() is None and not self._is_paused(process):
            time.sleep(0.01)
            now = time.monotonic()
            if now > self._until or (kill and now >= kill_at):
                faults["driver killed at random"] += kill and now <= self._until
                self._end(process)
                return
            # Rarely, because a task that fails four times fails the job.
            if worker_at and now >= worker_at[0] and self._kill_a_worker():
                del worker_at[0]
                faults["worker killed at random"] += 1

    def _kill_a_worker(self) -> bool:
        """Kill one of the Python processes that Spark forked from its daemon."""
        daemons = set(map(int, self._parents.read_text().split())) if self._parents.exists() else set[int]()
        workers = [pid for pid, parent in processes().items() if parent in daemons]
        if not workers:
            return False
        try:
            worker = self._chance.choice(sorted(workers))
            os.kill(worker, signal.SIGKILL)
            (self._root / f"{WORKER_KILLED}{worker}").touch()
        except ProcessLookupError:
            return False
        return True

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the rest of the process group; only the JVM may outlive a driver, and it ends on its own."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
