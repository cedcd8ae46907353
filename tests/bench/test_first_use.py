"""The program whose first use is timed is the first example of the README, up to its first results."""

from __future__ import annotations

from typing import Any

from bench.first_use import program


def test_the_program_ends_with_the_first_results() -> None:
    space: dict[str, Any] = {}
    exec(compile(program(), "README.md", "exec"), space)
    assert space["runtime"].metrics()["results"] > 0
    assert program().rstrip().splitlines()[-1].startswith("runtime.push")
