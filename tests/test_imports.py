"""Imports go one way, `stairs` <- `jisc` <- `eddy` <- `bench`, without cycles; only Spark modules import pyspark."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("stairs", "jisc", "eddy", "bench")
ROOMS = (
    *("cli", "script", "errors", "log", "uncopied", "show", "storage", "filters", "streams", "expressions", "query"),
    *("agg", "ingest", "results", "aggregates", "routing", "join", "partners", "tops", "pipeline", "inspect"),
    *("snapshot", "runtime", "replay", "live", "queries", "watch", "compiling", "dialect", "placement", "spark"),
    *("program", "fuzz", "demo"),
)
"""The folders and single modules of `eddy` from the ground up: each may import those before it."""
SPARK_MODULES = (
    "eddy.streams.schemas",  # of a schema of Spark, which brings pyspark
    "eddy.spark",
    "eddy.program",
    "eddy.demo",
    "bench.balancing",
    "bench.hot_key",
    "bench.hub",
    "bench.spark_aggregates",
    "bench.placement_costs",
    "bench.placement_spark",
    "bench.placement_stream",
    "bench.soak",
    "bench.spark",
    "bench.spill",
    "bench.streaming",
)


IN_ONE_PROCESS = pytest.mark.xdist_group("imports")
"""Of tests that need the imports of all modules."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))}


def imported(name: str, tree: ast.AST) -> Iterator[str]:
    """Return the absolute names of all imports of a module, those in functions and type-checking blocks included."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def at_load(tree: ast.Module) -> ast.Module:
    """Return the part of a module that runs when it is loaded: no function bodies, no type-checking blocks."""

    class Loaded(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            names |= {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
            return None if "TYPE_CHECKING" in names else self.generic_visit(node)

    return Loaded().visit(tree)  # type: ignore[no-any-return]


@cache
def all_imports() -> Mapping[str, set[str]]:
    """Return the imports of each module. Parsing takes over a second, which processes that only collect do not need."""
    return {name: set(imported(name, ast.parse(path.read_text()))) for name, path in MODULES.items()}


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@IN_ONE_PROCESS
def test_there_is_something_to_look_at() -> None:
    assert {name.partition(".")[0] for name in MODULES} == set(LAYERS)
    assert any(
        "stairs" in imports
        for imports in ({i.partition(".")[0] for i in targets} for targets in all_imports().values())
    )


@IN_ONE_PROCESS
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_downwards_only(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    breaches = [
        f"{name} imports {target}"
        for name, targets in all_imports().items()
        if within(name, (layer,))
        for target in sorted(targets)
        if within(target, (*above, "tests"))
    ]
    assert not breaches


def modules_in(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the modules that each module imports, of all that it names."""
    graph: dict[str, set[str]] = {}
    for name, targets in imports.items():
        # `from package import module` loads the module; a name that is no module comes from the package itself.
        graph[name] = {target for target in targets if target in MODULES and target != name}
        packages = {p for p in graph[name] if MODULES[p].name == "__init__.py"}
        for package in packages:
            inside = {t for t in targets if t.startswith(f"{package}.")}
            if inside and inside <= MODULES.keys():
                graph[name].discard(package)
    return graph


def circle(imports: Mapping[str, set[str]]) -> str | None:
    """Return a cycle of modules that import each other, or None if the imports have no cycle."""
    try:
        TopologicalSorter(modules_in(imports)).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return None


def test_no_module_imports_itself_through_others() -> None:
    loaded = {name: set(imported(name, at_load(ast.parse(path.read_text())))) for name, path in MODULES.items()}
    assert circle(loaded) is None


@IN_ONE_PROCESS
def test_no_circle_of_type_checking_imports() -> None:
    """Imports in functions and in type-checking blocks count as well."""
    assert circle(all_imports()) is None


@IN_ONE_PROCESS
def test_rooms_import_downwards_only() -> None:
    """Imports in functions and in type-checking blocks count as well."""
    graph = modules_in(all_imports())
    inside = {name: name.split(".")[1] for name in MODULES if name.startswith("eddy.")}
    arrows = {
        (room, inside[target])
        for name, room in inside.items()
        for target in graph[name]
        if target in inside and room not in ("__main__", inside[target])
    }
    assert {room for arrow in arrows for room in arrow} <= set(ROOMS)
    place = {room: i for i, room in enumerate(ROOMS)}
    upwards = {(room, target) for room, target in arrows if place[room] < place[target]}
    assert not upwards


@IN_ONE_PROCESS
def test_pyspark_is_imported_where_spark_is_met_only() -> None:
    breaches = [
        name
        for name, targets in all_imports().items()
        if any(within(target, ("pyspark", "py4j")) for target in targets) and not within(name, SPARK_MODULES)
    ]
    assert not breaches


@pytest.mark.parametrize("name", ["oracle.py", "aggregate_oracle.py"])
def test_the_oracle_imports_nothing_of_the_project(name: str) -> None:
    tree = ast.parse((ROOT / "eddy" / "fuzz" / name).read_text())
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            packages.add((node.module or "").partition(".")[0])
    assert packages <= {"__future__", "collections", "dataclasses", "decimal", "math", "typing"}


@pytest.mark.parametrize("package", ["eddy", "eddy.spark"])
def test_every_public_name_is_there(package: str) -> None:
    """A name is imported when it is first used."""
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_importing_eddy_imports_nothing_that_takes_time() -> None:
    code = "import sys, eddy, eddy.spark; print(*{'numba', 'pyarrow', 'pyspark', 'numpy'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.split() == []
