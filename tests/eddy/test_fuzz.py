"""The fuzzer: its cases, its scripts, the defects it finds and its output."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import eddy
from eddy.fuzz import command, hunt
from eddy.fuzz.as_of.case import AsOfCase
from eddy.fuzz.as_of.draw import as_of_cases
from eddy.fuzz.as_of.play import play as play_as_of
from eddy.fuzz.as_of.script import script as as_of_script
from eddy.fuzz.case import NAMES, Case, PushStep, ReloadStep, Row, Shape
from eddy.fuzz.changing.case import EngineCase
from eddy.fuzz.changing.draw import engine_cases
from eddy.fuzz.changing.play import play as play_engine
from eddy.fuzz.changing.script import script as engine_script
from eddy.fuzz.draw import cases
from eddy.fuzz.play import Game, Tally, compare_late, play, refusals
from eddy.fuzz.script import script
from eddy.fuzz.tables.case import TableCase
from eddy.fuzz.tables.draw import table_cases
from eddy.fuzz.tables.play import play as play_table
from eddy.fuzz.tables.play import refusals as table_refusals
from eddy.fuzz.tables.script import script as table_script
from eddy.queries.grouped_filters import GroupedFilters
from eddy.runtime import Runtime
from eddy.streams.windows import Rows
from jisc.strategies import STRATEGIES
from tests.documents import ROOT

RUNNER = CliRunner()
CASES = cases(list(STRATEGIES), ["append", "changelog"])
BRANCHED = cases(list(STRATEGIES), ["append", "changelog"], 5, branches=True)
FEW = settings(max_examples=max(settings().max_examples // 4, 3))
"""Settings of tests that run a case as a script."""

DEFECT = '''
from eddy.streams.windows import Rows
from eddy.runtime import Runtime

push = Runtime.push


def lossy(self, batches, order=None, **options):
    """Lose a result of a push that has many, once the plan has changed."""
    table = push(self, batches, order, **options)
    return table.slice(1) if table.num_rows > 2 and self.history().num_rows else table


Runtime.push = lossy
'''


ENGINE_DEFECT = '''
import numpy as np
from eddy.queries.grouped_filters import GroupedFilters

share = GroupedFilters.share


def lossy(self, n, values):
    """Lose the first result of each version in each push."""
    found = share(self, n, values)
    return {version: np.arange(1, n) if rows is None else rows[1:] for version, rows in found.items()}


GroupedFilters.share = lossy
'''


TABLE_DEFECT = '''
import pyarrow.compute as pc
from eddy.runtime import Runtime

push = Runtime.push


def lossy(self, batches, order=None, **options):
    """Take no result back without a successor."""
    table = push(self, batches, order, **options)
    shown = "op" in table.column_names and table.num_columns > 2  # no counts
    return table.filter(pc.not_equal(table["op"], "-D")) if shown else table


Runtime.push = lossy
'''


def invoke(*arguments: str) -> Any:
    return RUNNER.invoke(command.app, list(arguments))


@given(CASES)
def test_the_standing_results_of_the_oracle_are_its_answer(case: Case) -> None:
    """The results that began and have not ended equal a new join of the present windows."""
    oracle = case.shape.oracle()
    for step in case.steps:
        for row in step.rows if isinstance(step, PushStep) else ():
            oracle.arrive(NAMES[row.stream], case.shape.values(row))
        assert sorted(oracle.standing) == oracle.copy().answer()


@FEW
@given(CASES | BRANCHED)
def test_a_script_does_what_the_case_does(case: Case) -> None:
    play(case)
    exec(compile(script(case, "A case.", refusals(case)), "script", "exec"), {"__name__": "__main__"})


@FEW
@given(engine_cases(list(STRATEGIES)))
def test_a_script_of_an_engine_does_what_the_case_does(case: EngineCase) -> None:
    play_engine(case)
    exec(compile(engine_script(case, "A case."), "script", "exec"), {"__name__": "__main__"})


@FEW
@given(table_cases(list(STRATEGIES)))
def test_a_script_of_tables_does_what_the_case_does(case: TableCase) -> None:
    play_table(case)
    text = table_script(case, "A case.", table_refusals(case))
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})


@FEW
@given(as_of_cases(list(STRATEGIES)))
def test_a_script_of_as_of_joins_does_what_the_case_does(case: AsOfCase) -> None:
    play_as_of(case)
    exec(compile(as_of_script(case, "A case."), "script", "exec"), {"__name__": "__main__"})


def record(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Record cases instead of playing them."""
    seen: list[Case] = []
    monkeypatch.setattr(hunt, "play", lambda case: seen.append(case) or Tally(cases=1))
    return seen


@pytest.mark.campaign(0)
def test_the_same_seed_gives_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(seed: int, most: int) -> list[Case]:
        seen = record(monkeypatch)
        hunt.Hunt(list(STRATEGIES), ["append", "changelog"], 5, seed).run(600, most)
        return seen

    most = hunt.ROUND["inner"] + 20
    first = drawn(3, most)
    assert len(first) == most
    assert drawn(3, most) == first
    assert drawn(3, 30) == first[:30]
    assert drawn(4, 30) != first[:30]
    counts = Counter(case.strategy for case in first[: hunt.ROUND["inner"]])
    assert counts == dict.fromkeys(STRATEGIES, hunt.ROUND["inner"] // len(STRATEGIES))
    assert {len(case.shape.windows) for case in first} == {2, 3, 4, 5}
    kinds = {type(step).__name__ for case in first for step in case.steps}
    assert kinds == {"PushStep", "BadPushStep", "TransitionStep", "ReloadStep", "DemoteStep", "LimitStep"}


def test_a_short_run_passes_and_says_what_it_did() -> None:
    result = invoke("--cases", "40", "--seconds", "600", "--seed", "1")
    assert result.exit_code == 0, result.output
    for word in (*STRATEGIES, "seed 1", "pushes", "transitions", "snapshots"):
        assert word in result.output
    numbers = re.findall(r"\d+", next(line for line in result.output.splitlines() if line.startswith("all ")))
    assert int(numbers[0]) == 40
    assert all(int(number) > 0 for number in numbers)


def test_options_narrow_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record(monkeypatch)
    narrow = ("--strategy", "jisc", "--strategy", "cacq", "--output-mode", "changelog", "--streams", "3")
    result = invoke(*narrow, "--cases", "120", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert {case.strategy for case in seen} == {"jisc", "cacq"}
    assert {case.output for case in seen} == {"changelog"}
    assert max(len(case.shape.windows) for case in seen) == 3


@FEW
@given(CASES)
def test_a_case_played_again_goes_over_to_the_same_plans(case: Case) -> None:
    """Decisions come too soon to depend on measured times, so a case repeats when it shrinks and in its script."""

    def decided() -> list[tuple[Any, ...]]:
        game = Game(case)
        decisions = []
        for step in case.steps:
            if not game.take(step):
                break
            history = game.runtime.history()
            decisions.append(
                (history["position"].to_pylist(), history["new"].to_pylist(), history["stored"].to_pylist())
            )
        return decisions

    assert decided() == decided()


def test_policies_narrow_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record(monkeypatch)
    narrow = ("--strategy", "eddy", "--policy", "chaos", "--policy", "lottery")
    result = invoke(*narrow, "--cases", "200", "--seed", "1")  # at a few seeds, none of 60 cases stores
    assert result.exit_code == 0, result.output
    assert {case.policy for case in seen} == {"chaos", "lottery"}
    again = {step.policy for case in seen for step in case.steps if isinstance(step, ReloadStep)}
    assert again <= {"chaos", "lottery", None}
    assert any(case.store for case in seen)
    assert any(case.max_bytes for case in seen)


def test_a_policy_decides_within_pushes() -> None:
    """The fuzzer's own policy changes plans and stored states, and its script makes the same changes."""
    rows = tuple(Row(k % 3, {"k0": k // 3 % 2}, 0, k // 3) for k in range(30))
    shape = Shape((Rows(3),) * 3, (("k0",),) * 3, (((0, "k0"), (1, "k0")), ((1, "k0"), (2, "k0"))))
    case = Case(shape, "(R S) T", "eddy", policy="chaos", seed=3, decide_every=2, steps=(PushStep(rows),))
    game = Game(case)
    assert game.take(case.steps[0])
    history = game.runtime.history()
    assert len(set(history["new"].to_pylist())) > 1
    assert len(set(history["stored"].to_pylist())) > 1
    assert {0 < at < 30 for at in history["position"].to_pylist()} == {True}
    text = script(case, "A case.")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "script", "exec"), namespace)
    again = namespace["runtime"].history()
    for column in ("position", "new", "stored", "reason"):
        assert again[column].equals(history[column])


def test_a_run_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def second(case: Case) -> Tally:
        seen.append(case)
        return Tally(cases=1)

    seen: list[Case] = []
    monkeypatch.setattr(hunt, "play", second)
    # A clock of the test's own: on a busy machine the first case may take longer to draw than any short time.
    clock = SimpleNamespace(monotonic=lambda: float(len(seen)), process_time=lambda: 0.0)
    monkeypatch.setattr(hunt, "time", clock)
    assert invoke("--seconds", "5").exit_code == 0
    assert 5 <= len(seen) <= 6


def test_an_interrupt_prints_what_was_done_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(case: Case) -> Tally:
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(case)
        return Tally(cases=1, pushes=7)

    seen: list[Case] = []
    monkeypatch.setattr(hunt, "play", interrupted)
    result = invoke("--strategy", "mjoin")
    assert result.exit_code == 0
    assert "stopped" in result.output
    assert "35" in result.output


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the runtime lose results."""
    monkeypatch.setattr(Runtime, "push", Runtime.push)
    exec(DEFECT, {})


@pytest.mark.campaign(0)
@pytest.mark.usefixtures("lossy")
@pytest.mark.parametrize("policy", ["fixed", "chaos"])
def test_a_defect_is_found_and_made_small_and_its_script_shows_it(tmp_path: Path, policy: str) -> None:
    strategy = "jisc" if policy == "fixed" else "eddy"
    narrow = ("--strategy", strategy, "--policy", policy)
    result = invoke("--seed", "2", "--seconds", "600", *narrow, "--save", str(tmp_path))
    assert result.exit_code == 1, result.output
    target = tmp_path / "eddy_fuzz_2.py"
    text = target.read_text()
    assert text in result.output
    assert "AssertionError: missing rows" in result.output
    # It takes two streams, one transition and three results; with a policy, the policy makes the transition.
    assert text.count("runtime.transition(") <= (policy == "fixed")
    assert text.count("class Chaos") == (policy == "chaos")
    assert text.count("        ('") <= (5 if policy == "fixed" else 8)
    assert "eddy.Stream('T'" not in text

    fails, passes = run_script(target, DEFECT), run_script(target)
    assert fails.returncode == 1
    assert "AssertionError: missing rows" in fails.stderr
    assert passes.returncode == 0, passes.stderr


def run_script(script: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script after some code."""
    code = f"{before}\nimport runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.campaign(0)
def test_a_defect_of_an_engine_is_found_and_its_script_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(GroupedFilters, "share", GroupedFilters.share)
    exec(ENGINE_DEFECT, {})
    narrow = ("--queries", "changing", "--strategy", "mjoin", "--policy", "fixed")
    result = invoke("--seed", "2", "--seconds", "600", *narrow, "--save", str(tmp_path))
    assert result.exit_code == 1, result.output
    target = tmp_path / "eddy_fuzz_2.py"
    text = target.read_text()
    assert text in result.output
    assert text.count("        ('") <= 4, "it takes two rows of one query"
    fails, passes = run_script(target, ENGINE_DEFECT), run_script(target)
    assert fails.returncode == 1
    assert "AssertionError: missing rows [(0" in fails.stderr
    assert passes.returncode == 0, passes.stderr


@pytest.mark.campaign(0)
def test_a_defect_of_tables_is_found_and_its_script_shows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Runtime, "push", Runtime.push)
    exec(TABLE_DEFECT, {})
    narrow = ("--queries", "tables", "--strategy", "mjoin", "--policy", "fixed")
    result = invoke("--seed", "2", "--seconds", "600", *narrow, "--save", str(tmp_path))
    assert result.exit_code == 1, result.output
    target = tmp_path / "eddy_fuzz_2.py"
    text = target.read_text()
    assert text in result.output
    assert text.count("        ('") <= 5, "it takes a result, and a row or a change that ends it"
    fails, passes = run_script(target, TABLE_DEFECT), run_script(target)
    assert fails.returncode == 1
    assert "AssertionError: missing rows [" in fails.stderr
    assert "'-D'" in fails.stderr
    assert passes.returncode == 0, passes.stderr


def test_a_short_run_over_tables_passes_and_counts_changes_as_arrivals() -> None:
    result = invoke("--queries", "tables", "--cases", "100", "--seconds", "600", "--seed", "1")
    assert result.exit_code == 0, result.output
    numbers = re.findall(r"\d+", next(line for line in result.output.splitlines() if line.startswith("all ")))
    assert int(numbers[0]) == 100
    assert all(int(number) > 0 for number in numbers)
    assert int(numbers[2]) > int(numbers[1])


@pytest.mark.usefixtures("lossy")
def test_a_case_can_be_shown_as_it_was_found(tmp_path: Path) -> None:
    target = tmp_path / "found.py"
    result = invoke("--seed", "2", "--seconds", "600", "--strategy", "mjoin", "--save", str(target), "--no-shrink")
    assert result.exit_code == 1
    assert target.exists()
    assert target.name in result.output


def broken_check(runtime: Runtime) -> None:
    raise RuntimeError("not in order")


def test_errors_of_the_engine_are_failures_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Runtime, "check", broken_check)
    result = invoke("--seed", "1", "--save", str(tmp_path / "nowhere" / "case.py"))
    assert result.exit_code == 1
    assert "RuntimeError: not in order" in result.output
    assert "cannot be written" in result.output


def test_a_case_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def endless(runtime: Runtime) -> None:
        while runtime.position > 2:
            pass

    eddy.warmup()  # loading kernels takes longer than the limit
    monkeypatch.setattr(Runtime, "check", endless)
    monkeypatch.setattr(hunt, "CASE_SECONDS", 1.0)
    monkeypatch.setattr(hunt, "SMALL_CASE_SECONDS", 0.1)
    monkeypatch.setattr(hunt, "SHRINK_SECONDS", 3.0)
    result = invoke("--seed", "1", "--seconds", "600", "--strategy", "mjoin", "--save", str(tmp_path))
    assert result.exit_code == 1
    assert "TimeoutError: the case did not end" in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--strategy", "guess"], "symmetric-hash"),
        (["--policy", "guess"], "lottery"),
        (["--output-mode", "both"], "changelog"),
        (["--streams", "1"], "2"),
        (["--streams", "99"], str(len(NAMES))),
        (["--seconds", "-1"], "seconds"),
        (["--cases", "0"], "cases"),
        (["--seed", "x"], "seed"),
    ],
)
def test_bad_options(arguments: list[str], named: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert named in result.output


def test_help() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for word in ("--seconds", "--seed", "--strategy", "--policy", "--output-mode", "--streams", "--save"):
        assert word in result.output


def test_without_hypothesis_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], Any] = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "hypothesis" else find(name))
    result = invoke("--cases", "1")
    assert result.exit_code == 1
    assert "pip install 'eddy-join[fuzz]'" in result.output


@given(st.data())
def test_cases_are_plain_data(data: st.DataObject) -> None:
    case = data.draw(CASES)
    assert eval(repr(case), {**vars(sys.modules["eddy.fuzz.case"])}) == case


def test_the_command_is_registered() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert declared["entry-points"]["eddy.commands"]["fuzz"] == "eddy.fuzz.command:app"
    assert any(requirement.startswith("hypothesis") for requirement in declared["optional-dependencies"]["fuzz"])


def test_late_rows_may_be_missing_from_the_oldest_on_if_as_many_were_dropped() -> None:
    late = {"R": [1, 2, 3], "S": [4]}
    compare_late({"R": [3], "S": [4]}, late, 2)
    compare_late({"R": [1, 2, 3]}, late, 1)
    for got, dropped in (({"R": [1], "S": [4]}, 2), ({"R": [3], "S": [4]}, 1), ({"R": [1, 2, 3], "S": [4]}, 1)):
        with pytest.raises(AssertionError):
            compare_late(got, late, dropped)


def test_a_case_that_waits_for_a_core_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with hunt.time_limit(0.05):
        sleep(0.2)
    monkeypatch.setattr(hunt, "WAITING", 2)
    with pytest.raises(TimeoutError), hunt.time_limit(0.5):
        sleep(60)
