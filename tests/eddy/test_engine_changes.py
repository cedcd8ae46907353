"""Queries that change: each version's results are those of the definition (`engine_queries.py`)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eddy.queries.changes import CHANGES, How
from tests.eddy.engine_queries import WINDOWS, DrawnEngineRun, ReferenceQuery, all_results, drained


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("how", CHANGES)
def test_changes_give_what_their_kind_promises(seed: int, how: str) -> None:
    run, chance = DrawnEngineRun(seed), random.Random(seed)
    old = ReferenceQuery(WINDOWS[seed % 4])
    new = replace(old, windows={name: chance.randrange(3, 15) for name in old.windows}, least=chance.choice([None, 5]))
    query = run.engine.start("q", old.query())
    at = chance.randrange(15, 35)
    run.push(chance.randrange(1, 15))
    query.change(new.query(), how, at)  # type: ignore[arg-type]
    assert query.state in ("running", "changing")
    while run.engine.position < 90:
        run.push(chance.randrange(1, 12))
    olds, news = all_results(old, run.rows), all_results(new, run.rows)
    fresh = [r for r in news if r[0] >= at]
    end = drained(old, run.rows, at)
    assert end is not None
    if how == "immediate":
        expected = [r for r in olds if r[1] < at] + fresh
    elif how == "handover":
        # The rows of the new windows, as far as the old ones kept them.
        kept = query.complete_from
        assert kept <= at
        expected = [r for r in olds if r[1] < at] + [r for r in news if r[1] >= at and r[0] >= kept]
    elif how == "delayed-drain":
        expected = [r for r in olds if r[0] < at] + [r for r in news if r[0] >= end]
    elif how in ("drain-query", "drain-stream"):
        expected = [r for r in olds if r[0] < at] + fresh
    else:
        first = fresh[0][1] if fresh else len(run.rows)
        expected = [r for r in olds if (r[1] if how == "graceful" else r[0]) < first] + fresh
    if how == "handover":
        # Some results with older rows may come, too.
        results = run.results["q"]
        assert set(results) >= {r[2] for r in expected}
        assert set(results) <= {r[2] for r in olds if r[1] < at} | {r[2] for r in news if r[1] >= at}
        assert len(results) == len(set(results))
    else:
        run.check("q", expected, in_order=how != "drain-query")
    if how == "drain-query":  # all results of the old version come before those of the new one
        values = run.results["q"]
        drained_old = [r[2] for r in olds if r[0] < at]
        assert sorted(values[: len(drained_old)]) == sorted(drained_old)
    assert query.state == "running"
    assert [version.ended is None for version in query.versions] == [False, True]


# Elements that meet


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", CHANGES)
def test_an_immediate_stop_ends_a_change(seed: int, how: str) -> None:
    run, chance = DrawnEngineRun(seed), random.Random(seed)
    old, new = ReferenceQuery({"R": 14, "S": 12}), ReferenceQuery({"R": 9, "S": 3})
    query = run.engine.start("q", old.query())
    run.push(20)
    query.change(new.query(), how, 22)  # type: ignore[arg-type]
    query.stop("immediate", 28)
    while run.engine.position < 60:
        run.push(chance.randrange(1, 9))
    assert query.state == "stopped"
    olds, news = all_results(old, run.rows), all_results(new, run.rows)
    possible = {r[2] for r in (*olds, *news) if r[1] < 28}
    assert set(run.results["q"]) <= possible
    if how in ("drain-query", "drain-stream"):
        run.check(
            "q", [r for r in olds if r[0] < 22 and r[1] < 28] + [r for r in news if r[0] >= 22 and r[1] < 28], False
        )


@pytest.mark.parametrize("how", ["drain-query", "drain-stream"])
def test_a_stop_ends_a_change_of_which_no_result_waits(how: How) -> None:
    run = DrawnEngineRun(1)
    query = run.engine.start("q", ReferenceQuery({"R": 14, "S": 12}).query())
    run.push(1)
    query.change(ReferenceQuery({"R": 9, "S": 3}).query(), how)
    run.engine.push({})
    query.stop("immediate")
    assert query.state == "stopped"


def test_a_drain_stop_drains_all_versions_and_a_version_that_waits_does_not_start() -> None:
    run = DrawnEngineRun(3)
    old, new = ReferenceQuery({"R": 14, "S": 12}), ReferenceQuery({"R": 9, "S": 3})
    first, other = run.engine.start("one", old.query()), run.engine.start("other", old.query())
    run.push(20)
    first.change(new.query(), "delayed-drain", 22)
    other.change(new.query(), "drain-stream", 22)
    for query in (first, other):
        query.stop("drain", 28)
    assert (first.state, other.state) == ("running", "changing")
    run.push(60)
    olds, news = all_results(old, run.rows), all_results(new, run.rows)
    drained_old = [r for r in olds if r[0] < 22]
    run.check("one", drained_old)
    run.check("other", drained_old + [r for r in news if 22 <= r[0] < 28], in_order=True)
    assert (first.state, other.state) == ("stopped", "stopped")


def test_a_change_replaces_a_version_that_has_not_begun() -> None:
    run = DrawnEngineRun(4)
    first, second, third = (ReferenceQuery({"R": size, "S": size}) for size in (14, 4, 9))
    query = run.engine.start("q", first.query())
    run.push(20)
    query.change(second.query(), "delayed-drain", 22)
    query.change(third.query(), "delayed-drain", 25)
    run.push(90)
    end = drained(first, run.rows, 22)
    assert end is not None
    expected = [r for r in all_results(first, run.rows) if r[0] < 22]
    run.check("q", expected + [r for r in all_results(third, run.rows) if r[0] >= end])
    assert [version.number for version in query.live] == [2]


def test_three_versions_at_a_time() -> None:
    run = DrawnEngineRun(5)
    asked = [ReferenceQuery({"R": size, "S": size}) for size in (20, 15, 10)]
    query = run.engine.start("q", asked[0].query())
    run.push(20)
    query.change(asked[1].query(), "drain-stream", 22)
    query.change(asked[2].query(), "drain-stream", 30)
    run.push(15)
    assert len(query.live) == 3
    run.push(70)
    spans = ((0, 22), (22, 30), (30, 200))
    expected = [
        r
        for reference, (s, e) in zip(asked, spans, strict=True)
        for r in all_results(reference, run.rows)
        if s <= r[0] < e
    ]
    run.check("q", expected)
    events = run.engine.history().to_pylist()
    assert [(event["position"], event["event"], event["version"]) for event in events] == [
        (0, "fresh start", 0),
        (22, "drain-stream change", 1),
        (30, "drain-stream change", 2),
    ]


# Sharing and keeping
