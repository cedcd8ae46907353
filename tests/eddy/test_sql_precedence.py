"""SQL: conditions without parentheses mean what they mean in DuckDB, or are refused."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from eddy import SqlError
from eddy.fuzz.sql.case import TABLES, Row, SqlCase
from eddy.fuzz.sql.play import play

TRUTHS = (None, False, True)
ROWS: dict[str, tuple[Row, ...]] = {
    name: tuple((j % 3, None, None, None, "xY"[j % 2], TRUTHS[(j // 3 + i) % 3], 10 * i + j) for j in range(9))
    for i, name in enumerate(TABLES)
}
FORMS = [
    "{} = {}",
    "{} <> {}",
    "{} <= {}",
    "{} IS NULL",
    "{} IS NOT NULL",
    "{} IS NOT TRUE",
    "{} IS DISTINCT FROM {}",
    "{} IS NOT DISTINCT FROM {}",
    "{} IN (TRUE, NULL)",
    "{} NOT IN (TRUE)",
    "{} BETWEEN FALSE AND {}",
    "NOT {}",
    "{} AND {}",
    "{} OR {}",
]


def filled(form: str, *operands: str) -> str:
    """Return a form with operands, and columns for those that are not given."""
    return form.format(*itertools.islice(itertools.chain(operands, itertools.cycle(["b.f", "a.f"])), form.count("{}")))


@pytest.mark.campaign(3)
@pytest.mark.parametrize("outer", FORMS)
def test_conditions_within_conditions(outer: str) -> None:
    meant, refusals = 0, set()
    for inner in FORMS:
        for condition in {filled(outer, filled(inner, "a.f")), filled(outer, "a.f", filled(inner, "b.f"))}:
            text = f"SELECT a.at AS t, b.at AS u, {condition} AS c FROM a JOIN b ON a.k = b.k"
            try:
                play(SqlCase(ROWS, text, text, kept=True, pushes=1, strategy="eddy"))
                meant += 1
            except SqlError as error:
                refusals.add(str(error).rpartition("; ")[2])
            except duckdb.ParserException:
                pass  # DuckDB does not say what the condition means
    assert meant > 5
    assert refusals <= {"put what comes first into parentheses"}
