"""Rows and groups that fail: each is left out alone, with its reason, whatever it is and wherever it happens.

The expected results come from the same query without the bad rows or groups, in plain Python; `model` says which fail.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import Branch, Engine, Hopping, Predicate, Query, Range, Runtime, Session, Stream, Tumbling, agg
from eddy.filters.adaptive import AdaptiveFilter
from tests.eddy.live_engines import SavedRuntime

ROWS = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.int64()), ("s", pa.string())])
SPAN, M = 5, 1 << 62
R, S = (pc.field(name) for name in ("R.x", "S.x"))
Row = dict[str, Any]


def drawn(seed: int, pushes: int = 6) -> list[dict[str, list[Row]]]:
    """Return pushes of rows in order of event time; some x are 0, some s are no number."""
    rng, pushed_rows, t = np.random.default_rng(seed), [], 0
    for _ in range(pushes):
        push: dict[str, list[Row]] = {"R": [], "S": []}
        for _ in range(12):
            t += int(rng.integers(0, 2))
            row = {
                "k": int(rng.integers(3)),
                "x": int(rng.integers(-1, 3)),
                "t": t,
                "s": str(rng.choice(["7", "8", "a"])),
            }
            push[str(rng.choice(["R", "S"]))].append(row)
        pushed_rows.append(push)
    return pushed_rows


def streams(**more: Any) -> list[Stream]:
    return [Stream(name, ROWS, window=Range(SPAN), time="t", **more) for name in "RS"]


def order(push: dict[str, list[Row]]) -> list[int]:
    tagged = [(row["t"], i, n) for i, name in enumerate("RS") for n, row in enumerate(push[name])]
    return [i for _, i, _ in sorted(tagged)]


def joined(pushes: list[dict[str, list[Row]]]) -> list[tuple[Row, Row]]:
    """Return the pairs of the join, by a nested loop."""
    left, right = ([row for push in pushes for row in push[name]] for name in "RS")
    return [(r, s) for r, s in product(left, right) if r["k"] == s["k"] and abs(r["t"] - s["t"]) <= SPAN]


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ROWS)


def pushed(target: Any, push: dict[str, list[Row]]) -> Any:
    return target.push({name: table(rows) for name, rows in push.items()}, order(push))


def lines(rows: list[Row]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


@dataclass(frozen=True)
class FailureKind:
    """A kind of failure: arguments of the query, and the row of a pair, None if rejected; it raises if it fails."""

    kind: str
    arguments: dict[str, Any]
    of: Callable[[Row, Row], Row | None]
    reason: str


def _text(r: Row, s: Row) -> Row:
    return {"v": int(r["s"])}


KINDS = {
    "select": FailureKind(
        "select", {"select": {"v": R / S}}, lambda r, s: {"v": int(r["x"] / s["x"])}, "divide by zero"
    ),
    "cast": FailureKind(
        "select", {"select": {"v": pc.field("R.s").cast(pa.int64())}}, _text, "Failed to parse string: 'a'"
    ),
    "where": FailureKind(
        "where",
        {"where": R / S >= 0, "select": {"v": "R.x"}},
        lambda r, s: {"v": r["x"]} if int(r["x"] / s["x"]) >= 0 else None,
        "divide by zero",
    ),
    "guarded": FailureKind(
        "where",
        {"where": [R / S >= 0, R != 0, pc.field("R.k") < 2], "select": {"v": "R.x"}},
        lambda r, s: None if r["x"] == 0 or r["k"] >= 2 else {"v": r["x"]} if int(r["x"] / s["x"]) >= 0 else None,
        "divide by zero",
    ),
}


def model(kind: FailureKind, pairs: list[tuple[Row, Row]]) -> tuple[list[Row], int]:
    """Return the rows of pairs, and how many pairs fail."""
    rows, failing = [], 0
    for r, s in pairs:
        try:
            row = kind.of(r, s)
        except (ZeroDivisionError, ValueError):
            failing += 1
            continue
        rows += [] if row is None else [row]
    return rows, failing


def check_failed(failed: pa.Table, kind: FailureKind, count: int) -> None:
    assert failed.schema.names == ["kind", "expression", "reason", "row"]
    assert failed.num_rows == count
    assert set(failed["kind"].to_pylist()) == ({kind.kind} if count else set())
    for failed_row in failed.to_pylist():
        assert failed_row["reason"].startswith(kind.reason)
        row = dict(failed_row["row"])
        if kind.reason == "divide by zero":
            assert row["S.x"] == "0"
            assert row["R.x"] is not None


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("place", ["runtime", "restored", "live", "engine", "warm", "engine restored", "changelog"])
@pytest.mark.parametrize("size", [1, 3])
def test_rows_fail_alone(name: str, place: str, size: int, tmp_path: Path) -> None:
    kind, pushes = KINDS[name], drawn(size)
    if size > 1:
        # Fewer, larger pushes.
        pushes = [
            {n: [row for small_push in pushes[at : at + 3] for row in small_push[n]] for n in "RS"} for at in (0, 3)
        ]
    query = Query(streams(), ["R.k = S.k"], **kind.arguments)
    expected, failing = model(kind, joined(pushes))
    assert failing > 3
    results: list[Row] = []
    if "engine" in place or place == "warm":
        engine = Engine([Stream(n, ROWS, time="t") for n in "RS"])
        engine.start("q", query)
        for push in pushes:
            results += pushed(engine, push)["q"].to_pylist()
            engine.check()
            if place == "engine restored":
                engine = Engine.restore(engine.snapshot(), [Stream(n, ROWS, time="t") for n in "RS"], {"q": query})
        assert engine["q"].failed_count == engine.metrics()["queries"]["q"]["failed"] == failing
        check_failed(engine["q"].failed(), kind, failing)
        assert engine["q"].failed().num_rows == 0
        assert engine["q"].last_failed() is not None
    else:
        runtime = Runtime(query, output="changelog" if place == "changelog" else "append")
        saved = SavedRuntime(tmp_path / "engine", runtime) if place == "live" else None
        for push in pushes:
            results += pushed(runtime, push).to_pylist()
            runtime.check()
            if place == "restored":
                runtime = Runtime.restore(runtime.snapshot(), query)
            elif saved is not None:
                runtime = saved.again(query)
        runtime.finish()
        assert runtime.failed_count == runtime.metrics()["failed"] == failing
        check_failed(runtime.failed(), kind, failing)
        assert runtime.failed().num_rows == 0
    if place == "changelog":
        came = lines([{n: v for n, v in row.items() if n != "op"} for row in results if row["op"] == "+I"])
        assert came == lines(expected)
        gone = lines([{n: v for n, v in row.items() if n != "op"} for row in results if row["op"] == "-D"])
        assert not gone - came
        return
    assert lines(results) == lines(expected)


# Left joins


@pytest.mark.parametrize("restores", [False, True])
def test_rows_that_wait_fail_alone(restores: bool) -> None:
    query = Query(
        streams()[:1],
        branches=[Branch(streams()[1:], ["R.k = S.k"], "left")],
        select={"v": pc.scalar(6) / R, "k": "R.k", "other": "S.x"},
    )
    pushes = drawn(5)
    pairs = joined(pushes)
    rows = [(r, s["x"]) for r, s in pairs]
    rows += [(r, None) for push in pushes for r in push["R"] if not any(r is matched for matched, _ in pairs)]
    runtime, results = Runtime(query), []
    for push in pushes:
        results += pushed(runtime, push).to_pylist()
        if restores:
            runtime = Runtime.restore(runtime.snapshot(), query)
    results += runtime.finish().to_pylist()
    good = [{"v": int(6 / r["x"]), "k": r["k"], "other": x} for r, x in rows if r["x"]]
    assert lines(results) == lines(good)
    assert runtime.failed_count == runtime.metrics()["failed"] == len(rows) - len(good) > 3
    assert {dict(row)["R.x"] for row in runtime.failed()["row"].to_pylist()} == {"0"}


def test_a_match_of_a_branch_that_fails_is_no_partner() -> None:
    where = pc.field("R.x") / pc.field("S.x") > -9
    query = Query(streams()[:1], branches=[Branch(streams()[1:], ["R.k = S.k"], "anti", where=where)], select=["R.t"])
    runtime = Runtime(query)
    rows = [{"k": k, "x": 4, "t": k, "s": "1"} for k in range(3)]
    partners = [{"k": 0, "x": 0, "t": 3, "s": "1"}, {"k": 1, "x": 2, "t": 3, "s": "1"}]
    pushed(runtime, {"R": rows, "S": partners})
    assert sorted(runtime.finish()["R.t"].to_pylist()) == [0, 2]
    (failed,) = runtime.failed().to_pylist()
    assert (failed["kind"], dict(failed["row"])) == ("where", {"R.x": "4", "S.x": "0"})


# Groups

NAMED = {"n": agg.count(), "total": agg.sum("R.x"), "inverse": agg.sum(pc.scalar(6) / S)}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "changelog": ({}, {"output": "changelog"}),
    "panes": ({"group_window": Hopping(6, 3)}, {}),
    "tumbling": ({"group_window": Tumbling(4)}, {}),
    "sessions": ({"group_window": Session(2)}, {}),
    "end": ({}, {"bounded": True}),
}


def without_zero(push: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return {"R": push["R"], "S": [row for row in push["S"] if row["x"]]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("restores", [False, True])
def test_a_joined_row_on_which_an_argument_fails_counts_nowhere(form: str, restores: bool) -> None:
    """The rows of S with x = 0 are those that fail: the other runtime never sees them, but for their event times."""
    of_query, options = FORMS[form]
    query = Query(streams(), ["R.k = S.k"], group_by=["R.k"], aggregates=NAMED, **of_query)
    other = Query(streams(), ["R.k = S.k"], where=S != 0, group_by=["R.k"], aggregates=NAMED, **of_query)
    runtime, two = Runtime(query, **options), Runtime(other, **options)
    pushes = drawn(7)
    for push in pushes:
        assert lines(pushed(runtime, push).to_pylist()) == lines(pushed(two, push).to_pylist())
        runtime.check()
        assert lines(runtime.groups().to_pylist()) == lines(two.groups().to_pylist())
        if restores:
            runtime = Runtime.restore(runtime.snapshot(), query)
    assert lines(runtime.finish().to_pylist()) == lines(two.finish().to_pylist())
    failing = sum(not s["x"] for _, s in joined(pushes))
    assert runtime.failed_count == failing > 3
    assert two.failed_count == 0
    assert set(runtime.failed()["kind"].to_pylist()) == {"aggregate"}


def sums(rows: list[Row]) -> dict[int, int]:
    return {k: sum(row["x"] for row in rows if row["k"] == k) for k in {row["k"] for row in rows}}


HAVING = {
    "sum": ({}, {}, lambda k, n, total: not -(1 << 63) <= total < 1 << 63),
    "having": ({"having": pc.scalar(12) / (pc.field("n") - 2) != 5}, {}, lambda k, n, total: n == 2),
    "select": (
        {"select": {"k": "R.k", "n": "n", "v": pc.scalar(12) / (pc.field("n") - 2)}},
        {},
        lambda k, n, total: n == 2,
    ),
}


@pytest.mark.parametrize("what", HAVING)
@pytest.mark.parametrize("restores", [False, True])
def test_a_group_fails_while_it_fails(what: str, restores: bool) -> None:
    """A changelog over the last rows of a stream, against plain Python; groups fail and come back with the window."""
    more, options, fails = HAVING[what]
    size = 5
    query = Query(
        [Stream("R", ROWS, window=eddy.Rows(size))],
        group_by=["R.k"],
        aggregates={"n": agg.count(), "total": agg.sum("R.x")},
        **more,
    )
    runtime, rng, rows = Runtime(query, output="changelog", **options), np.random.default_rng(3), []
    answer: Counter[str] = Counter()
    failing: set[int] = set()
    begun = 0
    for step in range(60):
        n = int(rng.integers(1, 3))
        drawn_x = [M * int(rng.integers(1, 3)) - 1 for _ in range(n)]
        new = [{"k": int(rng.integers(2)), "x": x, "t": step, "s": ""} for x in drawn_x]
        rows += new
        for row in runtime.push({"R": table(new)}).to_pylist():
            answer[repr({name: value for name, value in row.items() if name != "op"})] += 1 if row["op"] == "+I" else -1
        live = rows[-size:]
        counts, totals = Counter(row["k"] for row in live), sums(live)
        now = {k for k in counts if fails(k, counts[k], totals[k])}
        expected = []
        for k in set(counts) - now:
            if what == "select":
                expected.append({"k": k, "n": counts[k], "v": int(12 / (counts[k] - 2))})
            elif what == "sum" or int(12 / (counts[k] - 2)) != 5:
                expected.append({"R.k": k, "n": counts[k], "total": totals[k]})
        if what != "sum" and any(not -(1 << 63) <= totals[k] < 1 << 63 for k in counts):
            # That group fails for its sum.
            return_to = {k for k in counts if not -(1 << 63) <= totals[k] < 1 << 63}
            expected = [row for row in expected if row.get("R.k", row.get("k")) not in return_to]
            now |= return_to
        begun += len(now - failing)
        failing = now
        assert +answer == lines(expected)
        assert lines(runtime.groups().to_pylist()) == lines(expected)
        assert runtime.failed_count == begun
        runtime.check()
        if restores:
            runtime = Runtime.restore(runtime.snapshot(), query)
    assert begun > 3


@pytest.mark.parametrize("kind", ["int64", "uint64", "decimal", "duration"])
@pytest.mark.parametrize("form", ["tumbling", "end"])
def test_a_window_or_the_end_puts_out_the_groups_that_do_not_fail(kind: str, form: str) -> None:
    types = {
        "int64": (pa.int64(), (1 << 63) - 1),
        "uint64": (pa.uint64(), (1 << 64) - 1),
        "decimal": (pa.decimal128(38, 0), 10**38 - 1),
        "duration": (pa.duration("us"), (1 << 63) - 1),
    }
    of_type, most = types[kind]
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", of_type)])
    window = {"group_window": Tumbling(10)} if form == "tumbling" else {}
    query = Query([Stream("R", schema, time="t")], group_by=["R.k"], aggregates={"s": agg.sum("R.v")}, **window)
    runtime = Runtime(query, bounded=form == "end")

    def push(*rows: tuple[int, int, int]) -> list[Row]:
        ks, ts, vs = zip(*rows, strict=True)
        if kind == "duration":
            values = pa.array(vs, pa.int64()).view(of_type)
        elif kind == "decimal":
            values = pa.array([str(v) for v in vs]).cast(of_type)
        else:
            values = pa.array(vs, of_type)
        return runtime.push({"R": pa.table([pa.array(ks), pa.array(ts), values], schema=schema)}).to_pylist()

    push((1, 0, most), (2, 1, 5))
    push((1, 2, most), (2, 3, 5))
    assert [row["R.k"] for row in runtime.groups().to_pylist()] == [2]
    given = push((1, 30, 1), (3, 31, 1)) if form == "tumbling" else runtime.finish().to_pylist()
    assert [row["R.k"] for row in given] == [2]
    (failed,) = runtime.failed().to_pylist()
    assert failed["reason"].startswith("the sum ")
    row = dict(failed["row"])
    assert row["R.k"] == "1"
    assert form == "end" or row["window_start"] == "0"
    assert runtime.groups().num_rows == (2 if form == "tumbling" else 0)
    assert runtime.failed_count == 1


def test_groups_of_an_engine_fail_alone() -> None:
    engine = Engine([Stream(name, ROWS, time="t") for name in "RS"])
    window = Tumbling(4)
    having = pc.scalar(1) / (pc.field("n") - 2) < 9
    query = Query(streams(), ["R.k = S.k"], group_by=["R.k"], aggregates=NAMED, having=having, group_window=window)
    alone = Runtime(query)
    engine.start("q", query)
    for push in drawn(11):
        assert lines(pushed(engine, push)["q"].to_pylist()) == lines(pushed(alone, push).to_pylist())
    assert engine["q"].failed_count == alone.failed_count > 5
    assert lines(engine["q"].failed().to_pylist()) == lines(alone.failed().to_pylist())
    assert {"aggregate", "having"} == set(engine["q"].last_failed()["kind"].to_pylist())  # type: ignore[index]


def test_filters_of_queries_of_an_engine_fail_for_their_query_alone() -> None:
    engine = Engine([Stream(name, ROWS, time="t") for name in "RS"])
    odd = pc.scalar(4) / pc.field("x") > 1
    engine.start("good", Query(streams(), ["R.k = S.k"], select=["R.x"]))
    engine.start("bad", Query(streams(filter=[odd, pc.field("k") > 0]), ["R.k = S.k"], select=["R.x", "S.x"]))
    pushes = drawn(2)
    results: dict[str, list[Row]] = {"good": [], "bad": []}
    for push in pushes:
        for name, rows in pushed(engine, push).items():
            results[name] += rows.to_pylist()
    pairs = joined(pushes)
    assert lines(results["good"]) == lines([{"R.x": r["x"]} for r, _ in pairs])
    # False for any condition of any stream rejects.
    open_ = [(r, s) for r, s in pairs if r["k"] > 0 and all(not row["x"] or int(4 / row["x"]) > 1 for row in (r, s))]
    good = [{"R.x": r["x"], "S.x": s["x"]} for r, s in open_ if r["x"] and s["x"]]
    assert lines(results["bad"]) == lines(good)
    assert engine["bad"].failed_count == len(open_) - len(good) > 3
    assert engine["good"].failed_count == 0
    assert set(engine["bad"].failed()["kind"].to_pylist()) == {"filter"}


TREATED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "append": ({}, {}),
    "changelog": ({}, {"output": "changelog"}),
    "branch": ({"branches": True}, {}),
    "groups": ({"group_by": ["R.k"], "aggregates": {"n": agg.count()}, "group_window": Tumbling(4)}, {}),
}


def share(form: str, failed: Any, **more: Any) -> Query:
    """Return a query that fails where S.x is 0."""
    options, odd = dict(TREATED[form][0]), R / S > -9
    if options.pop("branches", False):
        core, other = streams()
        return Query([core], branches=[Branch([other], ["R.k = S.k"], "left", where=odd)], failed=failed, **more)
    return Query(streams(), ["R.k = S.k"], where=odd, failed=failed, **options, **more)


@pytest.mark.parametrize("form", TREATED)
def test_a_query_of_an_engine_treats_failed_rows_as_its_newest_version_says(form: str) -> None:
    engine, got = Engine([Stream(name, ROWS, time="t") for name in "RS"]), list[int]()
    query = engine.start("q", share(form, "count"), **TREATED[form][1])

    def push(t: int, n: int) -> None:
        rows = [{"k": k, "x": 0, "t": t, "s": ""} for k in range(n)]
        pushed(engine, {"R": rows, "S": rows})

    push(0, 3)
    assert (query.failed_count, query.failed().num_rows) == (3, 0)
    query.change(share(form, lambda rows: got.append(rows.num_rows)), "immediate")
    push(20, 2)
    assert (query.failed_count, got) == (5, [2])
    query.change(share(form, "keep", failed_rows=3), "immediate")
    push(40, 4)
    assert (query.failed_count, query.failed().num_rows, got) == (9, 3, [2])


def test_rows_that_fail_in_a_filter_are_no_hindrance_to_a_drain() -> None:
    engine = Engine([Stream(name, ROWS, time="t") for name in "RS"])
    counted = [Stream(name, ROWS, window=eddy.Rows(2), time="t") for name in "RS"]
    engine.start("all", Query(counted, ["R.k = S.k"]))
    bad, good = ({"k": 1, "x": x, "t": 1, "s": ""} for x in (0, 1))
    pushed(engine, {"R": [good, bad], "S": [good]})
    inverse = pc.scalar(1) / pc.field("x") > 0
    odd = [Stream(name, ROWS, window=eddy.Rows(2), time="t", filter=inverse) for name in "RS"]
    query = engine.start("odd", Query(odd, ["R.k = S.k"]))
    query.stop("drain")
    with pytest.raises(eddy.InputError, match="stream R: its filter failed on these rows: divide by zero"):
        pushed(engine, {"R": [bad], "S": []})
    pushed(engine, {"R": [good, good], "S": [good, good]})
    assert query.state == "stopped"


# A restore with another query, after which rows do not fail

CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "select": ({"select": {"v": R / S}}, {"select": {"v": R + S}}),
    "where": ({"where": R / S > 0}, {"where": S > 0}),
    "having": ({"having": pc.scalar(1) / (pc.field("n") - 2) < 9}, {"having": pc.field("n") > 1}),
    "select of groups": (
        {"select": {"v": pc.scalar(1) / (pc.field("n") - 2)}},
        {"select": {"v": pc.field("n") - 2, "k": "R.k"}},
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_restore_changes_what_fails(what: str) -> None:
    groups: dict[str, Any] = {}
    if what in ("having", "select of groups"):
        groups = {"group_by": ["R.k"], "aggregates": {"n": agg.count()}, "group_window": Tumbling(4)}
    old, new = (Query(streams(), ["R.k = S.k"], **groups, **arguments) for arguments in CHANGED[what])
    pushes, runtime, whole = drawn(5), Runtime(old), Runtime(new)
    for push in pushes[:3]:
        pushed(runtime, push)
        pushed(whole, push)
    assert runtime.failed_count > 0
    restored = Runtime.restore(runtime.snapshot(), new)
    for push in pushes[3:]:
        results = lines(pushed(restored, push).to_pylist())
        assert results == lines(pushed(whole, push).to_pylist())
    assert restored.failed_count == runtime.failed_count == restored.failed().num_rows


def test_a_restore_with_another_query_is_refused_for_its_reason() -> None:
    of_groups = {"group_by": ["R.k"], "aggregates": {"n": agg.count()}, "group_window": Tumbling(4)}
    saved = Runtime(Query(streams(), ["R.k = S.k"], select=["R.x"], where=R > 0)).snapshot()
    with pytest.raises(eddy.SnapshotError, match=r"need S.x, which .* stream S the snapshot has no column"):
        Runtime.restore(saved, Query(streams(), ["R.k = S.k"], select=["S.x"]))
    saved = Runtime(Query(streams(), ["R.k = S.k"], where=R > 0, **of_groups)).snapshot()
    with pytest.raises(eddy.SnapshotError, match=r"where: .*; the groups count the rows that it accepted"):
        Runtime.restore(saved, Query(streams(), ["R.k = S.k"], where=R > 1, **of_groups))


# Conditions, functions, the side output


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_conditions_has_no_influence_on_what_fails(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = [pc.scalar(6) / pc.field("a") > 1, pc.scalar(6) / pc.field("b") > 1, pc.field("c") > 0, pc.field("a") < 3]
    accepts = AdaptiveFilter([given[k] for k in rng.permutation(4)])
    for n in (1, 7, 3000):
        a, b, c = (rng.integers(0, 5, n) for _ in "abc")
        with np.errstate(divide="ignore"):
            true = [np.where(column == 0, True, 6 // np.maximum(column, 1) > 1) for column in (a, b)] + [c > 0, a < 3]
        alive, fails = np.logical_and.reduce(true), (a == 0) | (b == 0)
        rows, failing = accepts.divided(pa.record_batch({"a": a, "b": b, "c": c}))
        assert rows.tolist() == np.flatnonzero(alive & ~fails).tolist()
        assert list(failing) == np.flatnonzero(alive & fails).tolist()


def test_a_function_that_raises_is_an_error_of_the_push() -> None:
    def seven(batch: pa.RecordBatch) -> Any:
        assert 7 not in batch["R.x"].to_pylist(), "seven"
        return pc.is_valid(batch["R.x"])

    runtime = Runtime(Query(streams(), ["R.k = S.k"], where=[Predicate(seven, ["R.x"]), R / S > -9]))
    bad = [{"k": 1, "x": 7, "t": 1, "s": ""}]
    zero = [{"k": 1, "x": 0, "t": 1, "s": ""}]
    saved = runtime.snapshot()
    with pytest.raises(eddy.InputError, match="seven"):
        pushed(runtime, {"R": bad, "S": zero})
    assert runtime.snapshot() == saved
    assert runtime.failed_count == 0
    pushed(runtime, {"R": [{**bad[0], "x": 1}], "S": zero})
    assert runtime.failed_count == 1


def test_a_filter_of_a_stream_without_a_value_refuses_the_push() -> None:
    good = pc.field("k") > 0
    runtime = Runtime(Query(streams(filter=[pc.scalar(1) / pc.field("x") > -2, good]), ["R.k = S.k"]))
    saved = runtime.snapshot()
    with pytest.raises(eddy.InputError, match=r"stream R: its filter, predicate .* divide by zero"):
        pushed(runtime, {"R": [{"k": 1, "x": 0, "t": 1, "s": ""}], "S": []})
    assert runtime.snapshot() == saved
    # The other condition rejects it.
    pushed(runtime, {"R": [{"k": 0, "x": 0, "t": 1, "s": ""}], "S": []})
    assert runtime.position == 0


def bad_push(first: int, n: int) -> dict[str, list[Row]]:
    rows = [{"k": first + k, "x": 0, "t": 0, "s": ""} for k in range(n)]
    return {"R": rows, "S": rows}


def test_failed_rows_are_bounded_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eddy")
    runtime = Runtime(Query(streams(), ["R.k = S.k"], select={"v": R / S}, failed_rows=10))
    for first in range(0, 40, 8):
        pushed(runtime, bad_push(first, 8))
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in texts] == [
        "select divide_checked(R.x, S.x) AS v has no value for a row, which is left out of the results",
        texts[1].split(":")[0],
    ]
    assert "failed rows were dropped" in texts[1]
    counts = runtime.metrics()
    assert (counts["failed"], counts["failed_dropped"]) == (40, 30)
    kept = runtime.failed()
    assert kept.num_rows == 10
    assert runtime.last_failed() == kept
    pushed(runtime, bad_push(100, 1))
    assert runtime.last_failed() is None
    counting = Runtime(Query(streams(), ["R.k = S.k"], select={"v": R / S}, failed="count"))
    pushed(counting, bad_push(0, 3))
    assert (counting.failed_count, counting.failed().num_rows) == (3, 0)


def test_max_bytes_bounds_failed_rows() -> None:
    query = Query(streams(), ["R.k = S.k"], select={"v": R / S})
    free = Runtime(query)
    for first in range(0, 4000, 500):
        pushed(free, bad_push(first, 500))
    most = free.nbytes - free._pipeline.failed.rows.nbytes // 2
    runtime = Runtime(query, max_bytes=most)
    for first in range(0, 4000, 500):
        pushed(runtime, bad_push(first, 500))
        assert runtime.nbytes <= most
    assert runtime.failed_count == 4000
    assert runtime.metrics()["failed_dropped"] > 0


def test_a_function_gets_failed_rows_until_it_returns() -> None:
    got: list[int] = []

    def take(table: pa.Table) -> None:
        if len(got) == 1:
            got.append(0)
            raise OSError("no disk")
        got.append(table.num_rows)

    runtime = Runtime(Query(streams(), ["R.k = S.k"], select={"v": R / S}, failed=take))
    pushed(runtime, bad_push(0, 2))
    with pytest.raises(eddy.FailedRowsError, match="the function for failed rows raised OSError: no disk"):
        pushed(runtime, bad_push(10, 3))
    assert runtime.pushes == 2
    pushed(runtime, {"R": [], "S": []})
    assert got == [2, 0, 3]


@pytest.mark.parametrize("wrong", [{"failed": "drop"}, {"failed_rows": 0}, {"failed": None}])
def test_a_treatment_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(eddy.QueryError, match="failed"):
        Query(streams(), ["R.k = S.k"], **wrong)


def test_values_of_all_types_have_a_text() -> None:
    kinds = {
        "b": pa.array([b"\xff", None]),
        "l": pa.array([[1], None], pa.list_(pa.int64())),
        "d": pa.array(["a", "b"]).dictionary_encode(),
        "ns": pa.array([1, 2], pa.timestamp("ns")),
        "z": pa.array([1, 2], pa.timestamp("s", "Asia/Tokyo")),
        "bad": pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"x"]).buffers()),
        "k": pa.array([0, 0]),
    }
    rows = pa.record_batch(kinds)
    two = [Stream(name, rows.schema) for name in "RS"]
    select = {**{f"{n}": f"R.{n}" for n in kinds}, "v": pc.scalar(1) / pc.field("R.k")}
    runtime = Runtime(Query(two, ["R.k = S.k"], select=select))
    assert runtime.push({"R": rows, "S": rows}, [0, 0, 1, 1]).num_rows == 0
    row = min((dict(row) for row in runtime.failed()["row"].to_pylist()), key=str)
    assert row["R.z"] == "1970-01-01 09:00:01+0900"
    assert row["R.l"] == "[1]"
    assert row["R.d"] == "a"
    assert row["R.b"] == row["R.bad"] == "b'\\xff'"


# What the types say already


UNFIT = {
    "zone": pc.field("R.at") == pc.field("S.zoned"),
    "unknown zone": pc.is_valid(pc.assume_timezone(pc.field("R.at"), "Nowhere/At_All")),
    "constant": pc.field("R.i") == pc.scalar(1) / pc.scalar(0),
    "constant text": pc.field("R.i") == pc.scalar("x").cast(pa.int64()),
    "regular expression": pc.match_substring_regex(pc.field("R.text"), "("),
    "decimal": pc.is_valid(pc.field("R.i").cast(pa.decimal128(5, 2))),
    "text and number": pc.field("R.text") < pc.field("S.i"),
    "months": pc.field("R.i") + pc.field("S.months") == pc.field("S.months"),
    "wide decimals": pc.field("R.wide") * pc.field("S.wide") > 0,
}
"""Expressions that fail for each row."""

TYPED = pa.schema(
    [
        ("i", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("wide", pa.decimal128(38, 10)),
        ("months", pa.month_day_nano_interval()),
    ]
)


PLACES: dict[str, Callable[[pc.Expression], Any]] = {
    "where": lambda unfit: typed(where=unfit),
    "select": lambda unfit: typed(select={"v": unfit}),
    "argument": lambda unfit: typed(aggregates={"v": agg.count(unfit)}),
    "group_by": lambda unfit: typed(group_by={"v": unfit}),
    "filter": lambda unfit: AdaptiveFilter(
        unfit, schema=pa.schema([(f"{s}.{f.name}", f.type) for s in "RS" for f in TYPED])
    ),
}


def typed(**more: Any) -> Query:
    return Query([Stream(name, TYPED) for name in "RS"], ["R.i = S.i"], **more)


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("place", PLACES)
def test_types_that_do_not_fit_are_refused_when_the_query_is_made(unfit: str, place: str) -> None:
    with pytest.raises(eddy.QueryError):
        PLACES[place](UNFIT[unfit])


@pytest.mark.parametrize(
    "expression",
    [
        pc.scalar(10) / pc.coalesce(pc.field("R.i"), 0) > 1,
        pc.field("R.text").cast(pa.date32()) == pc.field("R.text").cast(pa.date32()),
        pc.coalesce(pc.field("R.text"), "none").cast(pa.int64()) > 1,
        pc.strptime(pc.coalesce(pc.field("R.text"), "none"), format="%d", unit="s") == pc.field("R.at"),
    ],
)
def test_values_that_may_fail_are_no_types_that_do_not_fit(expression: pc.Expression) -> None:
    typed(where=expression)
