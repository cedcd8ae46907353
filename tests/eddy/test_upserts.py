"""output="upsert": applied by key in order, the rows of pushes are the answer; they are those of a changelog but -U."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from jisc.strategies import STRATEGIES

ROW = pa.schema([("i", pa.int64()), ("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
PLANS = ("(A B) C", "A (B C)")
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 1), st.sampled_from("xy"), st.integers(0, 2), st.sampled_from(["c", "c", "d"])
    ),
    min_size=1,
    max_size=20,
)


def table(name: str) -> eddy.Table:
    return eddy.Table(name, ROW, key=["i", "p"], ops="column")


def joined() -> eddy.Query:
    return eddy.Query([table(name) for name in "ABC"], ["A.k = B.i", "B.k = C.i"], where=pa.compute.field("C.v") < 2)


def looked_up() -> eddy.Query:
    """Return a query whose key is that of A: it determines the others."""
    on = ["A.k = B.i", "A.p = B.p", "B.k = C.i", "B.p = C.p"]
    return eddy.Query([table(name) for name in "ABC"], on, where=pa.compute.field("C.v") < 2)


def grouped() -> eddy.Query:
    counts = {"n": eddy.agg.count(), "s": eddy.agg.sum("C.v")}
    return eddy.Query(
        [table(name) for name in "ABC"],
        ["A.k = B.i", "B.k = C.i"],
        group_by=["A.p", "B.k"],
        aggregates=counts,
        having=pa.compute.field("n") > 1,
    )


KEYS = {
    "joined": (joined, tuple(f"{name}.{column}" for name in "ABC" for column in "ip")),
    "looked up": (looked_up, ("A.i", "A.p")),
    "grouped": (grouped, ("A.p", "B.k")),
}


@pytest.mark.campaign(1)
@pytest.mark.parametrize("kind", KEYS)
@given(st.lists(st.tuples(CHANGES, st.booleans(), st.booleans()), max_size=6), st.sampled_from(sorted(STRATEGIES)))
def test_rows_by_key_are_the_answer(
    kind: str, pushes: list[tuple[list[tuple[int, int, str, int, str]], bool, bool]], strategy: Any
) -> None:
    make, key = KEYS[kind]
    query = make()
    outputs: tuple[Any, Any] = ("changelog", "upsert")
    runtimes = [eddy.Runtime(query, strategy=strategy, output=output) for output in outputs]
    by_key = dict[tuple[Any, ...], dict[str, Any]]()
    rows = list[dict[str, Any]]()
    for number, (changes, atomic, restart) in enumerate(pushes):
        pushed: dict[str, list[dict[str, Any]]] = {}
        for t, i, p, k, op in changes:
            pushed.setdefault("ABC"[t], []).append({"i": i, "p": p, "k": k, "v": (i + k + number) % 3, "op": op})
        results = [runtime.push(pushed, [t for t, *_ in changes], atomic=atomic).to_pylist() for runtime in runtimes]
        for row in results[0]:
            op = row.pop("op")
            if op in ("+I", "+U"):
                rows.append(row)
            else:
                rows.remove(row)
        for row in results[1]:
            op, row_key = row.pop("op"), tuple(row[column] for column in key)
            # An upsert says whether there was a row.
            assert (row_key in by_key) is (op != "+I")
            if op == "-D":
                # Of several rows of a key that others determine, the last one is left.
                assert by_key.pop(row_key) == row or kind == "looked up"
            else:
                by_key[row_key] = row
        assert sorted(map(str, rows)) == sorted(map(str, by_key.values()))
        if STRATEGIES[strategy].changes:
            for runtime in runtimes:
                runtime.transition(PLANS[number % 2])
        if restart:
            runtimes = [eddy.Runtime.restore(runtime.snapshot(), query) for runtime in runtimes]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (eddy.Query([table("A"), eddy.Stream("S", ROW)], ["A.k = S.k"]), {}, "because stream S is no table"),
        (eddy.Query([table("A"), table("B")], ["A.k = B.k"], select=["A.i", "A.p", "B.i"]), {}, r"add 'B\.p'"),
        (joined(), {"ids_only": True}, "ids_only shows no key"),
        (joined(), {"count_only": True}, "count_only shows no key"),
        (
            eddy.Query([table("A")], group_by=["A.k"], aggregates={"n": eddy.agg.count()}, select=["n"]),
            {},
            r"each group column in select: add 'A\.k'",
        ),
        (
            eddy.Query([eddy.Stream("S", ROW)], branches=[eddy.Branch([eddy.Stream("R", ROW)], ["S.k = R.k"], "left")]),
            {},
            "because stream S is no table",
        ),
    ],
)
def test_results_without_a_key_are_refused(query: eddy.Query, options: dict[str, Any], message: str) -> None:
    with pytest.raises(eddy.InputError, match=message):
        eddy.Runtime(query, output="upsert", **options)


def test_an_engine_gives_no_upserts_without_a_key() -> None:
    streams = [eddy.Stream(name, ROW) for name in "RS"]
    output: Any = "upsert"
    with pytest.raises(eddy.InputError, match="output='upsert': results have no key"):
        eddy.Engine(streams).start("q", eddy.Query(streams, ["R.k = S.k"]), output=output)
