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
from tests.forks import Forks, ProgramEnd
from tests.model_defects import MODELS, ModelTest
from tests.table_defects import TABLE_DEFECTS

DEFECTS = (*defects.DEFECTS, *CHANGING_DEFECTS, *TABLE_DEFECTS)
PACKAGES = ("stairs", "jisc", "eddy")
LEFT_OUT = shutil.ignore_patterns("demo", "streaming", "*.pyc.*")  # a *.pyc.* is being written
INSTALLED = "site-packages"
"""Name of the folder of a copy. Hypothesis searches the modules of a user for constants to draw, and not those in a
folder of this name. So the search for a defect does not depend on the constants of the project, and begins sooner."""
DETECTED = 9
"""Exit code of a program that found something; Python ends with 1 where a program breaks."""

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
import sys, traceback
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import HypothesisException
checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "mutations",
    deadline=None,
    max_examples={examples},
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    suppress_health_check=checks,
)
settings.load_profile("mutations")
# An example that fails must fail again, whatever a hash table or a treap draws.
from stairs import seeds
seeds.SOURCE = lambda n: (b"a source of seeds that repeats itself" * n)[:n]
from {module} import {test}
try:
    {test}()
except HypothesisException:  # no example fails: it cannot draw any, for instance
    raise
except Exception:
    traceback.print_exc()
    sys.exit({found})
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the packages, and compile to bytecode what is not compiled yet."""
    folder = tmp_path_factory.mktemp("sources") / INSTALLED
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=LEFT_OUT)
    assert compileall.compile_dir(folder, quiet=1)
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
) -> ProgramEnd:
    """Run the fuzzer on a copy of the packages; the script of a failing case is written into the copy."""
    options = {"strategies": [*strategies], "streams": streams, "seed": seed, "policies": [*policies], "cases": cases}
    return forks.run(copy, HUNT.format(**options, queries=queries, script=str(copy / "script.py"), found=DETECTED))


ALL_EDITS = [edit for defect in (*defects.DEFECTS, *CHANGING_DEFECTS) for edit in defect.edits]
ALL_EDITS += [edit for model in MODELS.values() for edit in model.defects.values()]


@pytest.mark.parametrize("edit", ALL_EDITS)
def test_the_text_to_replace_stands_there_once(edit: Edit) -> None:
    assert (ROOT / edit.file).read_text().count(edit.before) == 1


@pytest.mark.campaign(0)
@pytest.mark.parametrize("queries", ["inner", "branches", "changing", "tables"])
def test_without_a_defect_nothing_is_found(queries: str, forks: Forks, sources: Path) -> None:
    strategies = sorted({defect.strategy for defect in DEFECTS})
    done = fuzz(forks, sources, strategies, cases=60, queries=queries)
    assert done.code == 0, done.said


@pytest.mark.campaign(3, 16)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_is_found(defect: Defect, forks: Forks, sources: Path, tmp_path: Path) -> None:
    copy = edited(sources, tmp_path, *defect.edits)
    done = fuzz(
        forks, copy, [defect.strategy], 1000, defect.streams, [defect.policy], defect.seed, queries=defect.queries
    )
    assert done.code == DETECTED, done.said
    assert f"--seed {defect.seed}" in (copy / "script.py").read_text()


@pytest.mark.campaign(1, 24)
@pytest.mark.parametrize(
    ("model", "defect"),
    [
        pytest.param(model, defect, id=f"{name}: {defect or 'none'}")
        for name, model in MODELS.items()
        for defect in (None, *model.defects)
    ],
)
def test_a_test_beside_a_model_finds_a_defect(
    model: ModelTest, defect: str | None, forks: Forks, sources: Path, tmp_path: Path
) -> None:
    if model.files[0].startswith("tests/spark"):
        pytest.importorskip("pyspark")
    copy = edited(sources, tmp_path, *([] if defect is None else [model.defects[defect]]))
    for file in model.files:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    module = model.files[0].removesuffix(".py").replace("/", ".")
    done = forks.run(copy, PLAY.format(module=module, test=model.test, examples=model.examples, found=DETECTED))
    assert done.code == (0 if defect is None else DETECTED), done.said


def edited(sources: Path, folder: Path, *edits: Edit) -> Path:
    """Return a copy of the packages with some edits; files without one are the same on the disk."""
    copy = folder / INSTALLED
    shutil.copytree(sources, copy, copy_function=os.link)
    for edit in edits:
        path = copy / edit.file
        text = path.read_text().replace(edit.before, edit.after)
        Path(cache_from_source(path)).unlink(missing_ok=True)
        path.unlink()
        path.write_text(text)
    return copy
