"""The documents are correct: code blocks run (those with Spark elsewhere), docstrings run, links and files exist."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import bench.simulated.cluster
import bench.simulated.placement
import eddy
import eddy.placement
import eddy.spark
from eddy.routing.policies import POLICIES
from eddy.spark.streaming.sinks import FORMATS
from eddy.spark.transports import TRANSPORTS
from jisc.strategies import STRATEGIES
from tests.documents import DOCUMENTS, ROOT, blocks

PACKAGES = ("stairs", "jisc", "eddy", "bench")
OPTIONS = doctest.ELLIPSIS
REFERENCE = {
    heading: body
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for heading, body in re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
}
"""The sections of the reference by heading: one for each public name."""


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def modules() -> list[str]:
    names = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return [name for name in names if not name.endswith("__main__")]


WITH_ALL_VERSIONS = [
    pytest.param(document, marks=pytest.mark.versions) if document.name in ("README.md", "aggregates.md") else document
    for document in DOCUMENTS
]


@pytest.mark.parametrize("document", WITH_ALL_VERSIONS, ids=named)
def test_blocks_run_one_after_the_other(document: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(document):
        if block.spark:
            continue
        if not block.session:
            exec(compile("\n" * (block.line - 1) + block.text, str(document), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block.text, names, block.name, str(document), block.line - 1)
        failures: list[str] = []
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(test, out=failures.append, clear_globs=False)
        names.update(test.globs)
        assert not runner.failures, "".join(failures)


def test_there_are_blocks_to_run() -> None:
    assert {document.name for document in DOCUMENTS if blocks(document)} >= {"README.md", "layout.md", "errors.md"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert not failed


def test_there_are_docstrings_with_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = [test for name in modules() for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(with_examples) >= 10


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in (eddy, eddy.spark) for name in package.__all__]
)
def test_every_public_name_is_in_the_reference_with_an_example(package: Any, name: str) -> None:
    section = REFERENCE[name.replace("__", r"\_\_")]
    assert re.search(rf"^\.\. auto\w+:: {package.__name__}\.{name}$", section, re.MULTILINE)
    examples = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert any(re.search(rf"\b{name}\b", example) for example in examples)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in (eddy, eddy.spark, eddy.placement, bench.simulated.cluster, bench.simulated.placement)
        for name in package.__all__
    ],
)
def test_every_public_signature_shows_its_parameters(package: Any, name: str) -> None:
    """A name of underscores, as in `*_`, hides parameters."""
    exported = getattr(package, name)
    shown = [exported] if callable(exported) else []
    if inspect.isclass(exported):
        if issubclass(exported, BaseException):
            return
        shown += [exported.__new__] if "__new__" in vars(exported) else []
        shown += [
            routine for word, routine in inspect.getmembers(exported, inspect.isroutine) if not word.startswith("_")
        ]
    for function in shown:
        assert all(parameter.strip("_") for parameter in inspect.signature(function).parameters), function


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=named)
def test_links_between_files_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text())
    broken = [target for target in targets if not (document.parent / target.partition("#")[0]).exists()]
    assert not broken


PLACEHOLDER = re.compile(r"\b(?:[A-Z][A-Z0-9]+_[A-Z0-9_]+|TODO|TBD|FIXME|XXX+)\b|\?\?\?", re.ASCII)
"""What stands for a value that is to come; symbols of the papers have one letter before the underscore."""


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=named)
def test_no_placeholder_stands_where_a_value_should(document: Path) -> None:
    """A name in capitals, such as RATE_HERE, may stand in code only."""
    prose = re.sub(r"^```.*?^```$|`[^`]+`|<!--.*?-->", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not PLACEHOLDER.findall(prose)


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_named_in_the_documents_exist(document: Path) -> None:
    names = re.findall(r"`((?:stairs|jisc|eddy|bench|tests|docs|examples)/[\w./]+)`", document.read_text())
    assert not [name for name in names if not (ROOT / name).exists()]


def test_names_in_the_tables_of_mechanisms_exist() -> None:
    """Files, tests, and all words of other names in code; a file may go without its directory after another one."""
    rows = re.findall(r"^\| .*\|$", (ROOT / "docs" / "internals" / "papers.md").read_text(), re.MULTILINE)
    headings = [k for k, row in enumerate(rows) if row.startswith("| mechanism of the paper |")]
    assert len(headings) >= 5
    named = [row for first in headings for row in takewhile(lambda row: row.count(" | ") == 3, rows[first + 1 :])]
    paths = [path for folder in (*PACKAGES, "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in paths for word in re.findall(r"\w+", path.read_text())}
    files = {path.name for path in paths}
    missing = []
    for row in named:
        for name in re.findall(r"`([^`]+)`", row):
            if name.endswith(".py"):
                exists = (ROOT / name).exists() if "/" in name else name in files
            else:
                exists = all(word in words for word in re.findall(r"[A-Za-z_]\w*", name))
            missing += [] if exists else [name]
    assert len(named) > 40
    assert not missing


def test_documents_named_in_the_sources_exist() -> None:
    sources = [path for folder in (*PACKAGES, "tests", "examples") for path in (ROOT / folder).rglob("*.py")]
    assert sources
    mentions = [(path, name) for path in sources for name in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text())]
    assert not [(str(path.relative_to(ROOT)), name) for path, name in mentions if not (ROOT / name).exists()]


def test_files_and_modules_named_in_the_sources_exist() -> None:
    """A file is named by its path, by the end of its path, or by its name; what a module has is a word in it."""
    paths = [path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py")]
    beside = [
        *ROOT.glob("*.py"),
        *(path for folder in ("release", "examples") for path in (ROOT / folder).glob("*.py")),
    ]
    files = [f"/{path.relative_to(ROOT)}" for path in (*paths, *beside)]
    public = {f"eddy.{name}" for name in eddy.__all__} | {f"eddy.spark.{name}" for name in eddy.spark.__all__}

    def is_module(name: str) -> bool:
        for parts in (name.split(".")[:k] for k in range(name.count(".") + 1, 0, -1)):
            for path in (ROOT.joinpath(*parts).with_suffix(".py"), ROOT.joinpath(*parts, "__init__.py")):
                if path.exists():
                    following = name.split(".")[len(parts) :]
                    return not following or re.search(rf"\b{following[0]}\b", path.read_text()) is not None
        return False

    missing = []
    for path in paths:
        text = path.read_text()
        missing += [
            (str(path.relative_to(ROOT)), name)
            for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text)
            if not any(file.endswith(f"/{name}") for file in files)
        ]
        missing += [
            (str(path.relative_to(ROOT)), name)
            for name in re.findall(rf"`((?:{'|'.join((*PACKAGES, 'tests'))})(?:\.\w+)+)`", text)
            if name not in public and ".".join(name.split(".")[:2]) not in public and not is_module(name)
        ]
    assert not missing


@pytest.mark.parametrize(
    ("page", "registry"),
    [("policies", POLICIES), ("transitions", STRATEGIES), ("spark", TRANSPORTS), ("streaming", FORMATS)],
    ids=["policies", "strategies", "transports", "sinks"],
)
def test_each_name_of_a_registry_begins_a_row_of_a_table(page: str, registry: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
    rows = set(re.findall(r"^\| `?([\w-]+)`?", text, re.MULTILINE))
    assert not registry.keys() - rows
