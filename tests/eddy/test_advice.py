"""Advice in messages: whoever follows it gets on, with streams and with tables.

Each case is a query, or a push, that is refused. A reader of its message tries each remedy in it, and those of the
messages that come then, until the call succeeds. A message without a remedy that the reader knows, or one that leads
to a refusal without such a remedy, fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("z", pa.int64()), ("t", pa.timestamp("s"))])
SPAN = timedelta(seconds=9)
MOST_STEPS = 4


@dataclass(frozen=True)
class Setup:
    """A query and the call of it, as they are changed by advice.

    kinds     by input its class
    given     by input the arguments of its class
    on, sql   the predicates; or the text of a statement, which takes their place
    by        the order of the aggregate `first`, None = none
    groups    the arguments of a query with groups, None = a join
    runtime   the arguments of the runtime
    order     that of the push of a row of each input, None = none
    alone     whether the rows of each input are pushed alone
    """

    kinds: dict[str, str]
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    on: tuple[str, ...] = ("T.id = S.id",)
    sql: str | None = None
    by: str | None = None
    groups: dict[str, Any] | None = None
    runtime: dict[str, Any] = field(default_factory=lambda: {"output": "changelog"})
    order: list[int] | None = None
    alone: bool = True

    def run(self) -> None:
        """Make the query, and push one row of each input."""
        inputs = []
        for name, kind in self.kinds.items():
            keyed = {"key": "id"} if kind == "Table" else {}
            inputs.append(getattr(eddy, kind)(name, SCHEMA, **keyed, **self.given.get(name, {})))
        on = self.on if len(inputs) > 1 else ()
        groups = dict(self.groups or {})
        if "first" in groups:
            groups = {"group_by": ["T.x"], "aggregates": {"a": agg.first("T.id", by=self.by)}}
        query = eddy.sql(self.sql, inputs) if self.sql else eddy.Query(inputs, on, **groups)
        runtime = eddy.Runtime(query, **self.runtime)
        row: dict[str, Any] = {"id": 1, "x": 1, "z": 1, "t": 0}
        pushes = [{name: [row]} for name in self.kinds] if self.alone else [{name: [row] for name in self.kinds}]
        for batches in pushes:
            runtime.push(batches, self.order)

    def of(self, name: str, **given: Any) -> Setup:
        """Return the setup with more arguments of an input."""
        return replace(self, given={**self.given, name: {**self.given.get(name, {}), **given}})


def filtered(setup: Setup, match: re.Match[str], name: str) -> Setup:
    """Write a predicate as the filter of an input of the class in the advice."""
    assert setup.kinds[name] == match[1]
    return replace(setup, on=("T.id = S.id",)).of(name, filter=pc.field("id") < pc.field("x"))


def ordered_by(setup: Setup, match: re.Match[str], name: str) -> Setup:
    """Give `first` an order."""
    text = setup.sql and setup.sql.replace("(T.id)", "(T.id ORDER BY T.t)")
    return replace(setup, by="T.t", sql=text)


def with_output(setup: Setup, match: re.Match[str], name: str) -> Setup:
    """Take another output."""
    return replace(setup, runtime={**setup.runtime, "output": match[1]})


ADVICE: dict[str, Callable[[Setup, re.Match[str], str], Setup]] = {
    r"(?:name it|column(?: of \w+)?) with (?:Stream\(…, )?time=…": lambda setup, _, name: setup.of(name, time="t"),
    r"give the stream time='t'": lambda setup, _, name: setup.of(name, time="t"),
    r"by=…, ORDER BY in SQL": ordered_by,
    r"give one stream a window, such as window=eddy\.Range\(d\)": lambda setup, _, name: setup.of(
        next(stream for stream, kind in setup.kinds.items() if kind == "Stream"), window=eddy.Range(SPAN)
    ),
    r"such as window=Unbounded\(\)": lambda setup, _, name: setup.of(name, window=eddy.Unbounded()),
    r"write it as its filter: (\w+)\(…, filter=…\)": filtered,
    r"(?:pass|use) output='(\w+)'": with_output,
    r"make it a Table": lambda setup, _, name: replace(setup, kinds={**setup.kinds, name: "Table"}),
    r"bounded=True and finish\(\)": lambda setup, *_: replace(setup, runtime={**setup.runtime, "bounded": True}),
    r"leave group_window out": lambda setup, *_: replace(setup, groups={**(setup.groups or {}), "group_window": None}),
    r"push one stream at a time": lambda setup, *_: replace(setup, alone=True),
    r"or pass order=": lambda setup, *_: replace(setup, order=[*range(len(setup.kinds))]),
    r"Stream\(…, time=…\), push": lambda setup, _, name: setup.of(name, time="t"),
}
"""By form of advice, the function that follows it, given the setup, the match, and the input that the message names."""


def follow(setup: Setup, steps: int = 0) -> int:
    """Follow all advice until the call succeeds; return the number of remedies that were tried."""
    try:
        setup.run()
    except eddy.EddyError as error:
        message = str(error)
    else:
        return 0
    assert steps < MOST_STEPS, message
    named = re.search(r"\b(?:stream|table) ([ST])\b", message)
    remedies = [(do, match) for form, do in ADVICE.items() if (match := re.search(form, message))]
    assert remedies, f"no remedy in: {message}"
    return sum(1 + follow(do(setup, match, "T" if named is None else named[1]), steps + 1) for do, match in remedies)


GROUPS = {"group_by": ["T.x"], "aggregates": {"a": agg.count()}}
FIRST = {"groups": {"first": True}}
WINDOWED = {**GROUPS, "group_window": eddy.Tumbling(SPAN)}
REFUSED: dict[str, dict[str, Any]] = {
    "first without an order": FIRST,
    "first in SQL without an order": {"sql": "SELECT T.x, FIRST_VALUE(T.id) AS a FROM {} GROUP BY T.x"},
    "a window of event time": {"groups": WINDOWED, "runtime": {}},
    "the event time of one input": {
        "groups": {**GROUPS, "group_window": eddy.Tumbling(SPAN, time="T.t")},
        "given": {"S": {"window": eddy.Range(SPAN), "time": "t"}},
        "runtime": {},
    },
    "a comparison within one input": {"on": ("T.id = S.id", "T.id < T.x")},
    "a condition within one input": {"on": ("T.id = S.id", "T.id + 1 < T.x * 2")},
    "an equality within one input": {"on": ("T.id = S.id", "T.x = T.z")},
    "an interval without event times": {"on": ("T.id = S.id", "T.t <= S.t + 5 min", "S.t <= T.t + 5 min")},
    "a range without event times": {"given": {"S": {"window": eddy.Range(SPAN)}}},
    "a range beside no event times": {"given": {"S": {"window": eddy.Range(SPAN), "time": "t"}}},
    "rows of an unknown order": {"alone": False},
    "a changing result": {"runtime": {}},
    "groups that are never final": {"groups": GROUPS, "runtime": {}},
    "results without a key": {"runtime": {"output": "upsert"}},
    "nothing to do": {},
    "nothing to do in SQL": {"sql": "SELECT T.x FROM {}"},
}


KINDS = "Stream", "Table", "Stream Stream", "Table Stream", "Table Table"
"""The classes of T and S; a query may have T alone."""


def make_setup(what: str, kinds: str) -> Setup:
    """Return a refused setup over inputs of these classes."""
    options, inputs = dict(REFUSED[what]), dict(zip("TS", kinds.split(), strict=False))
    if "sql" in options:
        options["sql"] = options["sql"].format("T JOIN S ON T.id = S.id" if len(inputs) > 1 else "T")
    given = options.get("given", {})
    options["given"] = {name: rows for name, rows in given.items() if inputs.get(name) == "Stream"}
    return Setup(inputs, **options)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("what", REFUSED)
def test_who_follows_advice_gets_on(what: str, kinds: str) -> None:
    follow(make_setup(what, kinds))


def test_each_form_of_advice_is_followed() -> None:
    seen = set[str]()
    for what in REFUSED:
        for kinds in KINDS:
            try:
                make_setup(what, kinds).run()
            except eddy.EddyError as error:
                seen |= {form for form in ADVICE if re.search(form, str(error))}
    assert sorted(set(ADVICE) - seen) == []
