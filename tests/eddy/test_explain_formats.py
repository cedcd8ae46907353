"""One description, and what is rendered from it: text, JSON, DOT, SVG and HTML show the same figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from datetime import timedelta
from itertools import combinations
from math import dist
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.show.dot import quoted
from eddy.show.drawing import escaped
from eddy.show.plan_svg import plan_svg
from jisc.strategies import STRATEGIES
from tests.drawings import FOLDER, drawings
from tests.eddy.decision_cases import CHAIN, A, B, push
from tests.eddy.queries import make_query

SVG = "{http://www.w3.org/2000/svg}"
MEAN = '<script>alert(1)</script>"&\x1b[2J]]>'
"""A name that a page, a terminal or a parser could take for something else."""


def elements(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter())


def shown_text(svg: str) -> str:
    return "\n".join(element.text or "" for element in elements(svg))


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    below = [node for side in ("left", "right") if side in tree for node in nodes(tree[side])]
    return [tree, *below]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_format_shows_the_figures_of_metrics(strategy: str) -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), A, strategy=strategy, policy="fixed", decide_every=50)
    for seed in range(3):
        push(runtime, seed, 60)
    if runtime._pipeline.join.strategy.changes:
        runtime.transition(B)
    push(runtime, 4, 60)
    counts, description = runtime.metrics(), json.loads(runtime.explain("json"))
    (join,) = description["joins"]
    assert (description["arrivals"], description["results"], description["bytes"]) == (
        counts["arrivals"],
        counts["results"],
        counts["bytes"],
    )
    assert (join["plan"], join["strategy"], join["changes"]) == (runtime.plan, strategy, runtime.changes)
    parts = nodes(join["tree"])
    stems = {part["stream"]: part["figures"] for part in parts if part["kind"] == "stem"}
    assert stems.keys() == counts["states"].keys()
    for name, figures in stems.items():
        for figure in ("rows", "arrivals", "expired", "late", "bytes", "marks"):
            assert figures[figure] == counts["states"][name][figure]
    stored = [part["stair"] for part in parts if part["kind"] == "join" and part["stair"]]
    newest = {frozenset(stair["streams"]): stair["entries"] for stair in counts["stairs"]}
    assert sum(stair["entries"] for stair in stored) == sum(
        newest[frozenset(part["streams"])] for part in parts if part["kind"] == "join" and part["stair"]
    )
    shares = [state["time"] for state in (*stems.values(), *stored) if state["time"] is not None]
    # The old plan of parallel track ended in the last push; the tables of its successor are new.
    assert sum(shares) == pytest.approx(1) if strategy != "parallel-track" else not shares
    hops = [hop for route in join["routes"] for hop in route["hops"]]
    assert sum(hop["probes"] for hop in hops) <= counts["probes"]
    drawing, text, dot = (runtime.explain(kind) for kind in ("svg", "text", "dot"))
    assert text == runtime.explain()
    for name in CHAIN:
        assert f"SteM {name} " in text
        assert name in shown_text(drawing)
        assert quoted(name) in dot
    assert shown_text(drawing).count("stored by") == len(stored) == dot.count("stored by")
    assert "<svg" in runtime._repr_html_()


def test_the_same_state_gives_the_same_bytes() -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), A, policy="fixed", store=["R S"])
    push(runtime, 1, 60)
    for kind in ("json", "dot", "svg"):
        assert runtime.explain(kind) == runtime.explain(kind)  # type: ignore[arg-type]


def test_an_unknown_format_is_refused() -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)))
    with pytest.raises(eddy.InputError, match="format is one of 'text', 'json', 'dot', 'svg', not 'png'"):
        runtime.explain("png")  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12) | st.just(MEAN), min_size=2, max_size=5, unique=True))
@example(["0", "\0"])
def test_names_never_become_markup(names: list[str]) -> None:
    schema = pa.schema([("k", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(3)) for name in names]

    def column(name: str) -> str:
        return '"' + name.replace('"', '""') + '".k'

    try:
        query = eddy.Query(streams, [f"{column(names[0])} = {column(name)}" for name in names[1:]])
    except eddy.QueryError:
        return  # a name that predicates cannot spell
    runtime = eddy.Runtime(query, policy="fixed")
    tags = {element.tag for element in elements(runtime.explain("svg"))}
    assert tags <= {SVG + name for name in ("svg", "title", "rect", "g", "line", "text", "circle", "path")}
    assert [json.loads(runtime.explain("json"))["joins"][0]["streams"]] == [names]
    for html in (runtime._repr_html_(), query._repr_html_()):
        assert "<script" not in html
    # Every quote in a string of DOT is escaped, so that quotes come in pairs.
    assert runtime.explain("dot").replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0


def test_control_characters_do_not_reach_a_page_or_a_terminal() -> None:
    assert escaped("a\x00\x1b\ud800\u202eb<") == "a����b&lt;"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_it() -> None:
    text = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), store=["R S"]).explain("dot")
    subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


def test_a_drawing_of_many_streams() -> None:
    names = [f"S{i}" for i in range(128)]
    streams = [eddy.Stream(name, pa.schema([("k", pa.int64())]), window=eddy.Rows(1)) for name in names]
    runtime = eddy.Runtime(
        eddy.Query(streams, [" AND ".join(f"S0.k = {name}.k" for name in names[1:])]), policy="fixed"
    )
    drawing = elements(runtime.explain("svg"))
    boxes = [element for element in drawing if element.tag == f"{SVG}rect" and element.get("stroke")]
    assert len(boxes) == 128 + 128 + 127
    assert {element.text for element in drawing} >= set(names)


def test_boxes_of_a_plan_do_not_overlap() -> None:
    columns = dict.fromkeys("PQRSTUVW", "k")
    for plan in (
        "P Q R S T U V W",
        "((P Q) (R S)) ((T U) (V W))",
        "P (Q (R (S (T (U (V W))))))",
        "(P (Q R)) ((S T) U) V W",
    ):
        runtime = eddy.Runtime(make_query(columns, eddy.Rows(9)), plan, policy="fixed")
        (join,) = runtime._description().joins
        boxes = [
            [int(element.get(side, 0)) for side in ("x", "y", "width", "height")]
            for element in elements(plan_svg(join))
            if element.tag == f"{SVG}rect" and element.get("stroke")
        ]
        assert len(boxes) == 15
        for i, (x, y, width, height) in enumerate(boxes):
            for a, b, wide, high in boxes[:i]:
                assert x + width <= a or a + wide <= x or y + height <= b or b + high <= y


@pytest.mark.parametrize("n", [4, 5, 6])
def test_labels_of_a_join_graph_hide_nothing(n: int) -> None:
    """Lines between opposite streams meet in one point."""
    names = [f"s{i}" for i in range(n)]
    pairs = list(combinations(names, 2))
    schema = pa.schema([(a + b, pa.int64()) for a, b in pairs])
    query = eddy.Query([eddy.Stream(name, schema) for name in names], [f"{a}.{a}{b} = {b}.{a}{b}" for a, b in pairs])
    circles = re.findall(r'<circle cx="(\d+)" cy="(\d+)" r="10"', query._repr_html_())
    assert len(circles) == len(pairs)
    places = [(int(x), int(y)) for x, y in circles]
    assert min(dist(place, other) for place, other in combinations(places, 2)) >= 20


def test_branches_have_a_plan_for_each_join() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    r, s = (eddy.Stream(name, schema, window=eddy.Range(5), time="at") for name in "RS")
    query = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "anti")])
    runtime = eddy.Runtime(query)
    runtime.push({"R": [{"k": 1, "at": 1}], "S": [{"k": 1, "at": 2}]})
    description = json.loads(runtime.explain("json"))
    assert [join["title"] for join in description["joins"]] == ["join of R S"]
    assert (description["arrivals"], description["watermark"]) == (2, 1)
    assert runtime.explain().startswith("Query(R [RANGE 5] anti (S [RANGE 5])")
    assert "R, S\n  plan R S, strategy eddy" in repr(runtime)
    assert "join of R S" in runtime._repr_html_()
    assert "join of R S" in query._repr_html_()


def test_an_engine_shows_its_queries_and_joins() -> None:
    schema = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("at", pa.int64())])
    engine = eddy.Engine([eddy.Stream(name, schema, time="at") for name in "RST"])

    def query(names: str, *on: str) -> eddy.Query:
        return eddy.Query([eddy.Stream(name, schema, window=eddy.Range(9), time="at") for name in names], on)

    pairs = engine.start(MEAN, query("RS", "R.k = S.k"))
    engine.start("triples", query("RST", "R.k = S.k", "S.j = T.j"))
    assert "plan (R S) T" in engine.explain()  # before any row
    engine.push({name: [{"k": 1, "j": 2, "at": 3}] for name in "RST"})
    description = json.loads(engine.explain("json"))
    assert [(running["name"], running["results"]) for running in description["queries"]] == [(MEAN, 1), ("triples", 1)]
    assert [join["plan"] for join in description["joins"]] == ["R S", "(R S) T"]
    assert [element["event"] for element in description["elements"]] == ["fresh start", "fresh start"]
    rows = [
        node["figures"]["rows"]
        for join in description["joins"]
        for node in nodes(join["tree"])
        if node["kind"] == "stem"
    ]
    assert rows == [1] * 5
    assert (description["arrivals"], description["bytes"], description["watermark"]) == (3, engine.nbytes, 3)
    assert "triples" in repr(engine)
    assert "1 results" in repr(pairs)
    for html in (engine._repr_html_(), pairs._repr_html_()):
        assert "<script" not in html
        assert "<svg" in html


def test_the_timeline_has_every_change() -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), A, policy="fixed", count_only=True)
    assert "no change of plan so far" in runtime._repr_html_()
    for seed, plan in enumerate([B, A, B]):
        push(runtime, seed, 20)
        runtime.transition(plan)
    html = runtime._repr_html_()
    for row in runtime.history().to_pylist():
        assert f"at {row['position']:,}: → {row['new']}: asked for" in html


def test_repr_says_when_a_runtime_has_gone() -> None:
    runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), A, policy="fixed")
    push(runtime, 1, 10)
    assert repr(runtime).splitlines()[1:] == [
        f"  plan {A}, strategy eddy, policy fixed, 0 changes",
        f"  40 arrivals, {runtime.metrics()['results']} results, 0 late, state {runtime.nbytes / 1024:.1f} KiB",
    ]
    runtime.dismantle()
    assert repr(runtime) == "Runtime of R, S, T, U, which cannot be used any more"


def test_the_drawings_in_the_guide_are_those_of_these_sources() -> None:
    """`python -m tests.drawings` writes them anew."""
    for name, text in drawings().items():
        assert (FOLDER / name).read_text() == text


def test_a_query_says_what_it_is_in_a_line() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("at", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Range(9), time="at") for name in "RS"]
    band = "S.x between R.x - 1 and R.x + 1"
    assert repr(eddy.Query(streams, ["R.k = S.k", band])) == f"Query(R [RANGE 9], S [RANGE 9]; R.k = S.k AND {band})"
    grouped = eddy.Query(
        streams,
        ["R.k = S.k"],
        group_by={"key": "R.k"},
        aggregates={"n": eddy.agg.count(), "most": eddy.agg.max("S.x")},
        group_window=eddy.Hopping(60, 20),
    )
    assert repr(grouped).endswith("; R.k = S.k; group by key; n = count(), most = max(S.x); Hopping(60, 20))")
    branched = eddy.Query(streams[:1], branches=[eddy.Branch(streams[1:], ["R.k = S.k", band], "left")])
    assert repr(branched) == f"Query(R [RANGE 9] left (S [RANGE 9]); R.k = S.k AND {band})"


def test_a_notebook_shows_the_watermark_as_a_time() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s"))])
    streams = [eddy.Stream(name, schema, window=eddy.Range(timedelta(seconds=9)), time="at") for name in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    runtime.push({name: [{"k": 1, "at": 86_400}] for name in "RS"})
    assert "1970-01-02 00:00:00" in runtime._repr_html_()
