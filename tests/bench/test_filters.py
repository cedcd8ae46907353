"""`eddy bench filters` runs, and its orders accept the same rows (it raises where they do not)."""

from __future__ import annotations

from bench import filters


def test_all_workloads_are_measured() -> None:
    (figure,) = filters.FIGURES
    rows = figure.measure({"rows": 20_000, "rounds": 1}, lambda doing: None)
    assert [row["conditions"] for row in rows] == ["stationary", "drifting", "small", "as_given"]
    for row in rows:
        assert 0 < float(str(row["vs_best_fixed"])) <= float(str(row["vs_worst_fixed"]))


def test_shares_are_as_asked_for() -> None:
    (steady, *_) = filters.workloads(10_000)
    for name, share in zip(filters.NAMES, (0.5, 0.3, 0.1), strict=True):
        kept = filters.AdaptiveFilter(filters.CONDITIONS[name])
        accepted = sum(kept.filter(batch).num_rows for batch in steady.batches)
        assert abs(accepted / sum(map(len, steady.batches)) - share) < 0.03
