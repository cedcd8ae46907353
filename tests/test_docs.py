"""What the documents show is what happens: code blocks (but those with Spark), docstrings, links."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCUMENTS, ROOT, blocks

PACKAGES = ("stairs", "jisc", "eddy", "bench")
OPTIONS = doctest.ELLIPSIS


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def modules() -> list[str]:
    names = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names += [found.name for found in pkgutil.walk_packages(path, f"{package}.")]
    return [name for name in names if not name.endswith("__main__")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
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
        told: list[str] = []
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(test, out=told.append, clear_globs=False)
        names.update(test.globs)
        assert not runner.failures, "".join(told)


def test_there_are_blocks_to_run() -> None:
    assert {document.name for document in DOCUMENTS if blocks(document)} >= {"README.md", "layout.md", "errors.md"}


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert not failed


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=named)
def test_links_between_files_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text())
    broken = [target for target in targets if not (document.parent / target.partition("#")[0]).exists()]
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_named_in_the_documents_exist(document: Path) -> None:
    found = re.findall(r"`((?:stairs|jisc|eddy|bench|tests|docs)/[\w./]+)`", document.read_text())
    assert not [name for name in found if not (ROOT / name).exists()]
