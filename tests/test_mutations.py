"""The fuzzer finds defects that are made on purpose, one at a time, in a copy of the code.

Each defect is a mistake that is easily made, and no other test runs. The kernels run as plain Python: the fuzzer finds
the defects in some seconds, less time than compiling the kernels takes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests import defects
from tests.changing_defects import CHANGING_DEFECTS
from tests.defects import FRAGMENT_DEFECTS, LEDGER_DEFECTS, RING_DEFECTS, SEED, Defect, Edit
from tests.documents import ROOT

DEFECTS = (*defects.DEFECTS, *CHANGING_DEFECTS)
PACKAGES = ("stairs", "jisc", "eddy")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "demo", "spark")


PLAY = """
from hypothesis import HealthCheck, Phase, settings
checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "mutations",
    deadline=None,
    max_examples={examples},
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=checks,
)
settings.load_profile("mutations")
from {module} import {test}
{test}()
"""
PLAY_MODEL = PLAY.format(examples=150, module="tests.stairs.test_ledger", test="test_rows_are_those_of_the_model")
PLAY_RINGS = PLAY.format(
    examples=80,
    module="tests.eddy.test_aggregates_rings",
    test="test_groups_are_those_of_the_oracle_through_switches",
)
PLAY_TREES = PLAY.format(
    examples=60,
    module="tests.spark.test_split_tree",
    test="test_each_result_meets_in_one_group_whenever_its_rows_were_written",
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the packages."""
    folder = tmp_path_factory.mktemp("sources")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=LEFT_OUT)
    return folder


def fuzz(
    sources: Path,
    folder: Path,
    strategies: Iterable[str],
    cases: int,
    streams: int = 3,
    policies: Iterable[str] = (),
    seed: int = SEED,
    queries: str = "inner",
) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer on a copy of the packages; the script of a failing case is written into `folder`."""
    options = {"cases": cases, "seconds": 100, "streams": streams, "seed": seed, "save": folder, "queries": queries}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    arguments += [f"--strategy={strategy}" for strategy in strategies]
    arguments += [f"--policy={policy}" for policy in policies]
    return run(sources, "-m", "eddy.fuzz", *arguments, "--no-shrink")


def run(sources: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a copy of the packages, without the JIT."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(sources),
        "NUMBA_DISABLE_JIT": "1",
        # NumPy integers warn on overflow; integers of compiled kernels wrap around, on which hashes rely.
        "PYTHONWARNINGS": "ignore::RuntimeWarning",
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=sources, env=environment, capture_output=True, text=True, timeout=300
    )


ALL_EDITS = [*(edit for defect in DEFECTS for edit in defect.edits), *LEDGER_DEFECTS.values(), *RING_DEFECTS.values()]
ALL_EDITS += FRAGMENT_DEFECTS.values()


@pytest.mark.parametrize("edit", ALL_EDITS)
def test_the_text_to_replace_stands_there_once(edit: Edit) -> None:
    assert (ROOT / edit.file).read_text().count(edit.before) == 1


@pytest.mark.parametrize("queries", ["inner", "branches", "changing"])
def test_without_a_defect_nothing_is_found(queries: str, sources: Path, tmp_path: Path) -> None:
    done = fuzz(sources, tmp_path, sorted({defect.strategy for defect in DEFECTS}), cases=60, queries=queries)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_is_found(defect: Defect, sources: Path, tmp_path: Path) -> None:
    copy = edited(sources, tmp_path, *defect.edits)
    done = fuzz(copy, tmp_path, [defect.strategy], 1000, defect.streams, [defect.policy], defect.seed, defect.queries)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the case that fails" in done.stdout
    assert (tmp_path / f"eddy_fuzz_{defect.seed}.py").exists()


@pytest.mark.parametrize("edit", [None, *LEDGER_DEFECTS.values()], ids=["none", *LEDGER_DEFECTS])
def test_the_model_of_a_ledger_finds_a_defect(edit: Edit | None, sources: Path, tmp_path: Path) -> None:
    copy = edited(sources, tmp_path, *([] if edit is None else [edit]))
    (copy / "tests/stairs").mkdir(parents=True)
    shutil.copy(ROOT / "tests/stairs/test_ledger.py", copy / "tests/stairs")
    done = run(copy, "-c", PLAY_MODEL)
    assert done.returncode == (edit is not None), done.stdout + done.stderr


@pytest.mark.parametrize("edit", [None, *RING_DEFECTS.values()], ids=["none", *RING_DEFECTS])
def test_the_oracle_of_aggregates_finds_a_defect_of_ring_values(
    edit: Edit | None, sources: Path, tmp_path: Path
) -> None:
    copy = edited(sources, tmp_path, *([] if edit is None else [edit]))
    (copy / "tests/eddy").mkdir(parents=True)
    for name in ("test_aggregates_rings.py", "test_aggregates_running.py", "drawn_aggregates.py"):
        shutil.copy(ROOT / "tests/eddy" / name, copy / "tests/eddy")
    done = run(copy, "-c", PLAY_RINGS)
    assert done.returncode == (edit is not None), done.stdout + done.stderr


@pytest.mark.parametrize("edit", [None, *FRAGMENT_DEFECTS.values()], ids=["none", *FRAGMENT_DEFECTS])
def test_the_trees_of_key_groups_find_a_defect_of_fragments(edit: Edit | None, sources: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    copy = edited(sources, tmp_path, *([] if edit is None else [edit]), more=("eddy/spark", "tests/spark"))
    done = run(copy, "-c", PLAY_TREES)
    assert done.returncode == (edit is not None), done.stdout + done.stderr


def edited(sources: Path, folder: Path, *edits: Edit, more: Sequence[str] = ()) -> Path:
    """Return a copy of the packages, and of more directories, with some edits."""
    copy = folder / "copy"
    shutil.copytree(sources, copy, ignore=LEFT_OUT)
    for directory in more:
        shutil.copytree(ROOT / directory, copy / directory, ignore=shutil.ignore_patterns("__pycache__", "streaming"))
    for edit in edits:
        path = copy / edit.file
        path.write_text(path.read_text().replace(edit.before, edit.after))
    return copy
