"""A function takes eight parameters at most: what belongs together is passed whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 8
PUBLIC = {
    "bench/cli.py: bench",
    "eddy/dialect/statement.py: sql",
    "eddy/fuzz/command.py: fuzz",
    "eddy/query/query.py: Query.__init__",
    "eddy/replay/command.py: replay",
    "eddy/runtime.py: Runtime.__init__",
    "eddy/spark/kafka/source.py: stream_topic",
}
"""The functions that users call with options as keyword arguments. This list may only get shorter."""
COMPILED = {"inlined", "jit", "step"}
"""Decorators of kernels, and of functions that kernels inline: numba has no cheap objects to pass."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Yield each function below a node with its qualified name, but no kernels."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, Function | ast.ClassDef):
            yield from functions(node, within)
            continue
        if isinstance(node, Function) and not COMPILED & set(map(decorator, node.decorator_list)):
            yield within + node.name, node
        yield from functions(node, f"{within}{node.name}.")


def decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def parameters(function: Function) -> int:
    """Return the number of parameters; self and cls do not count, `*rows` and `**options` count once."""
    given = function.args
    listed = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return sum(parameter is not None and parameter.arg not in ("self", "cls") for parameter in listed)


def test_functions_take_few_parameters() -> None:
    counted = [
        (f"{path.relative_to(ROOT)}: {name}", parameters(function))
        for package in ("stairs", "jisc", "eddy", "bench")
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, function in functions(ast.parse(path.read_text()))
    ]
    assert len(counted) > 1000
    many = [(place, count) for place, count in counted if count > MOST]
    assert [(place, count) for place, count in many if place not in PUBLIC] == []
    # What needs no exception any more leaves the list.
    assert {place for place, _ in many} == PUBLIC


def test_what_counts() -> None:
    text = """
class A:
    def f(self, a, *b, c, **d):
        @jit(cache=True)
        def g(a): ...
        @step
        def h(a): ...
        if a:
            def k(): ...
"""
    assert [(name, parameters(function)) for name, function in functions(ast.parse(text))] == [("A.f", 4), ("A.f.k", 0)]
