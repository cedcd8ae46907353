"""Each room of architecture.md has a CONTEXT.md, whose names exist; what a room may not know, it does not import."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.documents import ROOT
from tests.test_imports import IN_ONE_PROCESS, LAYERS, MODULES, ROOMS, all_imports, within

NAMES = re.findall(r"^\| `([\w/]+)/` \|", (ROOT / "docs/internals/architecture.md").read_text(), re.MULTILINE)
"""The rooms: the rows of the table in architecture.md."""
SECTIONS = ("Purpose", "Words", "Invariants", "May not know", "Begin at")
LINES = 30


@cache
def sections(name: str) -> dict[str, str]:
    """Return the text of each section of the page of a room, by its heading; that before the first one is `Purpose`."""
    parts = re.split(r"^## (.+)\n", (ROOT / name / "CONTEXT.md").read_text(), flags=re.MULTILINE)
    return {"Purpose": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def backticked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def modules_of(name: str) -> list[str]:
    return [module for module in MODULES if within(module, (name.replace("/", "."),))]


@cache
def defined(name: str) -> set[str]:
    """Return what the modules of a room define: classes, functions, parameters, variables, attributes and fields."""
    names = set[str]()
    for module in modules_of(name):
        names.add(module.rpartition(".")[2])
        for node in ast.walk(ast.parse(MODULES[module].read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
    return names


def exists(name: str, word: str) -> bool:
    """True if a word on the page of a room is a file or a folder, or consists of names that the room defines."""
    if (ROOT / word).exists() or (ROOT / name / word).exists():
        return True
    return "/" not in word and re.fullmatch(r"\w+(\.\w+)*", word) is not None and set(word.split(".")) <= defined(name)


def test_the_table_of_rooms_has_each_page_and_each_room_of_the_order_of_imports() -> None:
    """A room of Spark is a folder with modules; a part of a room of `eddy` needs no row."""
    pages = {str(page.parent.relative_to(ROOT)) for layer in LAYERS for page in (ROOT / layer).rglob("CONTEXT.md")}
    assert len(NAMES) == len(set(NAMES))
    assert set(NAMES) == pages
    spark = ROOT / "eddy" / "spark"
    folders = {path.parent for path in spark.rglob("__init__.py")} - {spark / "streaming"}
    folders |= {path for path in (ROOT / "eddy" / room for room in ROOMS) if path.is_dir()}
    folders |= {path.parent for layer in ("stairs", "jisc") for path in (ROOT / layer).rglob("__init__.py")}
    assert {str(folder.relative_to(ROOT)) for folder in folders} <= pages


@pytest.mark.parametrize("name", NAMES)
def test_each_room_has_a_short_page_with_all_sections(name: str) -> None:
    lines = (ROOT / name / "CONTEXT.md").read_text().splitlines()
    assert lines[0] == f"# {name}"
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 120
    assert tuple(sections(name)) == SECTIONS
    assert 3 <= len(re.findall(r"^- \*.+?\*: ", sections(name)["Words"], re.MULTILINE)) <= 6


@pytest.mark.parametrize("name", NAMES)
def test_names_in_backticks_exist(name: str) -> None:
    text = "".join(text for heading, text in sections(name).items() if heading != "May not know")
    assert not [word for word in backticked(text) if not exists(name, word)]


@pytest.mark.parametrize("name", NAMES)
def test_each_invariant_names_its_test(name: str) -> None:
    invariants = re.findall(r"^- (.*(?:\n  .*)*)", sections(name)["Invariants"], re.MULTILINE)
    assert invariants
    for invariant in invariants:
        assert any(word.startswith("tests/") for word in backticked(invariant)), invariant


@IN_ONE_PROCESS
@pytest.mark.parametrize("name", NAMES)
def test_what_a_room_may_not_know_it_does_not_import(name: str) -> None:
    """Imports in functions and in type-checking blocks count. What is named is a room, a module or a package."""
    unknown = [word.removesuffix(".py").replace("/", ".") for word in backticked(sections(name)["May not know"])]
    assert unknown
    everything = set(MODULES).union(*all_imports().values())
    assert not [word for word in unknown if word != "tests" and word not in everything]
    assert not [
        f"{module} imports {target}"
        for module in modules_of(name)
        for target in sorted(all_imports()[module])
        if within(target, tuple(unknown))
    ]


def packages() -> list[str]:
    return [name for name, path in MODULES.items() if path.name == "__init__.py"]


@pytest.mark.parametrize("name", packages())
def test_files_and_folders_in_the_docstring_of_a_package_exist(name: str) -> None:
    """If it lists folders, it lists all of them."""
    folder, text = MODULES[name].parent, ast.get_docstring(ast.parse(MODULES[name].read_text())) or ""
    lists = re.findall(r"^ *((?:\w+(?:\.py|/)(?:, )?)+) +\S", text, re.MULTILINE)
    listed = [word for words in lists for word in words.split(", ")]
    assert not [word for word in listed if not (folder / word).exists()]
    if any(word.endswith("/") for word in listed):
        assert {word for word in listed if word.endswith("/")} == {
            f"{p.parent.name}/" for p in folder.glob("*/__init__.py")
        }
