"""Propositions 1 to 3: the number of complete states after a transition, and the work that it saves and costs.

A left-deep plan has n joins and n + 1 streams. A transition swaps the streams at positions I < J, drawn with
Prob(I = i, J = j) = alpha / (j - i) (eq. 1). States from position I up to below J become incomplete, so the number of
complete states is C = n - (J - I), the root included (eq. 3), which is not stored here.

The engine runs transitions that are drawn in this way. Each stream repeats a permutation of its keys, so every key has
one entry in every state. So the predictions for a turnover of the windows of w rows after a transition are exact:

    promotions           w (J - I): each key once in each incomplete state. This work is the cost of the change of plan
    probes of jisc       w (n + n (n + 1) / 2): a stream at position p probes n - p + 1 duals; two streams have p = 1
    probes of cacq       w (n + 1) n: each tuple probes the SteMs of all others
    probes that are saved by stored states: the difference, w n (n - 1) / 2
"""

from __future__ import annotations

from functools import cache
from math import log, sqrt
from statistics import mean, variance

import numpy as np

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import Mismatch, agree
from bench.ways.strategies import PUSH, TurnoverRun
from bench.workloads.sources import permutations

STRATEGIES = ("jisc", "cacq")
NEAR = 0.2
"""The epsilon of proposition 3: C is near its mean if the relative difference is less than this."""


def harmonic(n: int) -> float:
    """Return the n-th harmonic number."""
    return float((1 / np.arange(1, n + 1)).sum())


def proposition_1(n: int) -> tuple[float, float]:
    """Return mean and variance of the number of complete states."""
    h = harmonic(n)
    return (2 * n * h - 3 * n + 1) / (2 * h - 2), (2 * n**2 * h - 5 * n**2 + 6 * n - 2 * h - 1) / (12 * (h - 1) ** 2)


def proposition_2(n: int) -> tuple[float, float]:
    """Return the leading terms of mean and variance."""
    return n - n / (2 * log(n)), n**2 / (6 * log(n))


@cache
def law(n: int) -> np.ndarray:
    """Return the probabilities of J - I = 1 .. n - 1, by eqs. 1 and 2."""
    distance = np.arange(1, n)
    return (n - distance) / distance / (n * harmonic(n) - n)


def chebyshev(n: int) -> float:
    """Return the bound of proposition 3 on the probability that C is not near its mean."""
    expected, spread = proposition_1(n)
    return min(1.0, spread / (NEAR * expected) ** 2)


def is_far(n: int, complete: float) -> bool:
    """Return whether a number of complete states is not near the mean."""
    return abs(complete / proposition_1(n)[0] - 1) > NEAR


def drawn_pair(n: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return two positions, by eq. 1."""
    distance = int(rng.choice(np.arange(1, n), p=law(n)))
    first = int(rng.integers(1, n - distance + 1))
    return first, first + distance


def predicted_probes(n: int, window: int) -> dict[str, int]:
    """Return the probes of a turnover under each strategy."""
    return {"jisc": window * (n + n * (n + 1) // 2), "cacq": window * n * (n + 1)}


def points(full: bool) -> list[Point]:
    """Return the points that run, then the points that are only computed (0 transitions)."""
    if full:
        run = [(5, 400), (10, 400), (20, 400), (50, 150), (100, 60)]
    else:
        run = [(5, 60), (10, 60), (20, 60), (50, 10)]
    sizes = [*run, *((n, 0) for n in (1_000, 10_000, 1_000_000))]
    return [{"joins": n, "transitions": count, "window": 50 if full else 20, "seed": 7} for n, count in sizes]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the values of the propositions, and the measured values of the engine.

    Raises Mismatch if strategies differ in results, or if a transition does not leave n - (J - I) complete states.
    """
    n, count = point["joins"], point["transitions"]
    (expected, spread), (leading, leading_spread) = proposition_1(n), proposition_2(n)
    by_law = float(law(n) @ (n - np.arange(1, n)))
    if not np.isclose(expected, by_law):
        raise Mismatch(f"{n} joins: the mean is {expected} by proposition 1 and {by_law} by the sum over all pairs")
    rows: list[Row] = [
        {"shows": "share", "curve": "proposition 1", "share": expected / n},
        {"shows": "share", "curve": "proposition 2, its leading term", "share": leading / n},
    ]
    states: dict[str, float] = {
        "mean": expected,
        "leading": leading,
        "remainder": (expected - leading) * -(log(n) ** 2) / n,
        "variance": spread,
        "leading_variance": leading_spread,
        "far_bound": chebyshev(n),
        "far": far_by_law(n),
    }
    if count:
        completed, work = transitions(point, say)
        error = sqrt(variance(completed) / len(completed))
        at = mean(completed)
        rows.append(
            {
                "shows": "share",
                "curve": "measured",
                "share": at / n,
                "share_low": (at - 2 * error) / n,
                "share_high": (at + 2 * error) / n,
            }
        )
        states |= {
            "measured_mean": at,
            "standard_errors": (at - expected) / error,
            "measured_variance": variance(completed),
            "measured_far": mean(is_far(n, complete) for complete in completed),
        }
        rows.append({"shows": "work", **work})
    return [*rows, {"shows": "states", **states}]


def far_by_law(n: int) -> float:
    """Return the probability that C is not near its mean. O(n)."""
    complete = n - np.arange(1, n)
    return float(law(n)[np.abs(complete / proposition_1(n)[0] - 1) > NEAR].sum())


def transitions(point: Point, say: Say) -> tuple[list[int], Row]:
    """Return the complete states after each drawn transition, and the work of the turnovers after them."""
    n, window = point["joins"], point["window"]
    rng = np.random.default_rng(point["seed"])
    turnover = permutations(n + 1, window, point["seed"])
    pushes = turnover.cut(PUSH).arrow
    runs = {name: TurnoverRun(turnover, pushes, name) for name in STRATEGIES}
    for _ in range(2):
        agree(f"{n} joins, full windows", {name: run.take(len(pushes))[1] for name, run in runs.items()})
    order, completed, deviations = list(turnover.names), list[int](), list[float]()
    counts: dict[str, list[float]] = {name: [] for name in ("promoted", "computed", "predicted", *STRATEGIES)}
    for turn in range(point["transitions"]):
        say(f"{n} joins, transition {turn + 1} of {point['transitions']}")
        first, second = drawn_pair(n, rng)
        order[first], order[second] = order[second], order[first]
        results = {}
        for name, run in runs.items():
            before = run.runtime.metrics()["probes"]
            results[name] = run.take(len(pushes), " ".join(order))[1]
            run.check_over()
            counts[name].append(run.runtime.metrics()["probes"] - before)
        agree(f"{n} joins, transition {turn + 1}", results)
        done = runs["jisc"].changed
        assert done is not None
        # The root has no state in this engine; in the paper the state of the root counts and is complete.
        complete = done.complete + 1
        if complete != n - (second - first) or done.incomplete != second - first:
            raise Mismatch(f"positions {first} and {second} of {n} swapped: {complete} states are complete")
        completed.append(complete)
        counts["promoted"].append(done.promoted)
        counts["computed"].append(done.computed)
        counts["predicted"].append(window * (second - first))
        deviations.append(done.promoted / (window * (second - first)) - 1)
    means = {name: mean(numbers) for name, numbers in counts.items()}
    probes = predicted_probes(n, window)
    saved = means["cacq"] - means["jisc"]
    arrivals = window * (n + 1)
    return completed, {
        "promotions_expected": window * (n - proposition_1(n)[0]),
        "promotions_predicted": means["predicted"],
        "promotions": means["promoted"],
        "promotion_deviation": max(deviations, key=abs),
        "entries": means["computed"],
        "saved_predicted": (probes["cacq"] - probes["jisc"]) / arrivals,
        "saved": saved / arrivals,
        "saved_deviation": saved / (probes["cacq"] - probes["jisc"]) - 1,
        "lost_over_saved": means["promoted"] / saved,
    }


FIGURES = (
    Figure(
        "propositions",
        "Complete states after a transition that swaps two streams of a left-deep plan, drawn as in the paper's eq. 1; "
        "propositions 1 to 3 and the counts of the engine. Each stream repeats a permutation of its keys (50 rows in a "
        "window; quick: 20), and after each transition all windows turn over once. Work lost: keys that jisc promotes. "
        "Work saved: probes of cacq less those of jisc. Points with 1 000 joins and more are computed only.",
        points,
        measure,
        source="Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, section 5.2",
        plots=[
            Plot(
                "Share of complete states",
                "joins",
                "share",
                "curve",
                x_label="joins",
                y_label="complete states / joins",
                log="x",
                where={"shows": "share"},
            )
        ],
        tables=[
            ReportTable(
                "Complete states",
                {"joins": "joins"},
                {
                    "mean": "mean, prop. 1",
                    "measured_mean": "measured",
                    "standard_errors": "deviation in standard errors",
                    "leading": "prop. 2, leading term",
                    "remainder": "remainder × -ln² n / n",
                    "variance": "variance, prop. 1",
                    "measured_variance": "measured",
                    "leading_variance": "prop. 2, leading term",
                },
                where={"shows": "states"},
            ),
            ReportTable(
                f"Probability that the number differs from its mean by more than {NEAR:.0%}",
                {"joins": "joins"},
                {"far_bound": "bound of prop. 3", "far": "by the law", "measured_far": "measured"},
                where={"shows": "states"},
            ),
            ReportTable(
                "Work of a turnover after a transition",
                {"joins": "joins"},
                {
                    "promotions_expected": "promotions by prop. 1",
                    "promotions_predicted": "by the swaps drawn",
                    "promotions": "measured",
                    "promotion_deviation": "largest deviation of a transition",
                    "saved_predicted": "probes saved for a tuple, predicted",
                    "saved": "measured",
                    "saved_deviation": "deviation",
                    "lost_over_saved": "promotions / probes saved",
                },
                where={"shows": "work"},
            ),
        ],
    ),
)
