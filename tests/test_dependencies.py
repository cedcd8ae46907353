"""Every package that is imported is declared in pyproject.toml where it is needed, and every declared one is used."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = {"stairs", "jisc", "eddy", "bench", "tests", "release"}
IMPORTED_AS = {
    "confluent-kafka": "confluent_kafka",
    "markdown-it-py": "markdown_it",
    "myst-parser": "myst_parser",
    "pillow": "PIL",
    "protobuf": "google",
    "prometheus-client": "prometheus_client",
    "pytest-cov": "pytest_cov",
    "pytest-xdist": "xdist",
}
"""Packages whose name is not that of their module."""
PLACES = {
    "cli": ("eddy/cli.py", "eddy/demo", "eddy/fuzz", "eddy/program/command.py", "eddy/replay", "eddy/show"),
    "spark": ("eddy/spark", "eddy/program", "eddy/demo", "pyspark_eddy.py"),
    "java": ("eddy/spark",),
    "delta": ("eddy/spark/streaming/sinks",),
    "kafka": ("eddy/spark",),
    "demo": ("eddy/demo",),
    "objects": ("eddy/spark/streaming/state",),
    "registry": ("eddy/spark",),
    "fuzz": ("eddy/fuzz",),
    "bench": ("bench",),
    "docs": ("docs",),
    "dev": ("tests", "release", "examples", "bench"),
}
"""The folders whose modules may import the packages of an extra."""
NOT_IMPORTED = {
    "protobuf": "pyspark imports it",
    "pandas": "pyspark imports it",
    "sphinx": "a command",
    "myst-parser": "conf.py names it",
    "furo": "conf.py names it",
    "coverage": "a command",
    "ruff": "a command",
    "mypy": "a command",
    "pytest-xdist": "a plugin of pytest",
    "pytest-cov": "a plugin of pytest",
    "markdown-it-py": "rich reads Markdown with it",
    "wheel": "a command",
    "setuptools": "the build backend",
    "build": "a command",
    "twine": "a command",
    "uv": "a command",
}
"""Packages that an extra declares and none of its modules imports."""
GIVEN = {"eddy/streams/schemas.py": {"polars", "pyspark"}}
"""Packages of which a module is imported only when a user passes an object of theirs."""
PEERS = {"pyflink", "pathway"}
"""Peers of the benchmarks, which `eddy bench peers --install` installs apart."""


def module_of(requirement: str) -> str:
    """Return the module of a requirement such as `pyarrow>=18`."""
    name = re.split(r"[\s<>=!~;\[]", requirement)[0]
    return IMPORTED_AS.get(name, name)


def declared(extra: str | None) -> set[str]:
    """Return the modules of an extra and of the extras that it includes, or those that are always there."""
    modules = set[str]()
    for requirement in PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]:
        other = re.fullmatch(r"eddy-join\[([\w,]+)\]", requirement)
        modules |= set().union(*map(declared, other[1].split(","))) if other else {module_of(requirement)}
    return modules


@cache
def imports() -> Mapping[str, set[str]]:
    """Return the packages that each file imports, anywhere in it, by the path of the file."""
    folders = ("stairs", "jisc", "eddy", "bench", "tests", "release", "examples", "docs")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        str(path.relative_to(ROOT)): tops(path.read_text()) - PACKAGES - sys.stdlib_module_names
        for path in [*files, ROOT / "pyspark_eddy.py"]
    }


def tops(code: str) -> set[str]:
    """Return the first word of each name that code imports."""
    words = set[str]()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            words |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            words.add(node.module.partition(".")[0])
    return words


def within(path: str, places: tuple[str, ...]) -> bool:
    return any(Path(path).is_relative_to(place) for place in places)


def test_what_is_imported_is_declared() -> None:
    """Benchmarks and tests may import what the extras of the packages have as well."""
    missing = set[tuple[str, str]]()
    everything = set().union(*map(declared, PLACES))
    for path, names in imports().items():
        extras = [extra for extra, places in PLACES.items() if within(path, places)]
        known = declared(None).union(*map(declared, extras))
        if {"bench", "dev", "docs"} & set(extras):
            known |= everything | PEERS
        missing |= {(path, name) for name in names - known - GIVEN.get(path, set())}
    assert not missing


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_what_is_declared_is_used(extra: str | None) -> None:
    """What no module imports is listed here with its reason."""
    places = ("stairs", "jisc", "eddy") if extra is None else PLACES[extra]
    used = set().union(*(names for path, names in imports().items() if within(path, places)))
    requirements = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    names = {module_of(requirement) for requirement in requirements if not requirement.startswith("eddy-join[")}
    assert names - used <= {module_of(name) for name in NOT_IMPORTED}


@pytest.mark.parametrize("name", ["numba", "llvmlite", "sqlglot"])
def test_packages_whose_internals_are_extended_have_upper_bounds(name: str) -> None:
    (requirement,) = [dependency for dependency in PROJECT["dependencies"] if module_of(dependency) == name]
    assert "<" in requirement


def test_the_readme_says_how_to_install_what_its_blocks_import() -> None:
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"pip install ([^`\n#]*)", text))))
    imported = set[str]()
    for block in blocks(ROOT / "README.md"):
        lines = [line[4:] for line in block.text.splitlines() if line.startswith((">>> ", "... "))]
        imported |= tops("\n".join(lines if block.session else block.text.splitlines()))
    extras = [extra for extra in PROJECT["optional-dependencies"] if extra in named]
    assert imported - PACKAGES - sys.stdlib_module_names <= declared(None).union(named, *map(declared, extras))
