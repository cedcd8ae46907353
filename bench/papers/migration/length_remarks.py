"""What the data of figures 9 to 12 say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from bench.harness.figure import Row
from bench.harness.slope import slope as exponent_of
from bench.papers.migration.arrivals import PAIRS, Setting
from bench.papers.migration.cost_model import Costs, by_hash, eq8
from bench.papers.migration.rows import number

T_PT, T_PT_MODEL = "T_PT measured", "T_PT by eq. 4"
T_PT_PURGED = "T_PT replayed with the paper's purging"
JISC_STAGE = "stage of jisc: all states complete"
T_MS, T_MS_MODEL, T_MS_HASH = "T_MS measured", "T_MS by eqs. 3 and 8", "T_MS by the model for hash joins"
NEAR = 0.25
"""A measured factor counts as the expected one when it is off by no more than this part of it."""
MOST_WINDOW = 1e9
"""ms. A crossing is not looked for beyond windows of some twelve days."""


def stall_of(strategy: str) -> str:
    """Return the curve of the call of `transition` under a strategy."""
    return f"call of {strategy}"


def curve(rows: Sequence[Row], name: str, x: str, scale: int) -> list[tuple[float, float]]:
    """Return the points (x, ms) of a curve at a scale, ascending."""
    own = (row for row in rows if row.get("curve") == name and row.get("scale") == scale)
    return sorted((number(row, x), number(row, "ms")) for row in own)


def scales(rows: Sequence[Row]) -> list[int]:
    """Return the scales that there are, ascending."""
    return sorted({int(number(row, "scale")) for row in rows if row.get("scale") is not None})


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the exponent of x in y, by least squares over logarithms; None for fewer than two different x."""
    positive = [(x, y) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in positive}) < 2:
        return None
    return exponent_of(*zip(*positive, strict=True))


def _sigmas(rows: Sequence[Row]) -> list[str]:
    """Say how far reduction factors are from those asked for."""
    off = [
        abs(number(row, f"found_sigma_{pair}") / number(row, f"sigma_{pair}") - 1)
        for row in rows
        for pair in PAIRS
        if row.get(f"found_sigma_{pair}") is not None and row.get(f"sigma_{pair}")
    ]
    return [f"Reduction factors of the arrivals are within {100 * max(off):.1f} % of those asked for."] if off else []


def _range(values: Sequence[float], form: str = ".2f") -> str:
    low, high = min(values), max(values)
    return f"{median(values):{form}}" if low == high else f"{median(values):{form}} ({low:{form}} to {high:{form}})"


def _stage_in_windows(rows: Sequence[Row]) -> list[str]:
    """Say how many windows a stage of parallel-track takes."""
    said = []
    measured = [row for row in rows if row.get("curve") == T_PT]
    if measured:
        ratios = [number(row, "ms") / number(row, "w_ms") for row in measured]
        found = f"T_PT / W is {_range(ratios)} where eq. 4 and the paper's figure have 2"
        if abs(median(ratios) - 2) <= 2 * NEAR:
            said.append(f"{found}: it reproduces.")
        elif median(ratios) < 2:
            said.append(
                f"{found}: that does not reproduce. The paper keeps a composite for a window after its youngest"
                " component came, so one made of old and new tuples late in the first window lasts a second one."
                " Here an entry is dead once its oldest component has left, and the old plan goes when every old tuple"
                " has left its window."
            )
        else:
            said.append(f"{found}: stages last longer than the model says.")
    replayed = [number(row, "ms") / number(row, "w_ms") for row in rows if row.get("curve") == T_PT_PURGED]
    if replayed:
        whether = "as the model says" if abs(median(replayed) - 2) <= 2 * NEAR else "which is not the model's 2 either"
        said.append(
            f"Replayed with the paper's rule of purging on the same arrivals T_PT / W is {_range(replayed)}, {whether}."
        )
    return said


def stage_over_window(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 9."""
    said = _stage_in_windows(rows)
    for scale in scales(rows):
        exponent = slope(curve(rows, T_PT, "w_ms", scale))
        if exponent is not None:
            said.append(f"At scale {scale} T_PT grows with W to the power {exponent:.2f}; eq. 4 has 1.")
    jisc = [row for row in rows if row.get("curve") == JISC_STAGE]
    if jisc:
        ratios = [number(row, "ms") / number(row, "w_ms") for row in jisc]
        said.append(
            f"A stage of jisc, until every state is known to be complete, takes {_range(ratios)} W; there is output"
            " all the time."
        )
    return [*said, *_sigmas(rows)]


def _against_model(rows: Sequence[Row], x: str, what: str) -> Iterable[str]:
    """Say the exponents of T_MS in x, measured and by both models, and how far off the model for hash joins is."""
    for scale in scales(rows):
        found = {name: curve(rows, name, x, scale) for name in (T_MS, T_MS_MODEL, T_MS_HASH)}
        own = [row for row in rows if row.get("curve") == T_MS and row.get("scale") == scale]
        fixed = [number(row, "fixed_ms") / number(row, "ms") for row in own if row.get("fixed_ms") and row.get("ms")]
        exponents = {name: slope(points) for name, points in found.items()}
        measured, model, hashed = exponents[T_MS], exponents[T_MS_MODEL], exponents[T_MS_HASH]
        if fixed and median(fixed) > 0.5:
            yield (
                f"At scale {scale} the part of T_MS that does not depend on the states, new routes above all, is"
                f" {_range(fixed)} of it, so how it grows with {what} says little of recomputing."
            )
        elif measured is not None and model is not None and hashed is not None:
            closer = "the paper's own" if abs(measured - model) < abs(measured - hashed) else "the one for hash joins"
            yield (
                f"At scale {scale} T_MS grows with {what} to the power {measured:.2f}; eqs. 3 and 8 give {model:.2f}"
                f" over the same points, the model for hash joins {hashed:.2f}: {closer} is nearer."
            )
        expected = dict(found[T_MS_HASH])
        ratios = [ms / expected[at] for at, ms in found[T_MS] if expected.get(at)]
        if ratios:
            yield f"At scale {scale} T_MS is {_range(ratios)} times what the model for hash joins says."


def _jisc_beside(rows: Sequence[Row], x: str, what: str) -> Iterable[str]:
    """Say what a transition under jisc costs beside moving-state's, where T_MS is longest."""
    for scale in scales(rows):
        eager, lazy = (dict(curve(rows, name, x, scale)) for name in (T_MS, stall_of("jisc")))
        shared = sorted(eager.keys() & lazy.keys())
        if not shared:
            continue
        at = shared[-1]
        said = (
            f"At scale {scale} and {what} {at:g} the call takes {eager[at]:.2f} ms under moving-state and"
            f" {lazy[at]:.2f} ms under jisc"
        )
        first = {
            str(row["curve"]): number(row, "ms")
            for row in rows
            if row.get("shows") == "latency" and row.get("scale") == scale and number(row, x) == at
        }
        if {"moving-state", "jisc"} <= first.keys():
            said += f", with the push after it {first['moving-state']:.2f} and {first['jisc']:.2f} ms"
        yield f"{said}."


def stall_over_window(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 10."""
    return [*_against_model(rows, "w_ms", "W"), *_jisc_beside(rows, "w_ms", "W ="), *_sigmas(rows)]


def both_over_rate(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 11."""
    said = _stage_in_windows(rows)
    for scale in scales(rows):
        for name in (T_PT, T_MS, T_MS_HASH, T_MS_MODEL):
            points = curve(rows, name, "lambda_b", scale)
            if len({x for x, _ in points}) > 1 and points[0][1]:
                (least, before), (most, after) = points[0], points[-1]
                said.append(
                    f"At scale {scale}, {most / least:.0f} times the rate of B makes {name} {after / before:.2f} times"
                    " as long."
                )
    said += _against_model(rows, "lambda_b", "the rate of B")
    return [*said, *_jisc_beside(rows, "lambda_b", "a rate of B of"), *_sigmas(rows)]


def crossing(per_window: Callable[[float], float], target: float, start: float) -> float | None:
    """Return the window from which on `per_window`, which grows with it, is above `target`; None = not in reach."""
    low, high = start, start
    while per_window(high) < target:
        low, high = high, 2 * high
        if high > MOST_WINDOW:
            return None
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if per_window(middle) < target else (low, middle)
    return high


def both_over_window(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 12."""
    said = _stage_in_windows(rows)
    for scale in scales(rows):
        moving, parallel = (dict(curve(rows, name, "w_ms", scale)) for name in (T_MS, T_PT))
        shared = sorted(moving.keys() & parallel.keys())
        if not shared:
            continue
        slower = [at for at in shared if moving[at] > parallel[at]]
        share = ", ".join(f"{100 * moving[at] / parallel[at]:.3f} % at {at:g} ms" for at in (shared[0], shared[-1]))
        if slower and len(slower) < len(shared):
            said.append(
                f"At scale {scale} T_MS is longer than T_PT from W = {min(slower):g} ms on: the crossing of the"
                f" paper's figure is there. T_MS is {share} of T_PT."
            )
            continue
        shorter = "longer" if slower else "shorter"
        said.append(
            f"At scale {scale} T_MS is {shorter} than T_PT at every W measured, {shared[0]:g} to {shared[-1]:g} ms:"
            f" the crossing of the paper's figure does not appear here. T_MS is {share} of T_PT."
        )
        if not slower:
            said += _expected_crossing(rows, scale, shared[-1], parallel[shared[-1]] / shared[-1])
    said += _against_model(rows, "w_ms", "W")
    return [*said, *_jisc_beside(rows, "w_ms", "W ="), *_sigmas(rows)]


def _expected_crossing(rows: Sequence[Row], scale: int, window: float, windows: float) -> list[str]:
    """Say from which W on the models have T_MS above T_PT, which takes so many windows; by the costs at the last W."""
    own = [
        row for row in rows if row.get("curve") == T_MS and row.get("scale") == scale and number(row, "w_ms") == window
    ]
    if not own:
        return []
    row, costs = own[0], Costs.of(own[0])

    def per_window(model: Callable[[Setting, Costs], float]) -> Callable[[float], float]:
        def at(ms: float) -> float:
            return 1e3 * model(Setting.of({**row, "w_ms": ms}), costs) / ms

        return at

    said = []
    for name, model in (("the model for hash joins", by_hash), ("eq. 8, as for nested loops,", eq8)):
        found = crossing(per_window(model), windows, window)
        where = "at no window in reach" if found is None else f"at windows of {found / 1e3:,.0f} s"
        said.append(
            f"With the costs measured here (T_j {1e9 * costs.join:.1f} ns, T_s {1e9 * costs.store:.1f} ns) {name}"
            f" puts it {where} at scale {scale}."
        )
    return said
