"""The regression guard measures ratios of work that agrees."""

from __future__ import annotations

from bench.limit import FIGURES


def test_a_small_round() -> None:
    figure = FIGURES[1]
    said: list[str] = []
    rows = figure.measure({"rounds": 2, "share": 100}, said.append)
    assert said
    assert [str(row["figure"]) for row in rows] == [
        "guard.W1.engine_vs_loop",
        "guard.W1.arrow_vs_loop",
        "guard.W2.engine_vs_loop",
        "guard.W21.jisc_vs_mjoin",
        "guard.W21.transition_vs_jisc",
    ]
    for row in rows:
        low, middle, high = (float(row[name] or 0) for name in ("value_low", "value", "value_high"))
        assert 0 < low <= middle <= high
