"""The command line: its list of commands, its output, and its message when a command cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eddy import cli, script

pytestmark = pytest.mark.versions

RUNNER = CliRunner()


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: list[str]) -> None:
    result = RUNNER.invoke(cli.app, arguments)
    assert result.exit_code == 0
    assert result.output == f"eddy {version('eddy-join')}\n"


def test_python_runs_it_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "eddy", "version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"eddy {version('eddy-join')}\n")


def test_help_lists_the_commands_of_all_packages() -> None:
    result = RUNNER.invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    for word in ("demo", "bench", "fuzz", "version", "Join flights"):
        assert word in result.output


@pytest.mark.parametrize("words", ["demo", "fuzz", "bench", "bench limit", "bench filters"])
def test_help_of_a_command(words: str) -> None:
    arguments = [*words.split(), "--help"]
    result = RUNNER.invoke(cli.app, arguments)
    assert result.exit_code == 0
    assert " ".join(arguments[:-1]) in result.output


def test_an_unknown_command_is_refused() -> None:
    result = RUNNER.invoke(cli.app, ["swim"])
    assert result.exit_code == 2
    assert "swim" in result.output


def test_a_command_that_cannot_be_loaded_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "eddy_no_such_module:app", cli.GROUP)
    monkeypatch.setattr(cli, "registered", lambda: {"broken": broken})
    assert RUNNER.invoke(cli.app, ["--help"]).exit_code == 0
    assert RUNNER.invoke(cli.app, ["version"]).exit_code == 0
    result = RUNNER.invoke(cli.app, ["broken"])
    assert result.exit_code == 1
    assert "eddy_no_such_module" in result.output


@pytest.mark.parametrize("contents", ["", "raise AssertionError('the wrong bench')"])
def test_a_folder_of_that_name_does_not_hide_a_command(contents: str, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    if contents:
        (tmp_path / "bench" / "__init__.py").write_text(contents)
    done = subprocess.run(
        [sys.executable, "-m", "eddy", "bench", "guard", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "guard" in done.stdout


def test_a_package_that_hides_ours_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python imports the package that comes first on PYTHONPATH, so the command reports it."""
    (tmp_path / "eddy_hidden").mkdir()
    (tmp_path / "eddy_hidden" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "OURS", ("eddy_hidden",))
    hidden = EntryPoint("hidden", "eddy_hidden.cli:app", cli.GROUP)
    monkeypatch.setattr(cli, "registered", lambda: {"hidden": hidden})
    result = RUNNER.invoke(cli.app, ["hidden"])
    assert result.exit_code == 1
    assert f"{tmp_path / 'eddy_hidden'} hides the package of this command" in result.output


def test_without_the_repository_bench_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "BENCH", EntryPoint("bench", "eddy_without_bench.cli:app", cli.GROUP))
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    assert RUNNER.invoke(cli.app, ["--help"]).exit_code == 0
    result = RUNNER.invoke(cli.app, ["bench"])
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == f"eddy bench: {cli.BENCH_MISSING}"


def test_a_clone_has_the_benchmarks_in_any_directory(tmp_path: Path) -> None:
    """An editable installation exposes only the packages of the wheel, which `bench` is not one of."""
    command = [str(Path(sys.executable).with_name("eddy")), "bench", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "guard" in done.stdout, done.stdout


@pytest.mark.parametrize("missing", ["psutil", "matplotlib"])
def test_an_extra_that_is_missing_is_named(missing: str) -> None:
    """The message is the same whether the package is missing when the command is loaded or while it runs."""
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['eddy', 'bench', 'guard']; import eddy.__main__"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"the package {missing} is not installed; pip install 'eddy-join[bench]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import eddy.spark

    def session(*_: Any, **__: Any) -> None:
        raise eddy.spark.SparkJoinError("no Java was found")

    monkeypatch.setattr(eddy.spark, "session", session)
    result = RUNNER.invoke(cli.app, ["demo", "tweets"])
    assert result.exit_code == 1
    assert "SparkJoinError: no Java was found" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_command_says_how_to_get_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("typer", "rich") or name == "eddy.cli"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "argv", ["eddy", "--help"])
    with pytest.raises(SystemExit, match=rf"the package {missing} is not installed; pip install 'eddy-join\[cli\]'"):
        script.main()
