"""Tables of plans with stored states, as text: the probes of each tuple, and where combinations are stored."""

from __future__ import annotations

import numpy as np
import pytest

from jisc.plan.rankings import compile_rankings, compile_stair_rankings, duals
from jisc.plan.states import Masks, StateId, states_of
from jisc.plan.stored_routes import StoredPlan, compile_stored
from jisc.plan.tree import parse
from stairs.descriptors import (
    H_CLASS,
    H_FIELDS,
    H_OPS0,
    H_OPS1,
    H_STATE,
    H_STORE,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    R_END,
    R_TRUNK,
)
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.memory.arena import Routes

NAMES = ("R", "S", "T", "U")
FOREVER = Window(WindowKind.UNBOUNDED)
ONE_CLASS = JoinGraph(NAMES, (FOREVER,) * 4, ((0,),) * 4, (1,))
CHAIN = JoinGraph(NAMES, (FOREVER,) * 4, ((0,), (0, 1), (1, 2), (2,)), (1,) * 3)
CYCLE = JoinGraph(NAMES, (FOREVER,) * 4, ((0, 3), (0, 1), (1, 2), (2, 3)), (1,) * 4)


def stored(graph: JoinGraph, *plans: str, leave_out: tuple[int, ...] = ()) -> tuple[Routes, dict[str, list[str]]]:
    """Compile plans with all states stored except some; return the tables, and the hops of each route as text.

    "RS/0>RST": probe the STAIR of R and S by class 0, and store the combinations in that of R, S and T.
    """
    masks = Masks(graph)
    made, names = [], dict[int, str]()
    for text in plans:
        tree = parse(text, graph.names)
        rows = {}
        for state in states_of(tree, masks):
            if len(names) not in leave_out:
                rows[state] = len(names)
            names[len(names)] = "".join(graph.names[j] for j in state.streams)
        made.append(StoredPlan(tree, rows))
    routes, promotions = compile_stored(made, masks)

    def hops(row: int) -> list[str]:
        texts = []
        for h in range(int(routes.span[row, R_TRUNK]), int(routes.span[row, R_END])):
            hop = routes.hops[h]
            probed = names[int(hop[H_STATE])] if hop[H_STATE] >= 0 else graph.names[int(hop[H_TARGET])]
            ops = routes.ops[hop[H_OPS0] : hop[H_OPS1]]
            also = "".join(("=" if op[O_CHECK] else "+") + str(op[O_CLASS]) for op in ops)
            into = f">{names[int(hop[H_STORE])]}" if hop[H_STORE] >= 0 else ""
            texts.append(f"{probed}/{hop[H_CLASS]}{also}{into}")
        return texts

    m = graph.n_streams
    read = {f"{t} {name}": hops(t * m + i) for t in range(len(plans)) for i, name in enumerate(graph.names)}
    for state, (over, base) in promotions.items():
        read[f"promote {names[state]}"] = hops(over)
        read[f"from SteMs {names[state]}"] = hops(base)
    return routes, read


def test_a_left_deep_plan_on_one_class() -> None:
    _, read = stored(ONE_CLASS, "((R S) T) U")
    assert read == {
        "0 R": ["S/0>RS", "T/0>RST", "U/0"],
        "0 S": ["R/0>RS", "T/0>RST", "U/0"],
        "0 T": ["RS/0>RST", "U/0"],
        "0 U": ["RST/0"],
        "promote RS": ["R/0", "S/0"],
        "from SteMs RS": ["R/0", "S/0"],
        "promote RST": ["RS/0", "T/0"],
        "from SteMs RST": ["R/0", "S/0", "T/0"],
    }


def test_a_chain_binds_what_is_needed_ahead_and_begins_a_promotion_where_the_key_is() -> None:
    _, read = stored(CHAIN, "((R S) T) U")
    assert read["0 R"] == ["S/0+1>RS", "T/1+2>RST", "U/2"]
    assert read["0 U"] == ["RST/2"]
    assert read["0 T"] == ["RS/1>RST", "U/2"]
    # RST is probed by the class of T and U: T comes first, then RS by the key that T shares with S.
    assert read["promote RST"] == ["T/2+1", "RS/1"]
    assert read["from SteMs RST"] == ["T/2+1", "S/1+0", "R/0"]


def test_a_bushy_plan_and_a_cycle() -> None:
    _, read = stored(CYCLE, "(R S) (T U)")
    assert read["0 R"] == ["S/0+1>RS", "TU/1=3"]
    assert read["0 U"] == ["T/2+1>TU", "RS/1=3"]


def test_states_left_out_are_expanded() -> None:
    _, read = stored(ONE_CLASS, "((R S) T) U", leave_out=(0,))
    assert read["0 T"] == ["R/0", "S/0>RST", "U/0"]
    assert read["0 R"] == ["S/0", "T/0>RST", "U/0"]
    assert read["promote RST"] == ["R/0", "S/0", "T/0"]
    _, read = stored(ONE_CLASS, "((R S) T) U", leave_out=(1,))
    assert read["0 U"] == ["RS/0", "T/0"]


def test_plans_side_by_side_have_states_of_their_own() -> None:
    routes, read = stored(ONE_CLASS, "((R S) T) U", "((U T) S) R")
    assert read["0 U"] == ["RST/0"]
    assert read["1 U"] == ["T/0>TU", "S/0>STU", "R/0"]
    assert routes.hops.shape[1] == H_FIELDS
    assert set(routes.hops[:, H_STORE].tolist()) == {-1, 0, 1, 2, 3}


@pytest.mark.parametrize("plan", ["((R S) T) U", "R ((S T) U)"])
def test_an_eddy_ranks_as_the_plan_probes_and_is_ready_by_class(plan: str) -> None:
    routes = compile_rankings(parse(plan, NAMES), CHAIN)
    n = CHAIN.n_classes
    for i in range(4):
        first, end = int(routes.span[i, R_TRUNK]), int(routes.span[i, R_END])
        ranking = routes.hops[first:end, H_TARGET].tolist()
        assert sorted([*ranking, i]) == [0, 1, 2, 3]
        for c in range(n):
            bits = {k for k in range(3) if routes.ready[i * n + c, 0] >> k & 1}
            assert bits == {k for k, j in enumerate(ranking) if c in CHAIN.attributes[j]}
            assert routes.ready[i * n + c, 4] == (c in CHAIN.attributes[i])
        at_once = np.bitwise_or.reduce([routes.ready[i * n + c, 0] for c in CHAIN.attributes[i]])
        assert routes.ready[4 * n + i, 0] == at_once


def ranked(graph: JoinGraph, text: str) -> dict[str, list[str]]:
    """Return the ranking of each stream over STAIRs as text, as `stored` does; "T*" scans T."""
    tree, masks = parse(text, graph.names), Masks(graph)
    rows = {state: row for row, state in enumerate(states_of(tree, masks))}
    names = {row: "".join(graph.names[j] for j in state.streams) for state, row in rows.items()}
    rankings = {}
    for i, ranking in enumerate(duals(StoredPlan(tree, rows), masks)):
        read = []
        for dual in ranking:
            probed = names.get(dual.state) or graph.names[dual.streams.bit_length() - 1]
            index = f"/{dual.by}" if dual.state >= 0 else ""
            read.append(probed + index + (f">{names[dual.store]}" if dual.store >= 0 else ""))
        rankings[graph.names[i]] = read
    return rankings


def test_an_eddy_over_stairs_ranks_the_duals_of_a_plan() -> None:
    assert ranked(CHAIN, "((R S) T) U") == {
        "R": ["S>RS", "T>RST", "U"],
        "S": ["R>RS", "T>RST", "U"],
        "T": ["RS/1>RST", "U"],
        "U": ["RST/2"],
    }
    assert ranked(CYCLE, "(R S) (T U)")["R"] == ["S>RS", "TU/1"]


def test_an_eddy_over_stairs_is_ready_for_one_by_its_index_and_gets_all_of_its_keys() -> None:
    """S T, probed by R, is indexed on class 0; its matches bind class 2, which U shares. Class 1 is within it."""
    tree, masks = parse("R ((S T) U)", NAMES), Masks(CHAIN)
    rows = {state: row for row, state in enumerate(states_of(tree, masks))}
    routes, promotions = compile_stair_rankings([StoredPlan(tree, rows)], masks)
    n = CHAIN.n_classes
    (u,) = routes.hops[routes.span[3, R_TRUNK] : routes.span[3, R_TRUNK] + 1]
    assert routes.ops[u[H_OPS0] : u[H_OPS1], O_CLASS].tolist() == [0, 2]
    assert [int(routes.ready[3 * n + c, 0]) for c in range(n)] == [2, 0, 1]
    assert [int(routes.ready[3 * n + c, 2]) for c in range(n)] == [3, 0, 1]
    assert sorted(promotions) == [0, 1]
    assert len(routes.span) == 4 + 4


def test_an_eddy_with_more_streams_than_bits_in_a_word() -> None:
    names = tuple(f"S{i}" for i in range(100))
    graph = JoinGraph(names, (FOREVER,) * 100, ((0,),) * 100, (1,))
    routes = compile_rankings(parse(" ".join(names), names), graph)
    words = routes.ready[0, :2].tolist()
    assert [bin(word & (1 << 64) - 1).count("1") for word in words] == [64, 35]


def test_a_state_is_known_by_streams_and_class() -> None:
    assert StateId(0b1011, 2).streams == [0, 1, 3]
    assert StateId(0b1011, 2).text(ONE_CLASS) == "R S U [3]"
