"""The fuzzer finds defects that are made on purpose, one at a time, in a copy of the code.

Each defect is a mistake that is easily made, and no other test runs. The kernels run as plain Python: the fuzzer finds
the defects in some seconds, less time than compiling the kernels takes.
"""

from __future__ import annotations

import compileall
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests import defects
from tests.changing_defects import CHANGING_DEFECTS
from tests.defects import SEED, Defect, Edit
from tests.documents import ROOT
from tests.forks import Done, Forks
from tests.model_defects import FRAGMENT_DEFECTS, LEDGER_DEFECTS, RING_DEFECTS

DEFECTS = (*defects.DEFECTS, *CHANGING_DEFECTS)
PACKAGES = ("stairs", "jisc", "eddy")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "demo", "spark")
FOUND = 9
"""Exit code of a hunt that found something; Python ends with 1 where a program breaks."""

HUNT = """
import sys
from pathlib import Path
from eddy.fuzz.draw import ALL_POLICIES
from eddy.fuzz.hunt import KINDS, Hunt
policies = {policies} or ALL_POLICIES
hunt = Hunt({strategies}, ("append", "changelog"), {streams}, {seed}, False, policies, KINDS[{queries!r}])
hunt.run(1000, {cases})  # the CPU time of a program has a limit
if hunt.failure is None:
    assert hunt.total.cases == {cases}, "the time was over"
else:
    print(hunt.failure.message)
    Path({script!r}).write_text(hunt.failure.script())
    sys.exit({found})
"""
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
    """Copy the packages, and compile them to bytecode."""
    folder = tmp_path_factory.mktemp("sources")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=LEFT_OUT)
    assert compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.fixture(scope="module")
def spark_sources(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the packages with what joins on Spark have in common, and their test."""
    folder = tmp_path_factory.mktemp("spark") / "sources"
    shutil.copytree(sources, folder, copy_function=os.link)
    left_out = shutil.ignore_patterns("__pycache__", "streaming")
    shutil.copytree(ROOT / "eddy/spark", folder / "eddy/spark", ignore=left_out)
    (folder / "tests/spark").mkdir(parents=True)
    shutil.copy(ROOT / "tests/spark/test_split_tree.py", folder / "tests/spark")
    return folder


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    started = Forks(tmp_path_factory.mktemp("forks"))
    yield started
    started.close()


def fuzz(
    forks: Forks,
    copy: Path,
    strategies: Sequence[str],
    cases: int,
    streams: int = 3,
    policies: Sequence[str] = (),
    seed: int = SEED,
    queries: str = "inner",
) -> Done:
    """Run the fuzzer on a copy of the packages; the script of a failing case is written into the copy."""
    options = {"strategies": [*strategies], "streams": streams, "seed": seed, "policies": [*policies], "cases": cases}
    return forks.run(copy, HUNT.format(**options, queries=queries, script=str(copy / "script.py"), found=FOUND))


ALL_EDITS = [*(edit for defect in DEFECTS for edit in defect.edits), *LEDGER_DEFECTS.values(), *RING_DEFECTS.values()]
ALL_EDITS += FRAGMENT_DEFECTS.values()


@pytest.mark.parametrize("edit", ALL_EDITS)
def test_the_text_to_replace_stands_there_once(edit: Edit) -> None:
    assert (ROOT / edit.file).read_text().count(edit.before) == 1


@pytest.mark.parametrize("queries", ["inner", "branches", "changing"])
def test_without_a_defect_nothing_is_found(queries: str, forks: Forks, sources: Path) -> None:
    strategies = sorted({defect.strategy for defect in DEFECTS})
    done = fuzz(forks, sources, strategies, cases=60, queries=queries)
    assert done.code == 0, done.said


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_is_found(defect: Defect, forks: Forks, sources: Path, tmp_path: Path) -> None:
    copy = edited(sources, tmp_path, *defect.edits)
    done = fuzz(
        forks, copy, [defect.strategy], 1000, defect.streams, [defect.policy], defect.seed, queries=defect.queries
    )
    assert done.code == FOUND, done.said
    assert f"--seed {defect.seed}" in (copy / "script.py").read_text()


@pytest.mark.parametrize("edit", [None, *LEDGER_DEFECTS.values()], ids=["none", *LEDGER_DEFECTS])
def test_the_model_of_a_ledger_finds_a_defect(edit: Edit | None, forks: Forks, sources: Path, tmp_path: Path) -> None:
    copy = edited(sources, tmp_path, *([] if edit is None else [edit]))
    (copy / "tests/stairs").mkdir(parents=True)
    shutil.copy(ROOT / "tests/stairs/test_ledger.py", copy / "tests/stairs")
    done = forks.run(copy, PLAY_MODEL)
    assert done.code == (edit is not None), done.said


@pytest.mark.parametrize("edit", [None, *RING_DEFECTS.values()], ids=["none", *RING_DEFECTS])
def test_the_oracle_of_aggregates_finds_a_defect_of_ring_values(
    edit: Edit | None, forks: Forks, sources: Path, tmp_path: Path
) -> None:
    copy = edited(sources, tmp_path, *([] if edit is None else [edit]))
    (copy / "tests/eddy").mkdir(parents=True)
    for name in ("test_aggregates_rings.py", "test_aggregates_running.py", "drawn_aggregates.py"):
        shutil.copy(ROOT / "tests/eddy" / name, copy / "tests/eddy")
    done = forks.run(copy, PLAY_RINGS)
    assert done.code == (edit is not None), done.said


@pytest.mark.parametrize("edit", [None, *FRAGMENT_DEFECTS.values()], ids=["none", *FRAGMENT_DEFECTS])
def test_the_trees_of_key_groups_find_a_defect_of_fragments(
    edit: Edit | None, forks: Forks, spark_sources: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    copy = edited(spark_sources, tmp_path, *([] if edit is None else [edit]))
    done = forks.run(copy, PLAY_TREES)
    assert done.code == (edit is not None), done.said


def edited(sources: Path, folder: Path, *edits: Edit) -> Path:
    """Return a copy of the packages with some edits; files without one are the same on the disk."""
    copy = folder / "copy"
    shutil.copytree(sources, copy, copy_function=os.link)
    for edit in edits:
        path = copy / edit.file
        text = path.read_text().replace(edit.before, edit.after)
        Path(cache_from_source(path)).unlink(missing_ok=True)
        path.unlink()
        path.write_text(text)
    return copy
