"""Exactly once under faults: after kills, failures, second attempts and damage, the results and the late rows are
those of the nested loop, each once.

`faults/` holds the parts: the job and its oracle, the faults and their schedule, the program that is broken, and the
program that breaks it. The faults are drawn from seeds; the moments of random kills differ between runs.

    EDDY_FAULTS=500 python -m pytest tests/spark/streaming/test_faults.py -k faults_of_all_kinds

continues with further jobs, with the other sinks and with kills at the other points, until 500 faults have happened;
`make soak` runs it. Without the variable there is one job, which is shorter and has 35 faults or more; up to two others
follow if a kind of change of key groups is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest

import eddy
from eddy.spark.partitioning import pieces
from tests.spark.streaming.faults.campaign import (
    ROOT,
    AsOfCampaign,
    Campaign,
    GroupsCampaign,
    HubCampaign,
    ObjectCampaign,
    TablesCampaign,
    late_rows,
    parquet_results,
)
from tests.spark.streaming.faults.hub_program import Journal
from tests.spark.streaming.faults.network import INSIDE, missing
from tests.spark.streaming.faults.schedule import COMMITTING, JOINING, PUBLISHING
from tests.spark.streaming.faults.tables_workload import FIRST
from tests.spark.streaming.faults.traps import Trap, Traps
from tests.spark.streaming.faults.workload import FaultsWorkload

LONG = "EDDY_FAULTS" in os.environ
FEWEST = 35
HUB_FEWEST = 20
FIRST_SEED = 11
"""Of a job whose faults damage a manifest, the log and the list of files."""
PLACES = (
    # sink, transport, trigger
    ("parquet", "packed", "availableNow"),
    ("transactions", "rows", "processingTime"),
    ("callback", "packed", "availableNow"),
)
KILLS = (
    # The first job is killed before, within and after a commit; all points are met in three jobs. With "kill" the JVM
    # lives on. Of the short jobs, the hub is killed once within a commit, and the other one before it and within it.
    (("joined", "killall"), ("renamed", "killall"), ("copied", "kill")),
    (("unrenamed", "killall"), ("published", "kill")),
    (("marked", "killall"),),
)
SHORT_KILLS = KILLS[0][:2]
SHORT_HUB_KILLS = KILLS[0][2:]
JOBS = len(KILLS)
REGROUPED = {
    *("split", "fragment", "gather", "moved by state", "moved by jit"),
    *("ran in grid", "ran in hops", "ran in fragments"),
}
KILLED = [place for kills in KILLS for place, _ in kills]
CRASHED = [place for place in (*JOINING, *COMMITTING, *PUBLISHING) if place not in ("stop", "publish")]
KINDS = {
    "a worker killed while it splits": ("split kill",),
    "a worker killed while it joins": ("join kill",),
    "a worker killed at random": ("worker killed at random",),
    "a worker killed when it meets the others": ("meet kill",),
    "a worker killed when its work is done": ("leave kill",),
    "a task that fails once": tuple(f"{place} raise" for place in ("split", "meet", "join", "leave")),
    "a slow task": tuple(f"{place} sleep" for place in ("split", "meet", "join", "leave")),
    "two attempts of the tasks": ("twice join",),
    "the driver killed at random": ("driver killed at random",),
    **{f"the driver killed: {place}": (f"{place} kill", f"{place} killall") for place in KILLED},
    **{f"the batch fails: {place}": (f"{place} crash",) for place in CRASHED},
    "stopped in the middle": ("stop fail",),
    "a sink that fails": ("publish fail",),
    "one manifest damaged": ("damage: manifest, primary", "damage: manifest, copy"),
    "both damaged, batch lost": ("damage: manifest, both, refused",),
    "both damaged, results out": ("damage: manifest, both, contradicted",),
    "both damaged, batch comes again": ("damage: manifest, both, again",),
    "log damaged": ("damage: segment, refused", "damage: segment, not read"),
    "identity damaged": ("damage: identity, one",),
    "identity lost": ("damage: identity, both, refused",),
    "mark of publishing gone": ("damage: mark, published again",),
    "stray files": ("damage: strays",),
    "list of files damaged": ("damage: files, refused",),
}


IN_EACH_JOB = {
    "a worker killed while it splits",
    "a worker killed while it joins",
    "a worker killed at random",
    "a task that fails once",
    "two attempts of the tasks",
    *(f"the driver killed: {place}" for place, _ in (KILLS[0] if LONG else SHORT_KILLS)),
    "stopped in the middle",
    "a sink that fails",
    "one manifest damaged",
    "log damaged",
    "stray files",
}
"""Kinds that the first job alone must have met."""


def campaigns() -> Iterator[Campaign]:
    for seed, ((sink, transport, trigger), kills) in enumerate(zip(cycle(PLACES), cycle(KILLS)), start=FIRST_SEED):
        batches, kills = (6, kills) if LONG else (5, SHORT_KILLS)
        yield Campaign(seed, sink, transport, trigger, batches, kills, random_kills=seed % 3 == 1, long=LONG)


@pytest.fixture
def variables(forks: dict[str, str]) -> dict[str, str]:
    """The variables of drivers, which start some of their processes faster in the short form."""
    return {} if LONG else forks


@dataclass
class Total:
    """The faults and outputs of several campaigns."""

    faults: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    results: int = 0
    late: int = 0
    regrouped: Counter[str] = field(default_factory=Counter)
    """Changes of key groups that took effect, and placements in which micro-batches ran."""

    def run(self, campaign: Campaign, root: Path, variables: Mapping[str, str]) -> None:
        """Run a campaign in a new directory, check its outputs, and add it."""
        root.mkdir()
        ended = campaign.run(root, variables)
        assert ended.results == ended.expected_results, campaign
        assert ended.late == ended.expected_late, campaign
        self.faults.update(ended.faults)
        self.lives += ended.lives
        self.regrouped.update(ended.regrouped)
        self.results += sum(ended.results.values())
        self.late += sum(count.total() for count in ended.late.values())

    def show(self, more: str, counts: Mapping[str, int] | None = None) -> None:
        """Print what happened, and how often each kind of fault did."""
        print(f"{self.faults.total()} faults, {self.lives} starts of the driver, {self.results} results, {more}")
        groups = Counter({f"changes: {kind}": count for kind, count in self.regrouped.items()})
        for kind, count in sorted((self.faults + groups + Counter(counts)).items()):
            print(f"{count:5d} {kind}")


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
def test_faults_of_all_kinds_change_no_result(tmp_path: Path, variables: dict[str, str]) -> None:
    """See the top of the file for the long run."""
    eddy.warmup()  # once here, and not in each driver, if the cache of kernels is empty
    pieces.warmup()
    wanted = int(os.environ.get("EDDY_FAULTS", FEWEST))
    total = Total()
    faults = total.faults
    for number, campaign in enumerate(campaigns()):
        total.run(campaign, tmp_path / str(number), variables)
        if faults.total() >= wanted and (set(total.regrouped) == REGROUPED or number + 1 >= JOBS):
            break
    total.show(f"{total.late} late rows")
    assert total.results > 1200
    assert total.late >= 5
    assert set(total.regrouped) == REGROUPED
    kinds = KINDS
    if not LONG or number + 1 < JOBS:
        kinds = {kind: kinds[kind] for kind in kinds if kind in IN_EACH_JOB}
    missing = [kind for kind, names in kinds.items() if not any(faults[name] for name in names)]
    assert not missing, faults


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
def test_faults_of_a_hub_with_elements_at_every_point_change_no_result(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """EDDY_FAULTS continues with further hubs, as above. Only the first one runs without it."""
    eddy.warmup()
    pieces.warmup()
    wanted = int(os.environ.get("EDDY_FAULTS", HUB_FEWEST))
    total = Total()
    given: Counter[str] = Counter()
    effective = 0
    for seed, (transport, kills) in enumerate(zip(cycle(("packed", "rows")), cycle(KILLS)), start=FIRST_SEED):
        batches, kills = (5, kills) if LONG else (4, SHORT_HUB_KILLS)
        campaign = HubCampaign(seed, "hub", transport, "availableNow", batches, kills, program="hub_driver", long=LONG)
        root = tmp_path / str(seed)
        total.run(campaign, root, variables)
        given.update(f"element given: {kind}" for kind in (root / "given").read_text().split())
        effective += sum(len(elements) for elements in Journal(root).read().values())
        if total.faults.total() >= wanted:
            break
    total.show(f"{effective} elements in effect", given)
    assert total.results > 1000
    assert effective >= 3  # elements that no manifest has named die with the driver
    assert total.faults.total() >= wanted


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize(
    ("kind", "program", "fewest"),
    [
        (TablesCampaign, "tables_driver", 101),
        (AsOfCampaign, "as_of_driver", 101),
        (GroupsCampaign, "groups_driver", FIRST),
    ],
)
def test_faults_under_tables_change_no_answer(
    tmp_path: Path, variables: dict[str, str], kind: type[Campaign], program: str, fewest: int
) -> None:
    """EDDY_FAULTS continues with further jobs, as above. Without it, jobs run until a key group was split."""
    eddy.warmup()
    pieces.warmup()
    wanted = int(os.environ.get("EDDY_FAULTS", HUB_FEWEST))
    total = Total()
    for seed, (transport, kills) in enumerate(zip(cycle(("packed", "rows")), cycle(KILLS)), start=FIRST_SEED):
        batches, kills = (6, kills) if LONG else (5, SHORT_HUB_KILLS)
        campaign = kind(seed, "parquet", transport, "availableNow", batches, kills, program=program, long=LONG)
        total.run(campaign, tmp_path / str(seed), variables)
        # Requests for changes die with the driver, so a job may end without a split.
        if total.faults.total() >= wanted and (total.regrouped["split"] or seed == FIRST_SEED + 4):
            break
    total.show(f"{total.late} late rows")
    assert total.results >= fewest
    assert total.regrouped["split"]


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
def test_faults_of_an_object_store_change_no_result(tmp_path: Path, variables: dict[str, str]) -> None:
    """EDDY_FAULTS continues with further jobs, as above. Only the first one runs without it, and no driver stands still
    in it, which takes half a minute."""
    eddy.warmup()
    pieces.warmup()
    wanted = int(os.environ.get("EDDY_FAULTS", HUB_FEWEST))
    total = Total()
    for seed, ((sink, transport, trigger), kills) in enumerate(zip(cycle(PLACES), cycle(KILLS)), start=FIRST_SEED):
        batches, kills = (6, kills) if LONG else (3, SHORT_HUB_KILLS)
        campaign = ObjectCampaign(seed, sink, transport, trigger, batches, kills, program="object_driver", long=LONG)
        total.run(campaign, tmp_path / str(seed), variables)
        if total.faults.total() >= wanted:
            break
    total.show(f"{total.late} late rows")
    assert total.results > 100
    assert total.faults["store: driver killed at a request"]
    assert total.faults["store: driver paused at a request"] or not LONG
    assert any(kind.endswith("the answer lost") for kind in total.faults)


def on_hosts(program: str, batches: int, root: Path, inside: Sequence[str] = (), more: Sequence[str] = ()) -> str:
    """Run the join on several hosts, check its results, and return what the program printed."""
    workload = FaultsWorkload(9, batches)
    workload.write(root / "sources")
    command = [*inside, sys.executable, "-m", f"tests.spark.streaming.faults.{program}", str(root), *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-4000:]
    results, late = workload.expected()
    assert parquet_results(root) == results
    assert late_rows(root) == late
    return ended.stdout


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
def test_slow_tasks_get_a_second_attempt_on_another_host(tmp_path: Path) -> None:
    """Spark's own speculation where it logs rows: the first attempt dozes and loses, or naps and may win. The others
    wait for a slow task that joins, because the tasks meet."""
    Traps(tmp_path).arm([Trap(1, "split", "doze"), Trap(2, "join", "nap"), Trap(3, "split", "nap")])
    on_hosts("two_hosts", 4, tmp_path)
    assert list(tmp_path.glob("again-split-*")), "no second attempt where rows are split"


@pytest.mark.campaign(0)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize("elastic", [False, True])
def test_hosts_that_are_cut_off_or_die_lose_nothing(tmp_path: Path, elastic: bool) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    # A worker that sleeps before the tasks meet holds them all, so the host goes in the middle of the batch.
    Traps(tmp_path).arm([Trap(2, "split", "sleep"), Trap(6, "split", "sleep")])
    said = on_hosts("three_hosts", 8, tmp_path, inside=INSIDE, more=["elastic"] * elastic)
    figures = {name: values for name, *values in map(str.split, said.splitlines())}
    assert figures["placement"] == ["grid"] * 5 + ["hops"] * 3
    loaded = [number != "0" for number in figures["loaded"]]
    if elastic:
        # A host that came back takes part once a Python worker runs on it.
        assert len(figures["tasks"]) == 8
        assert set(figures["tasks"]) <= set("123")
        assert set(figures["tasks"]) != {"1"}
        assert any(loaded)
        assert not all(loaded)
        return
    assert figures["tasks"] == list("33223322")
    # A host that came back has no engines either, and takes some. In the first batch in hops no node has its windows.
    assert loaded == [False, True, True, False, True, True, True, False], figures
