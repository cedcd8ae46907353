"""No two classes of the project share a name, and names say what things are."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

from tests.documents import ROOT

EMPTY = {"one", "own", "found", "lent", "shelf", "book", "owner", "life"}
"""Words that say nothing of the thing that they name, or say it in a picture."""


def given_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a module gives to a thing, and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module, nested and private ones included, without those in functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.ClassDef):
            yield child
        yield from classes(child)


@cache
def named() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the classes of the project, and all names that its modules give to things, each with its place."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    class_places, names = [], []
    for file in listed.split():
        tree = ast.parse((ROOT / file).read_text())
        class_places += [(node.name, f"{file}:{node.lineno}") for node in classes(tree)]
        names += [(name, f"{file}:{line}") for name, line in given_names(tree)]
    return class_places, names


# One process parses the project.
pytestmark = pytest.mark.xdist_group("names")


def test_no_two_classes_share_a_name() -> None:
    places = dict[str, str]()
    shared = []
    for name, place in named()[0]:
        if places.setdefault(name, place) != place:
            shared.append(f"{name}: {places[name]} and {place}")
    assert len(places) > 500
    assert not shared


def test_names_say_what_things_are() -> None:
    names = named()[1]
    assert len(names) > 10_000
    assert [f"{name}: {place}" for name, place in names if name.strip("_").lower() in EMPTY] == []
