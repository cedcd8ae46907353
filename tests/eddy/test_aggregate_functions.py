"""The table of aggregate functions, row by row: each function has all its parts, and one without a part fails."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddy import Hopping, Query, Range, Runtime, Session, Stream, agg
from eddy.aggregates.state import AggregationState
from eddy.dialect.aggregate_names import AGGREGATES, BY
from eddy.fuzz.aggregate_oracle import TIME, OracleAggregate, OracleWindow, Row, grouped, windowed
from eddy.fuzz.sql.expressions import Column, Expressions
from eddy.fuzz.sql.grouped import grouped as statement
from eddy.query.aggregate_functions import FUNCTIONS
from stairs.memory.allowance import Allowance
from tests.documents import ROOT
from tests.eddy.drawn_aggregates import SCHEMA, VALUES, row_texts, texts

SPAN = 6
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any], OracleWindow | None]] = {
    "changelog": ({}, {"output": "changelog"}, None),
    "panes": ({"group_window": Hopping(6, 4)}, {}, OracleWindow(6, 4)),
    "sessions": ({"group_window": Session(2)}, {}, OracleWindow(gap=2)),
    "end": ({}, {"bounded": True}, None),
}
"""By form of output the arguments of the query and of the runtime, and the window for the oracle."""


def query(given: dict[str, agg.Aggregate], **more: Any) -> Query:
    return Query([Stream("R", SCHEMA, window=Range(SPAN), time="t")], group_by=["R.k"], aggregates=given, **more)


def each_column(function: str) -> tuple[dict[str, agg.Aggregate], list[OracleAggregate]]:
    """Return a function of each column that it takes, for eddy and for the oracle."""
    given, known, make = {}, [], getattr(agg, function)
    for column in "gxid":
        if FUNCTIONS[function].result(SCHEMA.field(column).type) is not None:
            given[column] = make(f"R.{column}")
            known.append(OracleAggregate(function, f"R.{column}"))
            if FUNCTIONS[function].ordered:
                given[f"{column} by i"] = make(f"R.{column}", "R.i")
                known.append(OracleAggregate(function, f"R.{column}", "R.i"))
    return given, known


def arrivals() -> Iterator[list[dict[str, Any]]]:
    """Yield pushes; their event times rise, with pauses."""
    rng = Random(5)
    for first in range(0, 80, 8):
        yield [
            {name: rng.choice(choices) for name, choices in VALUES.items()} | {"t": k // 2 + 3 * (k // 20)}
            for k in range(first, first + 8)
        ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_the_values_of_the_oracle(function: str, form: str) -> None:
    of_query, options, window = FORMS[form]
    given, known = each_column(function)
    asked = query(given, **of_query)
    runtime, results, got = Runtime(asked, **options), list[Row](), Counter[tuple[str, ...]]()
    for rows in arrivals():
        table = runtime.push({"R": pa.Table.from_pylist(rows, schema=SCHEMA)})
        results += [{f"R.{name}": value for name, value in row.items()} | {TIME: row["t"]} for row in rows]
        runtime.check()
        if form == "changelog":
            went, came = (texts(table.filter(pc.field("op") == op).drop_columns("op")) for op in ("-D", "+I"))
            assert not went - got
            got = got - went + came
            live = [row for row in results if row[TIME] >= results[-1][TIME] - SPAN]
            assert got == row_texts((*key, *values) for key, values in grouped(live, ["R.k"], known).items())
        else:
            got += texts(table)
        runtime = Runtime.restore(runtime.snapshot(), asked)
    if form == "changelog":
        return
    got += texts(runtime.finish())
    if window is None:
        expected = grouped(results, ["R.k"], known).items()
    else:
        groups = windowed(results, ["R.k"], known, window)
        expected = {(k, start, end): values for (start, end, k), values in groups.items()}.items()
    assert got == row_texts((*key, *values) for key, values in expected)


def test_a_function_is_made_by_name_and_has_rows_in_the_documents() -> None:
    assert set(agg.__all__) == {"Aggregate", *FUNCTIONS}
    assert all(getattr(agg, name)("R.x").function == name for name in FUNCTIONS)
    for page, prefix in (("aggregates", "agg."), ("semantics", "")):
        text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
        first_cells = "\n".join(re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE))
        assert not [name for name in FUNCTIONS if f"`{prefix}{name}(" not in first_cells]


def test_a_function_has_a_call_in_sql_and_the_fuzzer_draws_it() -> None:
    of_call = {name: make("R.x", "R.t").function for name, make in BY.items()}
    of_call |= {name: make("R.x").function for name, make in AGGREGATES.items()}
    of_call["COUNT(DISTINCT"] = "count_distinct"
    assert set(of_call.values()) == set(FUNCTIONS)
    kinds = ("key", "int", "decimal", "float", "text", "bool", "time")
    columns, source = [Column(kind, f"a.{kind}") for kind in kinds], Random(1)
    drawn = [statement(source, ("FROM a", ""), Expressions(source, columns), "")[0] for _ in range(300)]
    called = {call for text in drawn for call in re.findall(r"COUNT\(DISTINCT|[A-Z_]+(?=\()", text)}
    assert {of_call[call] for call in called & of_call.keys()} == set(FUNCTIONS)


def run(runtime: Runtime) -> None:
    for rows in arrivals():
        runtime.push({"R": pa.Table.from_pylist(rows, schema=SCHEMA)})
    runtime.finish()


MEDIAN = replace(FUNCTIONS["min"], form="median")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_a_function_of_a_form_without_cells_fails(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new function is in the table only: it must not pass for another one."""
    of_query, options, _ = FORMS[form]
    monkeypatch.setitem(FUNCTIONS, "median", MEDIAN)
    with pytest.raises(AssertionError, match="median"):
        Runtime(query({"m": agg.Aggregate("median", "R.x")}, **of_query), **options)


@pytest.mark.parametrize("form", FORMS)
def test_a_function_whose_cells_have_no_rule_for_its_value_fails(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_query, options, _ = FORMS[form]
    runtime = Runtime(query({"m": agg.min("R.x")}, **of_query), **options)
    monkeypatch.setitem(FUNCTIONS, "min", MEDIAN)
    with pytest.raises(AssertionError, match="median"):
        run(runtime)


def test_the_comparison_of_groups_has_no_rule_for_a_form_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    state = AggregationState(query({"m": agg.min("R.x")}).aggregation, True, False, Allowance())  # type: ignore[arg-type]
    monkeypatch.setitem(FUNCTIONS, "min", MEDIAN)
    cells = np.zeros((1, state.layout.fields), np.int64)
    with pytest.raises(AssertionError, match="median"):
        state.same(cells, cells)


def test_the_oracle_refuses_a_function_that_it_does_not_know() -> None:
    for column in (None, "x"):
        with pytest.raises(ValueError, match="median"):
            grouped([{"x": 1, TIME: 0}], [], [OracleAggregate("median", column)])
