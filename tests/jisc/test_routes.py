"""Routes: the order of probes, the class of each probe, and leaf hops. Examples first, then rules for random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jisc.plan.one_key import one_key_orders
from jisc.plan.rankings import Module, _rank, compile_rankings
from jisc.plan.routes import Hop, compile_routes, hop_row, hops_of, probe_order, probe_orders, route
from jisc.plan.tree import Tree, check_connected, default_plan, parse
from stairs.descriptors import (
    H_CLASS,
    H_LEAF0,
    H_LEAF1,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
)
from stairs.errors import PlanError
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.routes import OpRow
from tests.jisc.graphs import chain, classes_of, clique, cycle, graph_of, same_key, star
from tests.jisc.test_plan import trees


def order_text(graph: JoinGraph, plan: str, stream: str) -> str:
    tree = parse(plan, graph.names)
    return "".join(graph.names[j] for j in probe_order(tree, graph.names.index(stream), graph))


def hop_texts(graph: JoinGraph, plan: str, stream: str) -> list[str]:
    """Return the hops of a route as text: `S by 0`, checks `?`, bindings `!`; leaves in brackets with @after."""
    texts = []
    for hop in route(parse(plan, graph.names), graph.names.index(stream), graph):
        text = f"{graph.names[hop.stream]} by {hop.by}"
        text += "".join(f" ?{c}" for c in hop.checks) + "".join(f" !{c}" for c in hop.binds)
        texts.append(f"[{text} @{hop.after}]" if hop.leaf else text)
    return texts


@given(st.integers(2, 8).flatmap(trees))
def test_joins_on_one_key_have_the_tables_that_rows_make(tree: Tree) -> None:
    graph = same_key(len(list(tree.leaves())))
    orders = probe_orders(tree, graph)
    assert one_key_orders(tree).tolist() == orders
    hops = [hop_row(hop, graph, [], []) for i, order in enumerate(orders) for hop in hops_of(order, i, graph)]
    tables = compile_routes(tree, graph)
    assert tables.hops.tolist() == [list(hop) for hop in hops]
    others = graph.n_streams - 1
    ends = [(i * others, i * others + others) for i in range(graph.n_streams)]
    assert tables.span.tolist() == [[first, first, end, end] for first, end in ends]
    ops: list[OpRow] = []
    ranked = _rank(graph, [[Module(1 << j) for j in order] for order in orders], ops, [])
    rankings = compile_rankings(tree, graph)
    assert rankings.span.tolist() == [list(span) for span in ranked.span]
    assert [row[H_TARGET] for row in rankings.hops.tolist()] == [row.target for row in ranked.hops]
    assert (rankings.ready == ranked.ready).all()
    # Both number the keys by stream, but in the order in which streams occur.
    for row, hop in zip(rankings.hops.tolist(), ranked.hops, strict=True):
        assert [rankings.ops[k].tolist() for k in range(row[H_OPS0], row[H_OPS1])] == [
            list(ops[k]) for k in range(hop.ops0, hop.ops1)
        ]
        assert [*row[:H_OPS0], *row[H_OPS1 + 1 :]] == [*hop[:H_OPS0], *hop[H_OPS1 + 1 :]]


def test_a_ranking_of_many_streams_takes_two_words() -> None:
    graph = JoinGraph(tuple(f"s{i}" for i in range(100)), (Window(WindowKind.ROWS, 5),) * 100, ((0,),) * 100, (1,))
    tree = default_plan(graph)
    ranked = _rank(graph, [[Module(1 << j) for j in order] for order in probe_orders(tree, graph)], [], [])
    assert (compile_rankings(tree, graph).ready == ranked.ready).all()


@pytest.mark.parametrize(
    ("graph", "plan", "expected"),
    [
        (chain(4), "((R S) T) U", {"R": "STU", "S": "RTU", "T": "SRU", "U": "TSR"}),
        (chain(4), "(R S) (T U)", {"R": "STU", "S": "RTU", "T": "USR", "U": "TSR"}),
        (star(4), "((R S) T) U", {"R": "STU", "S": "RTU", "T": "RSU", "U": "RST"}),
        (star(4), "((R U) T) S", {"R": "UTS", "S": "RUT", "T": "RUS", "U": "RTS"}),
        (cycle(4), "(R S) (T U)", {"R": "STU", "S": "RTU", "T": "URS", "U": "TRS"}),
        (clique(4), "((R S) T) U", {"R": "STU", "S": "RTU", "T": "RSU", "U": "RST"}),
        (same_key(4), "(R S) (T U)", {"R": "STU", "S": "RTU", "T": "URS", "U": "TRS"}),
    ],
)
def test_probe_orders(graph: JoinGraph, plan: str, expected: dict[str, str]) -> None:
    assert {name: order_text(graph, plan, name) for name in graph.names} == expected


def test_a_sibling_is_probed_as_far_as_predicates_connect() -> None:
    # U joins S only through T, so the order R, S, T of the sibling becomes T, S, R.
    assert order_text(chain(4), "((R S) T) U", "U") == "TSR"


@pytest.mark.parametrize(
    ("graph", "plan", "expected"),
    [
        (
            # A chain: each hop binds the class of the next one; the last one binds nothing.
            chain(4),
            "((R S) T) U",
            {
                "R": ["S by 0 !1", "T by 1 !2", "[U by 2 @2]"],
                "S": ["T by 1 !2", "[R by 0 @0]", "[U by 2 @1]"],
                "T": ["S by 1 !0", "[U by 2 @0]", "[R by 0 @1]"],
                "U": ["T by 2 !1", "S by 1 !0", "[R by 0 @2]"],
            },
        ),
        (
            # A star: for an arrival of the centre the leaf hops depend on it alone; for others, on the centre.
            star(4),
            "((R S) T) U",
            {
                "R": ["[S by 0 @0]", "[T by 1 @0]", "[U by 2 @0]"],
                "S": ["R by 0 !1 !2", "[T by 1 @1]", "[U by 2 @1]"],
                "T": ["R by 1 !0 !2", "[S by 0 @1]", "[U by 2 @1]"],
                "U": ["R by 2 !0 !1", "[S by 0 @1]", "[T by 1 @1]"],
            },
        ),
        (
            # A cycle: the hop that closes it checks a class that is bound already.
            cycle(3),
            "(R S) T",
            {
                "R": ["S by 0 !1", "T by 2 ?1"],
                "S": ["R by 0 !2", "T by 1 ?2"],
                "T": ["R by 2 !0", "S by 1 ?0"],
            },
        ),
        (
            # A clique: each further stream is checked against all before it.
            clique(4),
            "((R S) T) U",
            {
                "R": ["S by 0 !3 !4", "T by 1 ?3 !5", "U by 2 ?4 ?5"],
                "S": ["R by 0 !1 !2", "T by 3 ?1 !5", "U by 4 ?2 ?5"],
                "T": ["R by 1 !0 !2", "S by 3 ?0 !4", "U by 5 ?2 ?4"],
                "U": ["R by 2 !0 !1", "S by 4 ?0 !3", "T by 5 ?1 ?3"],
            },
        ),
        (
            # One key for all streams: every hop is a leaf.
            same_key(4),
            "(R S) (T U)",
            {"R": ["[S by 0 @0]", "[T by 0 @0]", "[U by 0 @0]"], "T": ["[U by 0 @0]", "[R by 0 @0]", "[S by 0 @0]"]},
        ),
    ],
)
def test_hops(graph: JoinGraph, plan: str, expected: dict[str, list[str]]) -> None:
    assert {name: hop_texts(graph, plan, name) for name in expected} == expected


def test_several_predicates_between_two_streams_probe_by_the_first_and_check_the_others() -> None:
    graph = classes_of([[0, 1], [0, 1, 2], [1, 2]])
    assert hop_texts(graph, "(R S) T", "R") == ["S by 0 ?1 !2", "T by 1 ?2"]
    assert hop_texts(graph, "(R S) T", "T") == ["R by 1 !0", "S by 1 ?0 ?2"]


@st.composite
def graphs(draw: st.DrawFn) -> JoinGraph:
    """Draw a connected graph: classes of two or more streams."""
    n = draw(st.integers(2, 7))
    edges = [(draw(st.integers(0, k - 1)), k) for k in range(1, n)]
    edges += draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])))
    if draw(st.booleans()):
        return graph_of(n, edges)
    # Some edges share a class.
    edge_classes = [draw(st.integers(0, len(edges) - 1)) for _ in edges]
    used = sorted(set(edge_classes))
    members = [{i for k, edge in enumerate(edges) if edge_classes[k] == c for i in edge} for c in used]
    return classes_of([[c for c, streams in enumerate(members) if i in streams] for i in range(n)])


@given(graphs(), st.data())
def test_what_every_route_keeps_to(graph: JoinGraph, data: st.DataObject) -> None:
    tree = data.draw(trees(graph.n_streams))
    try:
        check_connected(tree, graph)
    except PlanError:
        return
    for i in range(graph.n_streams):
        order = probe_order(tree, i, graph)
        assert sorted([i, *order]) == list(range(graph.n_streams))
        hops = route(tree, i, graph)
        assert sorted(hop.stream for hop in hops) == sorted(order)
        trunk = [hop for hop in hops if not hop.leaf]
        leaves = [hop for hop in hops if hop.leaf]
        assert hops == trunk + leaves
        assert [hop.stream for hop in trunk] == [j for j in order if j in {hop.stream for hop in trunk}]
        bound = set(graph.attributes[i])
        for hop in trunk:
            attributes = set(graph.attributes[hop.stream])
            # Each class of the stream is probed by, checked or bound; only bound classes are probed by or checked.
            assert {hop.by, *hop.checks, *hop.binds} == attributes
            assert attributes & bound == {hop.by, *hop.checks}
            bound |= attributes
        for hop in leaves:
            assert set(graph.attributes[hop.stream]) == {hop.by}
        after = [set(graph.attributes[i])]
        for hop in trunk:
            after.append(after[-1] | set(hop.binds))
        for hop in hops:
            # `after` is the first moment at which the class is bound.
            assert hop.by in after[hop.after]
            assert hop.after == 0 or hop.by not in after[hop.after - 1]
        assert [hop.after for hop in leaves] == sorted(hop.after for hop in leaves)


@given(graphs(), st.data())
def test_tables_say_what_the_hops_say(graph: JoinGraph, data: st.DataObject) -> None:
    tree = data.draw(trees(graph.n_streams))
    try:
        check_connected(tree, graph)
    except PlanError:
        return
    routes = compile_routes(tree, graph)
    at = 0
    for i in range(graph.n_streams):
        hops = route(tree, i, graph)
        trunk = sum(not hop.leaf for hop in hops)
        root = trunk + sum(hop.leaf and hop.after == 0 for hop in hops)
        span = routes.span[i, [R_TRUNK, R_LEAF, R_ROOT, R_END]].tolist()
        assert span == [at, at + trunk, at + root, at + len(hops)]
        enabled = list(range(span[1], span[2]))
        for n, hop in enumerate(hops):
            row = routes.hops[at + n]
            assert (row[H_TARGET], row[H_CLASS]) == (hop.stream, hop.by)
            assert graph.attributes[hop.stream][row[H_OFFSET] // 2] == hop.by
            ops = routes.ops[row[H_OPS0] : row[H_OPS1]]
            assert tuple(ops[ops[:, O_CHECK] == 1, O_CLASS]) == hop.checks
            assert tuple(ops[ops[:, O_CHECK] == 0, O_CLASS]) == hop.binds
            if not hop.leaf:
                enabled += range(row[H_LEAF0], row[H_LEAF1])
                ready = [at + k for k, other in enumerate(hops) if other.leaf and other.after == n + 1]
                assert list(range(row[H_LEAF0], row[H_LEAF1])) == ready
        # Each leaf hop is looked up once: after the arrival or a trunk hop has bound its class.
        assert enabled == list(range(span[1], span[3]))
        at = span[3]
    assert at == len(routes.hops)


def test_a_hop_is_a_leaf_when_it_neither_checks_nor_binds() -> None:
    assert Hop(1, 0, (), (), 0).leaf
    assert not Hop(1, 0, (2,), (), 0).leaf
    assert not Hop(1, 0, (), (2,), 0).leaf
