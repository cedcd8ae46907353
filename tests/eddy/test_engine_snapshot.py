"""Snapshots of engines: a restored engine continues as its twin, and other bytes or queries are refused.

`test_engine_machine.py` and the fuzzer mix snapshots into everything else.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.queries.snapshot import KIND
from tests.eddy.forged_snapshots import alter
from tests.eddy.opened_files import closed, opened

TAG = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms", "UTC")), ("x", pa.int64()), ("tag", TAG)])
NAMES = "RST"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def even(batch: pa.RecordBatch) -> pa.Array:
    """Accept rows with an even x."""
    return pc.equal(pc.bit_wise_and(batch["x"], 1), 0)


def asked(names: str, seconds: int, kept: Any = None) -> eddy.Query:
    window = eddy.Range(timedelta(seconds=seconds))
    streams = [eddy.Stream(n, SCHEMA, window=window, time="t", filter=kept) for n in names]
    select = {f"{n}.tag": f"{n}.tag" for n in names} | {f"{n}.x": f"{n}.x" for n in names}
    return eddy.Query(streams, [f"{names[0]}.k = {n}.k" for n in names[1:]], select=select)


def counted(names: str, rows: int) -> eddy.Query:
    streams = [eddy.Stream(n, SCHEMA, window=eddy.Rows(rows), filter=even) for n in names]
    return eddy.Query(streams, [f"{names[0]}.k = {n}.k" for n in names[1:]], select={f"{n}.x": f"{n}.x" for n in names})


def grouped(names: str, seconds: int, size: int) -> eddy.Query:
    window = eddy.Range(timedelta(seconds=seconds))
    streams = [eddy.Stream(n, SCHEMA, window=window, time="t") for n in names]
    values = {"n": eddy.agg.count(), "most": eddy.agg.max(f"{names[1]}.x"), "tags": eddy.agg.count_distinct("R.tag")}
    windows = eddy.Tumbling(timedelta(seconds=size))
    return eddy.Query(streams, ["R.k = S.k"], group_by=["R.tag"], aggregates=values, group_window=windows)


def sources() -> list[eddy.Stream]:
    return [eddy.Stream(name, SCHEMA, window=eddy.Range(timedelta(seconds=3)), time="t") for name in NAMES]


def pushed(engine: eddy.Engine, chance: random.Random, n: int = 12) -> dict[str, pa.Table]:
    """Push rows in a random order of streams, some of them late."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    order = [chance.randrange(3) for _ in range(n)]
    for place, i in enumerate(order, engine.position):
        late = 4 * (chance.random() < 0.2)
        at = BEGIN + timedelta(seconds=place // 4 - late)
        rows[NAMES[i]].append({"k": chance.randrange(3), "t": at, "x": place, "tag": chance.choice(["a", "b", None])})
    return engine.push(rows, order)


QUERIES: dict[str, list[eddy.Query]] = {
    "held": [asked("RS", 5), asked("RS", 9), asked("RST", 4)],
    "waits": [asked("ST", 5, even), asked("ST", 3)],
    "rows": [counted("RT", 4)],
    "ends": [asked("RST", 6)],
    "groups": [grouped("RS", 5, 7), grouped("RS", 3, 2)],
}
"""By name the queries of its versions."""


def changing() -> eddy.Engine:
    """Return an engine in the middle of several changes, with results that wait and elements to come."""
    engine, chance = eddy.Engine(sources(), lateness=timedelta(seconds=1)), random.Random(3)
    for name, versions in QUERIES.items():
        engine.start(name, versions[0])
    pushed(engine, chance, 20)
    engine["held"].change(QUERIES["held"][1], "drain-query")
    pushed(engine, chance, 6)
    engine["held"].change(QUERIES["held"][2], "graceful-drain", at=engine.position + 3)
    engine["waits"].change(QUERIES["waits"][1], "delayed-drain")
    engine["groups"].change(QUERIES["groups"][1], "drain-stream", at=engine.position + 2)
    engine["ends"].stop("immediate", at=engine.position + 17)
    pushed(engine, chance, 5)
    return engine


def test_a_restored_engine_continues_as_its_twin() -> None:
    engine = changing()
    saved = engine.snapshot()
    assert engine.snapshot() == saved
    assert engine["held"].held, "no results wait"
    again = eddy.Engine.restore(saved, sources(), QUERIES)
    assert again.snapshot() == saved
    assert again.history().equals(engine.history())
    assert again.late_counts == engine.late_counts
    assert sum(again.late_counts.values()) > 0
    chances, given = (random.Random(5), random.Random(5)), 0
    for _ in range(8):
        results, other = pushed(engine, chances[0]), pushed(again, chances[1])
        assert {name: table.to_pylist() for name, table in results.items()} == {
            name: table.to_pylist() for name, table in other.items()
        }
        assert all(results[name].schema.equals(other[name].schema) for name in results)
        given += sum(table.num_rows for table in results.values())
        again.check()
    assert given > 50
    states = [
        {name: (running.state, running.n_results) for name, running in each.queries.items()} for each in (engine, again)
    ]
    assert states[0] == states[1]
    assert states[0]["ends"][0] == "stopped"
    assert again.history().equals(engine.history())


def test_a_restored_engine_keeps_plans_and_starts_warm_on_its_rows() -> None:
    engine = eddy.Engine(sources())
    query = engine.start("q", asked("RST", 9))
    pushed(engine, random.Random(1), 30)
    query.transition("R (S T)")
    again = eddy.Engine.restore(engine.snapshot(), sources(), {"q": asked("RST", 9)})
    assert again["q"].plan == query.plan == "R (S T)"
    for twin in (engine, again):
        twin.start("late", asked("RS", 9), warm=True)
    assert again["late"].complete_from == engine["late"].complete_from
    twin, other = pushed(engine, random.Random(2)), pushed(again, random.Random(2))
    assert twin["late"].equals(other["late"])
    assert twin["late"].num_rows


def test_what_does_not_fit_is_refused() -> None:
    saved = changing().snapshot()
    short = [eddy.Stream(name, SCHEMA, time="t") for name in NAMES]
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: eddy.Engine.restore(saved[:-1] + b"?", sources(), QUERIES), "is damaged"),
        (lambda: eddy.Engine.restore(b"", sources(), QUERIES), "the snapshot of an engine is empty"),
        (lambda: eddy.Engine.restore(saved, sources()[:2], QUERIES), "streams: R, S, T in the snapshot, R, S given"),
        (lambda: eddy.Engine.restore(saved, short, QUERIES), r"stream R, window: \['RANGE', 3000\] in the snapshot"),
        (
            lambda: eddy.Engine.restore(saved, sources(), {**QUERIES, "x": asked("RS", 5)}),
            "has no query 'x'; it has",
        ),
        (lambda: eddy.Engine.restore(saved, sources(), {"held": QUERIES["held"]}), "has a query 'waits': give it"),
        (
            lambda: eddy.Engine.restore(saved, sources(), {**QUERIES, "rows": counted("RT", 5)}),
            "query 'rows': version 0 of the snapshot is another query: stream R, window: ROWS 4 in the snapshot",
        ),
        (
            lambda: eddy.Engine.restore(saved, sources(), {**QUERIES, "held": QUERIES["held"][-1]}),
            "query 'held': version 0 .* give the queries of all its versions",
        ),
        (
            lambda: eddy.Runtime.restore(saved, asked("RS", 5)),
            "these bytes are not a snapshot: they begin with b'eddyengn'",
        ),
    ]
    for call, message in cases:
        with pytest.raises(eddy.SnapshotError, match=message):
            call()


def test_a_policy_of_ones_own_is_given_again() -> None:
    class Mine:
        name = "mine"

        def decide(self, view: Any) -> None:
            return None

    engine = eddy.Engine(sources(), policy=Mine())
    engine.start("q", asked("RS", 5))
    saved = engine.snapshot()
    with pytest.raises(eddy.SnapshotError, match="taken under policy 'mine'"):
        eddy.Engine.restore(saved, sources(), {"q": asked("RS", 5)})
    assert eddy.Engine.restore(saved, sources(), {"q": asked("RS", 5)}, policy=Mine()).snapshot() == saved


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(4))
def test_altered_snapshots_are_refused_or_restored_to_a_sound_engine(seed: int) -> None:
    saved, outcomes = changing().snapshot(), {True: 0, False: 0}
    for number in range(120):
        chance = random.Random(1000 * seed + number)
        forged = alter(saved, chance, KIND)
        try:
            engine = eddy.Engine.restore(forged, sources(), QUERIES)
        except eddy.SnapshotError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        engine.check()
        engine.snapshot()
        for _ in range(3):
            pushed(engine, chance)
        engine.check()
    assert outcomes[False] > 40


def test_values_that_contradict_each_other_are_refused() -> None:
    values, contents = opened(changing().snapshot(), KIND)

    def forged(change: Callable[[dict[str, Any]], None]) -> bytes:
        altered = copy.deepcopy(values)
        change(altered["header"])
        return closed(altered, contents, KIND)

    def first(header: dict[str, Any]) -> dict[str, Any]:
        return header["queries"][0]["versions"][0]  # type: ignore[no-any-return]

    changes: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda header: header.update(position=header["position"] + 1), "the streams have other arrivals"),
        (
            lambda header: header["streams"][0].update(complete_from=header["streams"][0]["end"]),
            "has rows at other positions",
        ),
        (lambda header: header["streams"][1].update(newest=0), "a row is newer than all"),
        (
            lambda header: header["streams"][1].update(rows=header["streams"][1]["rows"] - 1),
            "rows: .* has other rows|rows, at most",
        ),
        (lambda header: first(header).update(start=None), "version 0 has no start"),
        (lambda header: first(header).update(after=7), "version 0 has groups before its start"),
        (lambda header: first(header).update(greatest=7), "version 0 has windows of a drain"),
        (
            lambda header: header["queries"][4]["versions"][0].update(after=None),
            "groups: there are some before the start",
        ),
        (lambda header: header["queries"][4]["versions"][0]["drain"].__setitem__(0, 1 << 40), "drains rows"),
        (lambda header: first(header).update(number=7), r"has the versions \[7, 1, 2\]"),
        (lambda header: header["queries"][0]["successions"].append([1, 9, "immediate", 0]), "has a change from 1 to 9"),
        (lambda header: header["plans"].append(["held", 9, "R S"]), "a plan of an unknown version"),
        (lambda header: header["plans"][0].__setitem__(2, "R (S"), "contradicts itself"),
        (lambda header: header["queries"].append(header["queries"][0]), "not a list of 6|one name"),
        (lambda header: header["options"].update(strategy="pickle"), "header.options.strategy is 'pickle'"),
    ]
    for change, message in changes:
        with pytest.raises(eddy.SnapshotError, match=message):
            eddy.Engine.restore(forged(change), sources(), QUERIES)
