"""Pages and settings for contributors name files, targets and commands that exist."""

from __future__ import annotations

import re
import tomllib
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests.conftest import forms_of, share_of
from tests.documents import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "RELEASE.md")]
PAGES += [WORKFLOW, *sorted((ROOT / ".github").rglob("*template.md")), *sorted((ROOT / ".github").rglob("*/*.yml"))]
SUFFIXES = {".py", ".md", ".toml", ".cff", ".yml", ".yaml"}
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_in_backticks_exist(page: Path) -> None:
    words = re.findall(r"`([\w.][\w./-]*)`", page.read_text())
    paths = [word for word in words if "/" in word or Path(word).suffix in SUFFIXES]
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_of_make_exist(page: Path) -> None:
    """They stand in backticks, on a line of their own, after `run:`, or in the matrix of the workflow."""
    named = re.findall(r"(?:`|^\s*|run: )make ([a-z]+)|\btarget: (\w+)", page.read_text(), re.MULTILINE)
    targets = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    assert {target or other for target, other in named} <= set(targets)


def test_pages_name_files_and_targets() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert all(name in text for name in ("`make lint`", "target: newest", "`tests/defects.py`"))


def test_the_citation_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert versions == [project["version"]]


def test_pre_commit_runs_the_commands_of_lint() -> None:
    recipe = re.findall(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[0]
    entries = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert entries == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]


def test_public_ci_runs_what_decides_in_ours_on_every_python() -> None:
    text = WORKFLOW.read_text()
    ours = set(re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)) - {"guard"}
    assert ours <= set(re.findall(r"\btarget: (\w+)", text))
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(classified) == set(re.findall(r'python(?:-version)?: "(.+?)"', text))


def test_the_forms_have_evenly_spaced_cases_of_each_campaign() -> None:
    """Together, `make test` and `make campaigns` run each case once, but of campaigns that say how many at most."""
    many = 99
    given: dict[str, tuple[int, tuple[int, int] | None]] = {
        "none": (3, None),
        "no case": (2, (0, many)),
        "some": (7, (2, many)),
        "all": (2, (5, many)),
        "two of ten": (10, (1, 1)),
    }
    cases = [(name, sizes) for name, (n, sizes) in given.items() for _ in range(n)]
    firsts = {name: [case[0] for case in cases].index(name) for name in given}
    short, long = ({name: [] for name in given} for _ in range(2))
    for numbers, of_form in zip(forms_of(cases), (short, long), strict=True):
        for n in sorted(numbers):
            of_form[cases[n][0]].append(n - firsts[cases[n][0]])
    assert short == {"none": [0, 1, 2], "no case": [], "some": [1, 5], "all": [0, 1], "two of ten": [5]}
    assert long == {"none": [], "no case": [0, 1], "some": [0, 2, 3, 4, 6], "all": [], "two of ten": [4]}
    assert share_of("2/3") == (2, 3)
    for text in ("3/3", "1", "-1/3", "0/0", "a/b"):
        with pytest.raises(ArgumentTypeError, match=r"such as 0/3"):
            share_of(text)
    forms = {"test": "short", "campaigns": "long"}
    recipes = {name: re.findall(rf"^{name}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[-1] for name in forms}
    assert all(recipes[name].count(f"--form {form}\n") == 1 for name, form in forms.items())
