"""All properties, and all methods without arguments, work for each kind of query at any time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

import eddy
from eddy.show.formats import FORMATS
from jisc.strategies import STRATEGIES

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("t", pa.int64())])
CHANGING = frozenset(["finish", "dismantle", "run"])
"""Methods that end a runtime."""
COUNT = {"n": eddy.agg.count()}


def stream(name: str, window: Any = None) -> eddy.Stream:
    return eddy.Stream(name, SCHEMA, window=window or eddy.Range(5), time="t")


def table(name: str) -> eddy.Table:
    return eddy.Table(name, SCHEMA, key="a")


def as_of(on: str, at: str, **more: Any) -> eddy.AsOf:
    return eddy.AsOf(eddy.VersionedTable("V", SCHEMA, key="a", time="t"), [on], at, **more)


R, S, T = map(stream, "RST")
BELOW = eddy.Query([S], aggregates=COUNT, group_window=eddy.Tumbling(4))
QUERIES: dict[str, Callable[[], eddy.Query]] = {
    "inner": lambda: eddy.Query([R, S, T], ["R.a = S.a", "S.b = T.b"]),
    "scans": lambda: eddy.Query([R, S, T], ["R.a = S.a", "S.b < T.b"]),
    "intervals": lambda: eddy.Query(
        [R, eddy.Stream("S", SCHEMA, time="t")], ["R.a = S.a", "S.t between R.t and R.t + 5"]
    ),
    "filters": lambda: eddy.Query([R, S], ["R.a = S.a"], where=pa.compute.field("R.b") > 0),
    "branches": lambda: eddy.Query(
        [R, S],
        ["R.a = S.a"],
        branches=[eddy.Branch([T], ["T.a = S.a"], "left", [eddy.Branch([stream("U")], ["U.a = T.a"], "anti")])],
    ),
    "a branch of one stream": lambda: eddy.Query([R], branches=[eddy.Branch([S], ["R.a = S.a"], "anti")]),
    "groups": lambda: eddy.Query([R, S], ["R.a = S.a"], group_by=["R.b"], aggregates=COUNT),
    "groups of a branch": lambda: eddy.Query(
        [R], branches=[eddy.Branch([S], ["R.a = S.a"], "left")], group_by=["R.b"], aggregates=COUNT
    ),
    "groups of one stream": lambda: eddy.Query([stream("R", eddy.Rows(3))], group_by=["R.b"], aggregates=COUNT),
    "windows": lambda: eddy.Query([R, S], ["R.a = S.a"], aggregates=COUNT, group_window=eddy.Tumbling(4)),
    "windows of one stream": lambda: eddy.Query(
        [eddy.Stream("R", SCHEMA, time="t")], aggregates=COUNT, group_window=eddy.Session(4)
    ),
    "as of": lambda: eddy.Query([eddy.Stream("R", SCHEMA, time="t")], as_of=[as_of("R.a = V.a", "R.t")]),
    "as of a join": lambda: eddy.Query(
        [R, S],
        ["R.a = S.a"],
        branches=[eddy.Branch([T], ["T.a = S.a"], "left")],
        as_of=[as_of("T.b = V.a", "S.t", how="left", direction="nearest", tolerance=2)],
        group_by=["V.b"],
        aggregates=COUNT,
    ),
    "tables": lambda: eddy.Query([R, table("S"), table("T")], ["R.a = S.a", "S.b = T.b"]),
    "groups of tables": lambda: eddy.Query([table("R"), table("S")], ["R.a = S.a"], group_by=["R.b"], aggregates=COUNT),
    "first rows": lambda: eddy.Query([R, S], ["R.a = S.a"], top=eddy.Top(2, "R.b", ["S.t desc"])),
    "first rows of one stream": lambda: eddy.Query([eddy.Stream("R", SCHEMA)], top=eddy.Top(1, "R.b", rank="place")),
    "first groups": lambda: eddy.Query(
        [R, S], ["R.a = S.a"], group_by=["R.b"], aggregates=COUNT, top=eddy.Top(1, (), ["n"])
    ),
    "first rows of tables": lambda: eddy.Query([table("R"), table("S")], ["R.a = S.a"], top=eddy.Top(1, "R.b")),
    "first rows of a branch": lambda: eddy.Query(
        [R], branches=[eddy.Branch([S], ["R.a = S.a"], "left")], top=eddy.Top(1, "R.b", "S.t")
    ),
    "as of beside tables": lambda: eddy.Query(
        [R, table("T")], ["R.a = T.a"], as_of=[as_of("T.b = V.a", "R.t", how="left")]
    ),
    "a stream of a query": lambda: eddy.Query([R, eddy.Stream("W", BELOW, time="window_end")], ["R.a = W.n"]),
    "a table of a query": lambda: eddy.Query(
        [R, eddy.Table("W", eddy.Query([S], group_by={"b": "S.b"}, aggregates=COUNT))], ["R.a = W.b"]
    ),
    "groups of one table": lambda: eddy.Query([table("R")], group_by=["R.b"], aggregates=COUNT),
}


def readers() -> list[str]:
    """Return the names of the properties, and of the methods that need no argument."""
    names = []
    for name, member in inspect.getmembers(eddy.Runtime):
        if (name.startswith("_") and name not in ("__repr__", "_repr_html_")) or name in CHANGING:
            continue
        if isinstance(member, property):
            names.append(name)
        elif inspect.isfunction(member):
            needed = [
                parameter
                for parameter in inspect.signature(member).parameters.values()
                if parameter.default is parameter.empty
            ]
            names += [name] * (len(needed) == 1)
    return names


def read(runtime: eddy.Runtime) -> None:
    for name in readers():
        if name == "groups" and runtime.query.aggregation is None:
            continue
        value = getattr(runtime, name)
        if callable(value):
            value()
    for form in FORMATS:
        assert runtime.explain(form)
    if runtime.pushes and len(runtime.query.streams) > 1 and runtime.query.tree is None:
        assert eddy.plans(runtime.query, runtime.stats())


@pytest.mark.campaign(10)
@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("output", ["append", "changelog"])
def test_all_that_can_be_read_can_be_read(kind: str, output: str) -> None:
    query = QUERIES[kind]()
    if (output == "append" and query.tables_changing) or (output == "changelog" and "windows" in kind):
        pytest.skip("refused")
    ends = query.aggregation is not None or query.top is not None
    bounded = output == "append" and ends and "windows" not in kind
    below = [
        input_stream.source.streams for input_stream in query.streams if isinstance(input_stream.source, eddy.Query)
    ]
    names = [input_stream.name for input_stream in chain(query.streams, *below) if input_stream.source is None]
    strategies = STRATEGIES if kind in ("inner", "tables") else ["jisc"]
    for strategy in strategies:
        runtime = eddy.Runtime(query, strategy=strategy, output=output, bounded=bounded)
        read(runtime)
        for t in range(8):
            runtime.push({name: [{"a": t % 2, "b": t % 3, "t": t}] for name in names})
            read(runtime)
        runtime = eddy.Runtime.restore(runtime.snapshot(), query)
        read(runtime)
        runtime.push({})
        runtime.finish()
        read(runtime)


def test_the_readers_are_found() -> None:
    assert {"plan", "metrics", "explain", "stats", "nbytes", "history", "late", "failed", "check", "snapshot"} <= {
        *readers()
    }
