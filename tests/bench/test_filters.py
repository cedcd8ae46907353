"""`eddy bench filters` runs, and its orders accept the same rows (it raises where they do not)."""

from __future__ import annotations

import io

from bench import filters


def test_all_workloads_are_measured() -> None:
    report = io.StringIO()
    figures = filters.run(quick=True, report=report)
    for workload in ("stationary", "drifting", "small", "as_given"):
        assert figures[f"{workload}.adaptive_vs_best_fixed"] > 0
        assert f"{workload}.adaptive_vs_worst_fixed" in report.getvalue()


def test_shares_are_as_asked_for() -> None:
    (steady, *_) = filters.workloads(10_000)
    for name, share in zip(filters.NAMES, (0.5, 0.3, 0.1), strict=True):
        kept = filters.AdaptiveFilter(filters.CONDITIONS[name])
        accepted = sum(kept.filter(batch).num_rows for batch in steady.batches)
        assert abs(accepted / sum(map(len, steady.batches)) - share) < 0.03
