"""What the curves of a figure say: exponents, ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.harness.figure import Row
from bench.harness.rows import number
from bench.harness.slope import slope
from bench.harness.words import plain

FLAT = 0.05
"""Exponents nearer to 0 than this are told as no growth."""
SAME = 0.01
"""Curves that differ by no more than this share are told as one."""


def curves(rows: Sequence[Row], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """Return (x, y) by way, ascending in x; rows without a figure are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get(x) is not None and row.get(y) is not None:
            found.setdefault(str(row["way"]), []).append((number(row, x), number(row, y)))
    return {way: sorted(own) for way, own in found.items()}


def amount(value: float, column: str) -> str:
    """Return a figure with the unit of its column: ns, or bytes."""
    if column.startswith("ns"):
        return f"{plain(value)} ns"
    return f"{plain(value / 1e6)} MB" if value >= 1e5 else f"{plain(value)} bytes"


def growth(what: str, by: str, own: Sequence[tuple[float, float]], column: str) -> str:
    """Say how y goes with x: the exponent over the whole range, and where between two points it is steepest."""
    xs, ys = [x for x, _ in own], [y for _, y in own]
    exponent = slope(xs, ys)
    ends = f"{amount(ys[0], column)} at {plain(xs[0])}, {amount(ys[-1], column)} at {plain(xs[-1])}"
    if abs(exponent) < FLAT:
        head = f"{what} hardly changes with {by} (exponent {exponent:+.2f}): {ends}"
    else:
        head = f"{what} {'grows' if exponent > 0 else 'falls'} as {by}^{exponent:.2f}: {ends}"
    if len(own) < 3:
        return f"{head}."
    steps = [(slope(xs[k : k + 2], ys[k : k + 2]), xs[k], xs[k + 1]) for k in range(len(own) - 1)]
    # Rounded as it is printed: among steps that print alike the last bits, which differ by machine, would choose.
    steepest = max(steps, key=lambda step: round(abs(step[0]), 2))
    return f"{head}; steepest from {plain(steepest[1])} to {plain(steepest[2])}, with exponent {steepest[0]:.2f}."


def alike(found: Mapping[str, list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
    """Return the curves with those that are the same within SAME told as one, by the names of all of them."""
    groups: list[tuple[list[str], list[tuple[float, float]]]] = []
    for way, own in found.items():
        for names, other in groups:
            if [x for x, _ in own] == [x for x, _ in other] and all(
                abs(y - z) <= SAME * z for (_, y), (_, z) in zip(own, other, strict=True)
            ):
                names.append(way)
                break
        else:
            groups.append(([way], own))
    return {", ".join(names): own for names, own in groups}


def slopes(rows: Sequence[Row], x: str, by: str, told: Mapping[str, str]) -> list[str]:
    """Say for each way how the columns `told` (and what they are) go with column x, called `by`."""
    said = []
    for column, what in told.items():
        for way, own in alike(curves(rows, x, column)).items():
            if len({at for at, _ in own}) > 1:
                said.append(f"{way}: {growth(what, by, own, column)}")
    return said


def against(rows: Sequence[Row], x: str, by: str, one: str, other: str) -> list[str]:
    """Say how many times as long one way takes as another, at both ends of x."""
    ns = curves(rows, x, "ns")
    left, right = dict(ns.get(one, [])), dict(ns.get(other, []))
    both = sorted(set(left) & set(right))
    if not both:
        return []
    texts = [f"{left[at] / right[at]:.2f} × at {plain(at)}" for at in dict.fromkeys((both[0], both[-1]))]
    return [f"{one} takes, in terms of {other} and by {by}: {', '.join(texts)}."]


def decisions(rows: Sequence[Row], x: str, by: str) -> list[str]:
    """Say what samples and decisions take at both ends of x."""
    said = []
    for way, own in curves(rows, x, "deciding_ns").items():
        whole = dict(curves(rows, x, "ns").get(way, []))
        if any(ns > 0 for _, ns in own):
            texts = [
                f"{amount(ns, 'ns')} an arrival at {plain(at)}, where the median round takes {amount(whole[at], 'ns')}"
                for at, ns in dict.fromkeys((own[0], own[-1]))
                if at in whole
            ]
            said.append(f"{way}: samples and decisions take, on average over all rounds, by {by}: {'; '.join(texts)}.")
    return said
