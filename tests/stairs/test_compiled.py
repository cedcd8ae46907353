"""Kernels that a package ships: used where they fit, ignored where they do not, never trusted to be intact."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eddy import shipping
from stairs.kernels import compiled
from tests.documents import ROOT

PROGRAM = """
import numpy as np
from stairs.kernels.stable_hashes import mix_words
mix_words(np.zeros(1, np.int64), np.zeros(1, np.uint64))
"""
COUNT = "print(sum(mix_words.stats.cache_hits.values()), sum(mix_words.stats.cache_misses.values()))"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the shipped kernels are for x86-64")
def test_a_package_with_shipped_kernels_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not set(shipping.FEATURES) <= compiled.processor()[1]:
        pytest.skip(f"this processor is older than {shipping.PROCESSOR}")
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "stairs", tree / "stairs", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipping, "PROGRAM", PROGRAM)
    assert any(path.suffix == ".nbc" for path in shipping.ship(tree).iterdir())

    def first_use(name: str, **variables: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tree), "EDDY_CACHE_DIR": str(tmp_path / name), **variables}
        program = [sys.executable, "-P", "-c", PROGRAM + COUNT]
        done = subprocess.run(program, cwd=tree, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert first_use("fresh") == "1 0"
    assert first_use("declined", EDDY_SHIPPED="0") == "0 1"
    (tree / "stairs" / "errors.py").write_text((tree / "stairs" / "errors.py").read_text() + "\n# An edit.\n")
    assert first_use("edited") == "0 1"


def fitting(folder: Path, **other: object) -> None:
    """Write a shipped folder that fits this process, with other entries in its description."""
    folder.mkdir()
    (folder / "kernel.nbi").write_bytes(b"index")
    (folder / "kernel.1.nbc").write_bytes(b"code")
    (folder / compiled.MADE).write_text(json.dumps({**compiled.made(), "features": [], **other}))


@pytest.mark.parametrize(
    ("other", "used"),
    [
        ({}, True),
        ({"numba": "0.1"}, False),
        ({"python": "cpython-300"}, False),
        ({"sources": "0"}, False),
        ({"features": ["a feature of no processor"]}, False),
        ({"features": 5}, False),
    ],
)
def test_shipped_kernels_are_copied_only_where_they_fit(
    other: dict[str, object], used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting(tmp_path / "shipped", **other)
    monkeypatch.setattr(compiled, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("EDDY_CACHE_DIR", str(tmp_path / "cache"))
    names = {path.name for path in compiled.cache_directory.__wrapped__().iterdir()}
    assert names == ({"kernel.nbi", "kernel.1.nbc", compiled.MADE} if used else set())


def test_a_damaged_description_is_reported_and_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eddy.kernels")
    fitting(tmp_path / "shipped")
    (tmp_path / "shipped" / compiled.MADE).write_text("[1, 2]")
    monkeypatch.setattr(compiled, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("EDDY_CACHE_DIR", str(tmp_path / "cache"))
    assert not list(compiled.cache_directory.__wrapped__().iterdir())
    assert "the shipped kernels cannot be used" in caplog.text


def test_a_directory_in_use_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDDY_CACHE_DIR", str(tmp_path / "cache"))
    directory = compiled.cache_directory.__wrapped__()
    (directory / "own.nbi").write_bytes(b"index")
    fitting(tmp_path / "shipped")
    monkeypatch.setattr(compiled, "SHIPPED", tmp_path / "shipped")
    assert compiled.cache_directory.__wrapped__() == directory
    assert [path.name for path in directory.iterdir()] == ["own.nbi"]


def test_a_named_directory_that_cannot_be_used_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eddy.kernels")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("EDDY_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    folder = compiled.cache_directory.__wrapped__()
    assert folder.parent == tmp_path / "usual" / "eddy"
    assert f"EDDY_CACHE_DIR={tmp_path / 'file'} cannot be used: compiled kernels are stored in {folder}" in caplog.text
