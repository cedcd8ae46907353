"""Messages of the logger "eddy": decisions and refusals, and nothing for an ordinary push."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import eddy

ROWS = pa.schema([("k", pa.int64())])
QUERY = eddy.Query([eddy.Stream(name, ROWS, window=eddy.Rows(10)) for name in "RST"], ["R.k = S.k", "S.k = T.k"])


def push(runtime: eddy.Runtime, key: object = 1) -> None:
    runtime.push({name: pa.record_batch({"k": [key]}) for name in "RST"}, order=[0, 1, 2])


def test_no_handler_is_installed_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    handlers = logging.getLogger("eddy").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
    with pytest.raises(eddy.InputError):
        push(eddy.Runtime(QUERY), "a")
    assert capfd.readouterr() == ("", "")


def test_a_refused_push_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    runtime = eddy.Runtime(QUERY)
    with pytest.raises(eddy.InputError):
        push(runtime, "a")
    with pytest.raises(eddy.PlanError):
        runtime.transition("R S")
    with pytest.raises(eddy.SnapshotError):
        eddy.Runtime.restore(b"none", QUERY)
    assert [(record.name, record.levelname) for record in caplog.records] == [("eddy", "WARNING")] * 3
    said = caplog.messages
    assert said[0].startswith("push was refused: InputError: stream R: column 'k' is string")
    assert said[1].startswith("transition was refused: PlanError: plan 'R S' lacks T")
    assert said[2].startswith("restore was refused: SnapshotError: ")


def test_a_change_of_plan_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "eddy")
    runtime = eddy.Runtime(QUERY, "(R S) T", policy="fixed", store=["R S"])
    push(runtime)
    assert caplog.messages == []
    runtime.transition("R (S T)", store=["S T"])
    runtime.transition("(R T) S", at=7)
    push(runtime)
    push(runtime)
    assert caplog.messages == [
        "arrival 3: plan R (S T) instead of (R S) T, stored: S T, states dropped: 1; because: asked for",
        "arrival 7: plan (R T) S instead of R (S T), stored: none, states dropped: 1; because: asked for",
    ]


def test_pushes_are_not_logged_at_the_default_level(caplog: pytest.LogCaptureFixture) -> None:
    runtime = eddy.Runtime(QUERY, "(R S) T")
    for _ in range(3):
        push(runtime)
    runtime.transition("R (S T)")
    assert caplog.records == []
