"""Growth by what the data are: keys and their skew, partners, results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import expm1, log1p

from bench.growth.curves import against, curves, slopes
from bench.growth.plots import BYTES, COMMON, PER_OUTCOME, TIME, memory, size, throughput, told
from bench.growth.ways import DEFAULT, LOOP, measure, point
from bench.harness.figure import Figure, Point, Row, Say
from bench.harness.rows import number

DISTINCT, SKEWED = "distinct keys", "skew"


def _keys(full: bool) -> list[Point]:
    sizes = size(full, 100_000, 30_000)
    common: dict[str, int] = {"streams": 2, "window": 10_000, "push": 10_000, **sizes}
    distinct = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000) if full else (1_000, 10_000, 100_000, 1_000_000)
    skews = (0.0, 0.25, 0.5, 0.75, 1.0) if full else (0.0, 0.5, 0.9)
    found = [point(keys=keys, series=DISTINCT, **common) for keys in distinct]
    return found + [point(keys=10_000, skew=skew, series=SKEWED, **common) for skew in skews]


def _key_remarks(rows: Sequence[Row]) -> list[str]:
    distinct = [row for row in rows if row.get("series") == DISTINCT]
    said = slopes(distinct, "keys", "keys", {"ns": TIME, "ns_per_outcome": PER_OUTCOME, "bytes": BYTES})
    said += against(distinct, "keys", "keys", DEFAULT, LOOP)
    skewed = [row for row in rows if row.get("series") == SKEWED]
    for way, own in curves(skewed, "skew", "ns").items():
        outcomes = dict(curves(skewed, "skew", "ns_per_outcome").get(way, []))
        if len(own) > 1 and {own[0][0], own[-1][0]} <= set(outcomes):
            (least, fast), (most, slow) = own[0], own[-1]
            said.append(
                f"{way}: an arrival takes {slow / fast:.2f} × as long under skew {most:g} as under {least:g},"
                f" an arrival or result {outcomes[most] / outcomes[least]:.2f} ×."
            )
    return said


def _measure_keys(one: Point, say: Say) -> list[Row]:
    """Return the rows of `measure` with the time for each arrival and result alike, `ns_per_outcome`."""
    rows = measure(one, say)
    return [{**row, "ns_per_outcome": per_outcome(row)} for row in rows]


def per_outcome(row: Row) -> float:
    """Return the ns of a row for each arrival and result alike."""
    return number(row, "ns") / (1 + number(row, "results_per_arrival"))


KEYS = Figure(
    name="growth-keys",
    title="Throughput and bytes by the number of keys and their skew",
    about=(
        "Two streams, windows of 10 000 rows. Distinct keys: uniform among 10^3 to 10^6, so that a key has"
        " ten rows in a window or hardly ever one, and results go from ten an arrival to a hundredth; beyond"
        " 20 000 keys most arrivals bring a key that the directory has not got, or has given up. Skew: 10 000"
        " keys, key k as likely as k^-skew (0 = uniform, 1 = Zipf), where a few keys have long chains and most"
        " of the results. As results differ, the time is given by arrivals and by arrivals and results"
        " together." + COMMON
    ),
    points=_keys,
    measure=_measure_keys,
    plots=[
        replace(throughput("keys", "distinct keys"), where={"series": DISTINCT}),
        replace(memory("keys", "distinct keys"), where={"series": DISTINCT}),
        replace(throughput("skew", "skew"), name="skew", log_x=False, where={"series": SKEWED}),
    ],
    remarks=_key_remarks,
)


def partner_share(keys: int, window: int) -> float:
    """Return how likely a window of uniform keys holds a given one: the share of arrivals with a partner there."""
    return -expm1(window * log1p(-1.0 / keys))


def _selectivity(full: bool) -> list[Point]:
    window = 10_000
    # Half a window of keys gives eight results an arrival; 1 000 windows of them next to none.
    shares = (0.5, 1, 2, 4, 10, 30, 100, 1_000) if full else (0.5, 2, 10, 100)
    return [
        point(
            streams=4,
            window=window,
            keys=int(share * window),
            push=10_000,
            partners=partner_share(int(share * window), window),
            **size(full, 200_000, 50_000),
        )
        for share in shares
    ]


SELECTIVITY = Figure(
    name="growth-selectivity",
    title="Throughput and bytes by the share of arrivals that find a partner",
    about=(
        "Four streams, windows of 10 000 rows, keys uniform among half a window to 1 000 windows of them. An"
        " arrival finds a partner in one given other window with probability 1 - (1 - 1/keys)^rows, which is"
        " the axis; it gives a result only if it does in all three. At the left end most arrivals have no"
        " partner anywhere, but bring a key that the directory has to take in, and to give up later." + COMMON
    ),
    points=_selectivity,
    measure=measure,
    plots=[
        throughput("partners", "share of arrivals with a partner in a given window"),
        memory("partners", "share of arrivals with a partner in a given window"),
    ],
    remarks=told("partners", "share", {"ns": TIME, "bytes": BYTES}),
)


TIMES = 3
"""Windows that an arrival of four streams is multiplied with."""
FOUND = "results_per_arrival"


def _results(full: bool) -> list[Point]:
    window = 10_000
    found = []
    for results in (0.01, 0.1, 1, 10, 100) if full else (0.01, 1, 100):
        keys = round(window / results ** (1 / TIMES))
        arrivals = size(full, 200_000, 50_000) if results <= 1 else size(full, 40_000, 10_000)
        found.append(point(streams=4, window=window, keys=keys, push=10_000, wanted=results, **arrivals))
    return found


RESULTS = Figure(
    name="growth-results",
    title="Throughput and bytes by results per arrival",
    about=(
        "Four streams, windows of 10 000 rows, keys uniform among as many as make 0.01 to 100 results an"
        " arrival on average: (rows / keys)^3. The axis is what was found." + COMMON
    ),
    points=_results,
    measure=_measure_keys,
    plots=[throughput(FOUND, "results per arrival"), memory(FOUND, "results per arrival")],
    remarks=told(FOUND, "results", {"ns": TIME, "ns_per_outcome": PER_OUTCOME, "bytes": BYTES}),
)
