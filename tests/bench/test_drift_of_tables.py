"""The benchmark of updates that change which plan is best: the arrivals are as declared, and all plans agree."""

from __future__ import annotations

import pytest

from bench.drift_of_tables import ARMS, PHASES, RARE, TABLES, TITLES, DriftingTables, measure
from eddy import Runtime

SMALL = DriftingTables(window=1_000, push=500, n_pushes=2)


def test_updates_leave_a_tenth_of_the_keys_of_one_table() -> None:
    held: dict[str, set[int]] = {name: set() for name in TABLES}
    seen = []
    for phase, (rows, order) in SMALL.pushes(0):
        assert len(order) == sum(map(len, rows.values()))
        for name in TABLES:
            for row in rows[name].to_pylist() if name in rows else ():
                held[name].discard(row["id"])
                held[name] |= {row["id"]} if row["op"] == "u" else set()
        if phase and phase not in seen[-1:]:
            seen.append(phase)
            sizes = {name: len(ids) for name, ids in held.items()}
            assert sizes == {name: 500 // RARE if phase == f"{name} is rare" else 500 for name in TABLES}
    assert seen == [f"{name} is rare" for name in PHASES]
    assert set(PHASES) == set(ARMS.values())


@pytest.mark.campaign(0)
def test_the_default_stores_no_states_over_tables() -> None:
    runtime = Runtime(SMALL.query, output="changelog", count_only=True, decide_every=1)
    for _, (rows, order) in SMALL.pushes(0):
        runtime.push(rows, order)
    assert not any(runtime.history()["stored"].to_pylist())


def test_the_ratios_are_measured() -> None:
    rows = {str(row["figure"]): row for row in measure({"window": 1_000, "push": 500, "pushes": 1, "rounds": 1}, print)}
    assert rows.keys() == TITLES.keys()
    assert rows["fixed"]["value"] == 6
    assert all(float(str(row["value"])) > 0 for name, row in rows.items() if name != "transitions")
