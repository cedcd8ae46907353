"""The example programs on Spark print the output that they announce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples import SPARK, run, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.campaign(1)
@pytest.mark.parametrize("program", SPARK, ids=lambda path: path.name)
def test_a_program_prints_what_it_says(program: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    promised = run(program)
    printed = capsys.readouterr().out
    assert promised
    assert same(promised, printed), printed
