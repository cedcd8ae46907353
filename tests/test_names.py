"""No two classes of the project share a name, and names say what things are."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator

from tests.documents import ROOT

EMPTY = {"one", "own", "found", "lent", "shelf", "book", "owner", "life"}
"""Words that say nothing of the thing that they name, or say it in a picture."""


def parsed() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of each module of the project."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in listed.split():
        yield file, ast.parse((ROOT / file).read_text())


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


def test_no_two_classes_share_a_name() -> None:
    places = dict[str, str]()
    shared = []
    for file, tree in parsed():
        for node in classes(tree):
            place = f"{file}:{node.lineno}"
            if places.setdefault(node.name, place) != place:
                shared.append(f"{node.name}: {places[node.name]} and {place}")
    assert len(places) > 500
    assert not shared


def test_names_say_what_things_are() -> None:
    names = [(name, f"{file}:{line}") for file, tree in parsed() for name, line in given_names(tree)]
    assert len(names) > 10_000
    assert [f"{name}: {place}" for name, place in names if name.strip("_").lower() in EMPTY] == []
