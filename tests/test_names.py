"""No two classes of the project share a name, so a name alone says which class is meant."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator

from tests.documents import ROOT


def classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module, nested and private ones included, without those in functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.ClassDef):
            yield child
        yield from classes(child)


def test_no_two_classes_share_a_name() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = dict[str, str]()
    shared = []
    for file in listed.split():
        for found in classes(ast.parse((ROOT / file).read_text())):
            place = f"{file}:{found.lineno}"
            if places.setdefault(found.name, place) != place:
                shared.append(f"{found.name}: {places[found.name]} and {place}")
    assert len(places) > 500
    assert not shared
