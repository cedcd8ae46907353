"""The propositions of the JISC paper and equations 5 to 7 of the plan migration paper, and the counts beside them."""

from __future__ import annotations

from fractions import Fraction
from math import log

import numpy as np
import pytest

from bench.harness.figure import Row
from bench.harness.turns import Mismatch
from bench.papers.jisc import propositions
from bench.papers.jisc.propositions import drawn_pair, far_by_law, harmonic, law, proposition_1, proposition_2
from bench.papers.migration import track_costs
from bench.papers.migration.arrivals import MigrationSetting, PaperArrivals, draw
from bench.papers.migration.length import CHANGE_MS
from bench.papers.migration.track_costs import count, eq5, eq6, eq6_printed, eq7, joined

TINY = {"joins": 5, "transitions": 8, "window": 12, "seed": 7}
SETTING = MigrationSetting(1_000, (100, 50, 80, 100), (0.1, 0.05, 0.02), 10)


def pairs(n: int) -> dict[tuple[int, int], Fraction]:
    """Return the probability of each pair of positions, by eq. 1, in exact numbers."""
    weights = {(i, j): Fraction(1, j - i) for i in range(1, n + 1) for j in range(i + 1, n + 1)}
    return {pair: weight / sum(weights.values()) for pair, weight in weights.items()}


@pytest.mark.parametrize("n", [2, 3, 5, 12, 30])
def test_proposition_1_is_mean_and_variance_over_all_pairs(n: int) -> None:
    exact = pairs(n)
    mean = sum(p * (n - (j - i)) for (i, j), p in exact.items())
    variance = sum(p * (n - (j - i)) ** 2 for (i, j), p in exact.items()) - mean**2
    assert proposition_1(n) == pytest.approx((float(mean), float(variance)))
    for d in range(1, n):
        assert law(n)[d - 1] == pytest.approx(float(sum(p for (i, j), p in exact.items() if j - i == d)))


def test_the_remainder_of_proposition_2_is_not_bounded_by_the_logarithm() -> None:
    """The mean differs from its leading term by about (1 - gamma) / 2 of n / ln² n, which grows with n."""
    for n in (10**4, 10**6):
        remainder = proposition_2(n)[0] - proposition_1(n)[0]
        assert 0.19 < remainder * log(n) ** 2 / n < 0.25
    assert proposition_1(10**6)[1] / proposition_2(10**6)[1] == pytest.approx(1, abs=0.1)


def test_the_bound_of_proposition_3_holds_and_falls() -> None:
    bounds = [propositions.chebyshev(n) for n in (10, 1_000, 10**5)]
    assert bounds == sorted(bounds, reverse=True)
    assert all(far_by_law(n) <= bound for n, bound in zip((10, 1_000, 10**5), bounds, strict=True))


def test_pairs_are_drawn_by_the_law() -> None:
    rng = np.random.default_rng(3)
    drawn = [drawn_pair(6, rng) for _ in range(3_000)]
    for pair, p in pairs(6).items():
        assert drawn.count(pair) / len(drawn) == pytest.approx(float(p), abs=0.03)
    assert harmonic(4) == pytest.approx(25 / 12)


def test_promotions_and_probes_of_the_engine_are_as_predicted() -> None:
    rows = propositions.measure(TINY, lambda said: None)
    (work,) = (row for row in rows if row["shows"] == "work")
    assert work["promotions"] == work["promotions_predicted"] == work["entries"]
    assert work["promotion_deviation"] == 0
    assert work["saved"] == work["saved_predicted"] == pytest.approx(5 * 4 / 2 / 6)
    assert {row["curve"] for row in rows if row["shows"] == "share"} >= {"measured", "proposition 1"}


def test_a_count_of_states_that_is_not_that_of_the_paper_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = propositions.TurnoverRun.take

    def another(run: propositions.TurnoverRun, pushes: int, plan: str | None = None) -> tuple[float, int]:
        return honest(run, pushes, plan and " ".join(reversed(plan.split())))

    monkeypatch.setattr(propositions.TurnoverRun, "take", another)
    with pytest.raises(Mismatch, match="swapped: "):
        propositions.measure(TINY, lambda said: None)


# --- equations 5 to 7 ------------------------------------------------------------------------------------------------


def examined(left: list[float], right: list[float], w: float, first: float, last: float, known: float) -> int:
    """Return the pairs that a nested loop examines in [first, last), of tuples that came at `known` or later."""
    total = 0
    for times, other in ((left, right), (right, left)):
        times = [t for t in times if first <= t < last]
        total += sum(1 for t in times for u in other if known <= u < t and t - u < w)
    return total


def test_the_equations_count_the_pairs_of_a_nested_loop() -> None:
    left, right = [k / 40 + 0.001 for k in range(160)], [k / 30 for k in range(120)]
    assert eq5(40, 30, 1) == pytest.approx(examined(left, right, 1, 1.5, 3.5, 0), rel=0.03)
    first, second = eq6(40, 30, 1)
    assert first == pytest.approx(examined(left, right, 1, 1.5, 2.5, 1.5), rel=0.05)
    assert second == pytest.approx(examined(left, right, 1, 2.5, 3.5, 1.5), rel=0.03)
    # As printed, the first window has a factor W too much.
    assert eq6_printed(40, 30, 2) == 2 * eq6(40, 30, 2)[0]
    assert eq7(40, 30, 0.1, 1, 0.5)[1] == 2 * 40 * 30 * 0.1 * 0.5
    assert eq7(40, 30, 0.1, 1, 0.5)[0] == pytest.approx(0.1 * examined(left, right, 1, 1.5, 2.0, 1.5), rel=0.1)
    assert len(set(eq7(40, 30, 0.1, 1, 1.5))) == 1


def matches(arrivals: PaperArrivals, left: int, first: float, last: float, known: float) -> int:
    """Return the pairs of stream `left` and the next one that a nested loop finds in [first, last) ms."""
    came = list(zip(arrivals.times.tolist(), arrivals.order.tolist(), arrivals.keys.tolist(), strict=True))
    total = 0
    for at, (t, i, keys) in enumerate(came):
        if i not in (left, left + 1) or not first <= t / 1e3 < last:
            continue
        for u, j, other in came[:at]:
            a, b = (keys, other) if i == left else (other, keys)
            if {i, j} == {left, left + 1} and a[int(left > 0)] == b[0]:
                total += u >= 1e3 * known and t - u <= 1e3 * SETTING.w_ms
    return total


def test_the_counts_are_those_of_a_nested_loop() -> None:
    w, start = SETTING.w_ms, CHANGE_MS
    arrivals = draw(SETTING, start + 2 * w + 1, 31)
    alone = count(SETTING, 31, "symmetric-hash", False)
    total = sum(joined(period.new, "A", "B") for period in alone)
    assert total == matches(arrivals, 0, start, start + 2 * w, 0)
    stage = count(SETTING, 31, "parallel-track", True)
    total = sum(joined(period.new, "B", "C") for period in stage if period.end <= w)
    assert total == matches(arrivals, 1, start, start + w, start)


def test_half_of_equation_5_is_saved_and_both_forms_are_told() -> None:
    (point,) = (
        candidate
        for candidate in track_costs.points(False)
        if candidate["i_a_ms"] == 100 and candidate["i_b_ms"] == 100
    )
    rows: list[Row] = list(track_costs.measure({**point, "seeds": 2}, lambda said: None))
    counts = {str(row["quantity"]): row for row in rows if row["shows"] == "count"}
    saved = {name: float(str(row["deviation"])) for name, row in counts.items()}
    assert saved["eq. 5: the same within the stage of parallel-track"] == pytest.approx(-0.5, abs=0.1)
    assert saved["eq. 5: A and B, tuples inserted and purged in 2 W"] == pytest.approx(0, abs=0.1)
    both = [deviation for name, deviation in saved.items() if "in both plans" in name]
    assert both == [pytest.approx(-1 / 3, abs=0.1), pytest.approx(-1 / 2, abs=0.1)]
    assert all(abs(float(str(row["deviation_here"]))) < 0.15 for row in counts.values())
    assert {row["curve"] for row in rows if row["shows"] == "rate"} == {
        "measured",
        "eq. 7 as a rate",
        "eq. 7 as printed",
    }
