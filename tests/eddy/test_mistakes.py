"""Typical mistakes of a newcomer: each kind of object, each kind of mistake, and the message that helps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy

SCHEMA = pa.schema([("user", pa.int64()), ("page", pa.string()), ("at", pa.timestamp("s"))])
ON = ["clicks.user = buys.user"]
BAND = "buys.at between clicks.at and clicks.at + {}"


def clicks(**options: Any) -> eddy.Stream:
    return eddy.Stream("clicks", **{"schema": SCHEMA, "time": "at", **options})


def buys(**options: Any) -> eddy.Stream:
    return eddy.Stream("buys", **{"schema": SCHEMA, "time": "at", **options})


def query(on: list[str] = ON, **options: Any) -> eddy.Query:
    return eddy.Query([clicks(), buys()], on, **options)


def pushed(rows: Any, stream: str = "clicks") -> Any:
    return eddy.Runtime(query()).push({stream: rows})


NAMES: dict[str, tuple[Callable[[], Any], str]] = {
    "stream of a predicate": (lambda: query(["click.user = buys.user"]), "'click' (the nearest is clicks)"),
    "column of a predicate": (lambda: query(["clicks.usr = buys.user"]), "'usr' (the nearest is user)"),
    "stream of a band": (lambda: query([*ON, "buy.at >= clicks.at"]), "'buy' (the nearest is buys)"),
    "column of a band": (lambda: query([*ON, "buys.att >= clicks.at"]), "'att' (the nearest is at)"),
    "time column": (lambda: clicks(time="att"), "'att' (the nearest is at)"),
    "filter": (lambda: clicks(filter=pc.field("usr") > 3), "usr"),
    "select": (lambda: query(select=["clicks.usr"]), "'usr' (the nearest is user)"),
    "where": (lambda: query(where=pc.field("clicks.usr") > 3), "clicks.usr"),
    "group": (lambda: query(group_by=["clicks.usr"]), "'usr' (the nearest is user)"),
    "aggregate": (lambda: query(aggregates={"n": eddy.agg.sum("clicks.usr")}), "'usr' (the nearest is user)"),
    "select of groups": (
        lambda: query(group_by=["clicks.user"], select=["clicks.usr"]),
        "'clicks.usr' (the nearest is clicks.user)",
    ),
    "branch": (
        lambda: eddy.Query([clicks()], branches=[eddy.Branch([buys()], ["click.user = buys.user"], "left")]),
        "'click' (the nearest is clicks)",
    ),
    "plan": (lambda: eddy.Runtime(query(), "click buys"), "'click' (the nearest is clicks)"),
    "transition": (lambda: eddy.Runtime(query()).transition("clicks buy"), "'buy' (the nearest is buys)"),
    "strategy": (lambda: eddy.Runtime(query(), strategy="jsic"), "'jsic' (the nearest is jisc)"),  # type: ignore[arg-type]
    "policy": (lambda: eddy.Runtime(query(), policy="cots"), "'cots' (the nearest is cost)"),  # type: ignore[arg-type]
    "output": (lambda: eddy.Runtime(query(), output="changlog"), "output is one of 'append', 'changelog'"),  # type: ignore[arg-type]
    "push": (lambda: pushed([], "click"), "'click' (the nearest is clicks)"),
    "table of SQL": (
        lambda: eddy.sql("SELECT * FROM click JOIN buys ON click.user = buys.user", [clicks(), buys()]),
        "'click' (the nearest is clicks)",
    ),
    "column of SQL": (
        lambda: eddy.sql("SELECT clicks.usr FROM clicks JOIN buys ON clicks.user = buys.user", [clicks(), buys()]),
        "'usr' (the nearest is user)",
    ),
}
VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "a letter for minutes": (lambda: query([*ON, BAND.format("15m")]), "a unit of time (ns, us, ms, s, min, h, d, w"),
    "months": (lambda: query([*ON, BAND.format("1 month")]), "a unit of time (ns, us, ms, s, min, h, d, w"),
    "one predicate": (lambda: query("clicks.user = buys.user"), "write ['clicks.user = buys.user']"),  # type: ignore[arg-type]
    "a column for a predicate": (lambda: query(["user"]), "write 'R.a = S.a'"),
    "a text for lateness": (lambda: query(lateness="15m"), "lateness must be a timedelta"),
    "a text for a window": (lambda: clicks(window="1 hour"), "its window must be eddy.Rows(n), eddy.Range(d)"),
    "an interval without a time column": (
        lambda: eddy.Query([clicks(), buys(time=None)], [*ON, BAND.format("15 min")]),
        "stream buys names no time column, so the predicate bounds no window and all rows are kept; if 'at' has its",
    ),
    "no time": (lambda: clicks(time=None, window=eddy.Range(timedelta(hours=1))), "name its time column with time="),
    "no schema": (lambda: clicks(schema=["user"]), "give a pyarrow.Schema, a frame of pandas"),
    "a text for a filter": (lambda: clicks(filter="user > 3"), "its filter must be a pyarrow.compute.Expression"),
    "a name for an aggregate": (lambda: query(aggregates={"n": "count"}), "must be a function of eddy.agg"),  # type: ignore[dict-item]
    "a stream for a query": (lambda: eddy.Runtime(clicks()), "a Runtime runs an eddy.Query, not Stream"),  # type: ignore[arg-type]
    "rows without a stream": (
        lambda: eddy.Runtime(query()).push([{"user": 1}]),  # type: ignore[arg-type]
        "push takes a mapping from names of streams or tables to rows, not list",
    ),
    "a text for a time": (
        lambda: pushed([{"user": 1, "page": "x", "at": "2026-01-01"}]),
        "stream clicks: column 'at' of type timestamp[s]: '2026-01-01' is of class str; give datetimes",
    ),
    "a text for a number": (
        lambda: pushed([{"user": "1", "page": "x", "at": 0}]),
        "stream clicks: column 'user' of type int64: '1' is of class str; give integers",
    ),
    "a row without a column": (lambda: pushed([{"user": 1}]), "stream clicks: column 'page' is missing in row 0"),
}


@pytest.mark.parametrize("what", [*NAMES, *VALUES])
def test_the_message_helps(what: str) -> None:
    act, message = {**NAMES, **VALUES}[what]
    with pytest.raises(eddy.EddyError) as raised:
        act()
    assert message in str(raised.value)


ENDING: dict[str, Callable[[], eddy.Query]] = {
    "join": query,
    "groups": lambda: query(aggregates={"n": eddy.agg.count()}),
    "branch": lambda: eddy.Query([clicks()], branches=[eddy.Branch([buys()], ON, "left")]),
}


@pytest.mark.parametrize("kind", ENDING)
def test_nothing_comes_after_the_end(kind: str) -> None:
    runtime = eddy.Runtime(ENDING[kind](), bounded=True)
    rows = {"clicks": [{"user": 1, "page": "x", "at": 0}]}
    runtime.push(rows)
    runtime.finish()
    assert runtime.finish().num_rows == 0
    for ended in (runtime, eddy.Runtime.restore(runtime.snapshot(), runtime.query)):
        for call in (ended.push, ended.load):
            with pytest.raises(
                eddy.InputError, match="the input has ended: finish\\(\\) was called; start a new runtime"
            ):
                call(rows)
        assert ended.position == 1
