"""Each option of `Query` and `Stream` has an effect in each host, which is what runs a query, or is refused there."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from bench.simulated.cluster.simulation import ClusterSimulation
from bench.simulated.placement.simulation import PlacementSimulation
from eddy.spark.streaming.hub.checks import check_query
from eddy.spark.streaming.hub.sources import HubStreams, Source

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
TIMES = {"R": [0, 4, 9, 3, 12, 15], "S": [1, 2, 8, 10, 3, 16]}
Rows = list[tuple[Any, ...]]


def query(*, stream: Mapping[str, Any] | None = None, **options: Any) -> eddy.Query:
    """Return a query with some options, those of `stream` for R."""
    stream_options = [{"window": eddy.Range(8), "time": "t", **(stream or {} if name == "R" else {})} for name in "RS"]
    streams = [eddy.Stream(name, SCHEMA, **arguments) for name, arguments in zip("RS", stream_options, strict=True)]
    return eddy.Query(options.pop("streams", streams), options.pop("on", ["R.k = S.k"]), **options)


def pushes() -> list[tuple[dict[str, list[dict[str, int]]], list[int]]]:
    return [({name: [{"k": k % 2, "t": TIMES[name][k], "n": k}]}, [i]) for k in range(6) for i, name in enumerate("RS")]


def by_runtime(asked: eddy.Query) -> Rows:
    runtime = eddy.Runtime(asked)
    tables = [runtime.push(rows, order) for rows, order in pushes()]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def by_engine(asked: eddy.Query) -> Rows:
    engine = eddy.Engine([eddy.Stream(name, SCHEMA, time="t") for name in "RS"])
    engine.start("q", asked)
    tables = [engine.push(rows, order)["q"] for rows, order in pushes()]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def by_placement(asked: eddy.Query) -> Rows:
    simulation = PlacementSimulation(asked)
    tables = [simulation.push(rows) for rows, _ in pushes()]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def by_cluster(asked: eddy.Query) -> Rows:
    simulation = ClusterSimulation(asked, nodes=2, groups=4)
    for rows, _ in pushes():
        simulation.push(rows)
        simulation.run()
    return [tuple(row.values()) for row in simulation.results().to_pylist()]


def by_hub(asked: eddy.Query) -> None:
    """Check a query only, since that takes no Spark."""
    streams = [eddy.Stream(name, SCHEMA, time="t") for name in "RS"]
    hub = HubStreams([Source(stream, None, "k") for stream in streams])  # type: ignore[arg-type]
    check_query(hub, "q", asked, "append")


HOSTS: dict[str, Callable[[eddy.Query], Rows | None]] = {
    "engine": by_engine,
    "hub": by_hub,
    "placement": by_placement,
    "cluster": by_cluster,
}
EVERYWHERE = ""
SAME = "streams", "late", "stream's late", "failed", "failed_rows", "expiry"
"""Options whose values here change no row that a host gives."""
SIMULATED = "placement cluster"
OPTIONS: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    # option -> values, the hosts that refuse it, a word of the message
    "streams": [({}, EVERYWHERE, "")],
    "on": [({"on": ["R.k = S.k", "R.n = S.n"]}, EVERYWHERE, "")],
    "select": [({"select": {"double": "R.n * 2"}}, EVERYWHERE, "")],
    "where": [({"where": pc.field("R.n") != pc.field("S.n")}, EVERYWHERE, "")],
    "lateness": [({"lateness": 7}, "engine hub", "lateness belongs to the .*(Engine|Hub)\\(lateness=")],
    "late": [
        ({"late": "count"}, EVERYWHERE, ""),
        (
            {"late": print},
            "engine hub placement cluster",
            "late is a function: .* only counts late rows|late and late_rows belong to the engine",
        ),
    ],
    "late_rows": [
        (
            {"late_rows": 5},
            "engine hub placement cluster",
            "late_rows=5: .* only counts|late and late_rows belong to the engine",
        )
    ],
    "failed": [
        ({"failed": "count"}, EVERYWHERE, ""),
        ({"failed": print}, "hub placement cluster", "failed is a function: .* (ends at|a hub keeps)"),
    ],
    "failed_rows": [({"failed_rows": 5}, "hub placement cluster", "failed_rows=5: .* (ends at|a hub keeps)")],
    "watermark": [({"watermark": "fastest"}, "engine hub cluster", "(?i)watermark")],
    "idle_after": [({"idle_after": 0}, "engine hub cluster", "idle_after")],
    # What a host gives once is final in any case.
    "expiry": [({"expiry": "final"}, EVERYWHERE, "")],
    "branches": [
        (
            {
                "streams": [eddy.Stream("R", SCHEMA, eddy.Range(8), "t")],
                "on": [],
                "branches": [eddy.Branch([eddy.Stream("S", SCHEMA, eddy.Range(8), "t")], ["R.k = S.k"], "anti")],
            },
            "placement cluster",
            "branches",
        )
    ],
    "as_of": [
        (
            {"as_of": [eddy.AsOf(eddy.VersionedTable("V", SCHEMA, key="k", time="t"), ["R.k = V.k"], "R.t")]},
            "engine hub placement cluster",
            "as-of joins|the (engine|hub) lacks it; give the (engine|hub) a VersionedTable",
        )
    ],
    "group_by": [({"group_by": ["R.k"]}, "engine placement cluster", "aggregates|these groups are never final")],
    "aggregates": [({"aggregates": {"c": eddy.agg.count()}}, "engine placement cluster", "aggregates|these groups")],
    "having": [
        (
            {"aggregates": {"c": eddy.agg.count()}, "having": pc.field("c") > 1, "group_window": eddy.Tumbling(4)},
            "placement cluster",
            "aggregates",
        )
    ],
    "group_window": [
        (
            {"aggregates": {"c": eddy.agg.count()}, "group_window": eddy.Tumbling(4)},
            "placement cluster",
            "aggregates",
        )
    ],
    "top": [
        (
            {"top": eddy.Top(1, "R.k", "S.t")},
            "engine hub placement cluster",
            "this query has top; use a Runtime|not final|come once",
        )
    ],
}
OF_STREAMS: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "name": [],
    "schema": [],
    "window": [
        ({"window": eddy.Range(2)}, EVERYWHERE, ""),
        ({"window": eddy.Rows(1)}, "hub placement cluster", "(?i)rows"),
    ],
    "time": [],
    "source": [
        (
            {"source": eddy.Query([eddy.Stream("Q", SCHEMA)], aggregates={"k": eddy.agg.count()})},
            "engine hub placement cluster",
            "stream R has the rows of a query.*(; use a Runtime|an input of this name|no queries over queries)",
        )
    ],
    "filter": [({"filter": pc.field("n") > 1}, EVERYWHERE, "")],
    "lateness": [({"lateness": 7}, "engine hub", "lateness belongs to the .*(Engine|Hub)\\(lateness=")],
    "late": [
        ({"late": "count"}, EVERYWHERE, ""),
        (
            {"late": "keep"},
            "engine hub placement cluster",
            "stream R: late is 'keep': .* only counts|belong to the engine",
        ),
        (
            {"late": print},
            "engine hub placement cluster",
            "stream R: late is a function: .* only counts|belong to the engine",
        ),
    ],
}
CASES = [(name, *case) for name, cases in OPTIONS.items() for case in cases]
CASES += [
    (f"stream's {name}", {"stream": value}, *rest) for name, cases in OF_STREAMS.items() for value, *rest in cases
]


def test_the_tables_have_all_options() -> None:
    """Say here what each host does with a new option."""
    assert OPTIONS.keys() == inspect.signature(eddy.Query.__init__).parameters.keys() - {"self"}
    assert OF_STREAMS.keys() == {field.name for field in fields(eddy.Stream) if field.init}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("option", "value", "refusing", "message"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)]
)
def test_an_option_has_an_effect_or_is_refused(
    host: str, option: str, value: dict[str, Any], refusing: str, message: str
) -> None:
    asked = query(**value)
    if host in refusing.split():
        # A query that could run with another output is refused as by a runtime.
        with pytest.raises((eddy.QueryError, eddy.InputError), match=message) as caught:
            HOSTS[host](asked)
        assert "Engine" not in str(caught.value) or host == "engine"
        return
    rows = HOSTS[host](asked)
    if rows is not None and host != "cluster" and option != "branches":
        # Rows are late by the time of their own stream in a cluster; an engine gives watermarks to rows that wait.
        assert Counter(rows) == Counter(by_runtime(asked))
    if rows is not None and option not in SAME:
        assert Counter(rows) != Counter(HOSTS[host](query()) or ())


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_no_query_is_refused(host: str) -> None:
    with pytest.raises(eddy.QueryError, match=r"runs (an )?eddy.Query"):
        HOSTS[host]("R.k = S.k")  # type: ignore[arg-type]
    alone = eddy.Query([eddy.Stream("R", SCHEMA, time="t")], group_by=["R.k"], aggregates={"c": eddy.agg.count()})
    with pytest.raises(
        (eddy.QueryError, eddy.InputError), match=r"aggregates|groups are never final|two streams or more|a Rows window"
    ):
        HOSTS[host](alone)


def test_a_hub_has_a_stream_beside_versioned_tables() -> None:
    inputs: list[eddy.Stream] = [eddy.VersionedTable("rate", SCHEMA, key="k", time="t")]
    inputs.append(eddy.Table("goods", SCHEMA, key="k", version="t"))
    with pytest.raises(eddy.EddyError, match="a hub has a stream beside its versioned tables"):
        HubStreams([Source(stream, None, "k") for stream in inputs])  # type: ignore[arg-type]
    unordered = [eddy.Stream("R", SCHEMA, time="t"), eddy.Table("goods", SCHEMA, key="k")]
    with pytest.raises(eddy.QueryError, match="table goods: on Spark, changes arrive in no order"):
        HubStreams([Source(stream, None, "k") for stream in unordered])  # type: ignore[arg-type]


def test_a_query_may_name_the_lateness_that_the_engine_has() -> None:
    """The streams of a query may be those of the engine; the watermark is that of the engine in any case."""
    answers = []
    for of_query in (0, 3):
        streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(8), time="t", lateness=3) for name in "RS"]
        engine = eddy.Engine([replace(stream, window=None) for stream in streams])
        asked = [replace(stream, lateness=of_query or None) for stream in streams]
        left = eddy.Query(asked[:1], branches=[eddy.Branch(asked[1:], ["R.k = S.k"], "left")], select=["R.n", "S.n"])
        engine.start("pairs", eddy.Query(asked, ["R.k = S.k"], select=["R.n", "S.n"]))
        engine.start("left", left)
        answers.append([{name: table.to_pylist() for name, table in engine.push(rows).items()} for rows, _ in pushes()])
    assert answers[0] == answers[1]
    assert any(batch["left"] for batch in answers[0])
    wrong = [replace(stream, lateness=4) for stream in streams]
    with pytest.raises(eddy.QueryError, match="lateness belongs to the engine"):
        engine.start("other", eddy.Query(wrong, ["R.k = S.k"]))
