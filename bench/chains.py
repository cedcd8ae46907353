"""Chains of streams without a common key: their queries, the ways to place their joins, and the bars of the choice.

Stream S0 has key k0, S1 has k0 and k1, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import pyarrow as pa

from bench.harness.figure import Row, Say, spread
from bench.harness.turns import Mismatch
from eddy import Query, Range, Stream

WAYS = ("grid", "hops", "auto")
"""One round over a grid, several hops, and the choice between them."""
SHAPES: Mapping[str, tuple[float, float]] = {"selective": (0.25, 0.25), "fan-out": (4.0, 0.5)}
"""Partners of a tuple in the next stream, or in its window, for odd and for even neighbours."""


def chain(streams: int, more: Mapping[str, pa.DataType], select: Sequence[str], window: int | None = None) -> Query:
    """Return the query of a chain.

    more     further columns of each stream; "t" is the event time
    window   ticks of the windows, None = no windows
    """
    made, on = [], []
    for i in range(streams):
        keys = {f"k{c}": pa.int64() for c in (i - 1, i) if 0 <= c < streams - 1}
        schema = pa.schema([*keys.items(), *more.items()])
        span = None if window is None else Range(window)
        made.append(Stream(f"S{i}", schema, window=span, time="t" if "t" in more else None))
        if i:
            on.append(f"S{i - 1}.k{i - 1} = S{i}.k{i - 1}")
    return Query(made, on, select=list(select))


def in_turns(
    name: str, turns: int, warm: Sequence[str], run: Callable[[str], Mapping[str, float]], say: Say
) -> list[Row]:
    """Return a row for each way, measured in turns, and the ratios of auto to the other ways.

    warm  the ways that run once before the first turn: they warm the JVM and the workers
    run   joins in a way; returns `seconds`, `wall_s`, `results` and other figures

    Raises Mismatch if the results differ.
    """
    for way in warm:
        say(f"{name}: {way}, before the first turn")
        run(way)
    taken: dict[str, list[Mapping[str, float]]] = {way: [] for way in WAYS}
    for turn in range(1, turns + 1):
        first = turn % len(WAYS)  # a JVM becomes faster from join to join, for a few minutes
        for way in (*WAYS[first:], *WAYS[:first]):
            say(f"{name}: {way}, turn {turn} of {turns}")
            taken[way].append(run(way))
    if len({figures["results"] for runs in taken.values() for figures in runs}) > 1:
        raise Mismatch(f"{name}: grid, hops and auto give different results")
    rows: list[Row] = [
        {
            "way": way,
            **spread([figures["seconds"] for figures in runs], "seconds"),
            **spread([figures["wall_s"] for figures in runs], "wall_s"),
            **{k: median(figures[k] for figures in runs) for k in runs[0] if k not in ("seconds", "wall_s")},
        }
        for way, runs in taken.items()
    ]
    return [*rows, *auto_ratios(name, {way: [figures["seconds"] for figures in runs] for way, runs in taken.items()})]


def auto_ratios(name: str, seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return the seconds of auto over those of the better way and, if these differ by 3 or more, of the worse way.

    seconds   seconds of each way, turn by turn. A ratio is computed for each turn: the median, the least and the most.
              The better way is the way with the lower median
    """
    better, worse = sorted(("grid", "hops"), key=lambda way: median(seconds[way]))
    ratios = {"auto_vs_better": better}
    if median(seconds[worse]) >= 3 * median(seconds[better]):
        ratios["auto_vs_worse"] = worse
    return [{"figure": f"{name}.{ratio}", **_ratio(seconds["auto"], seconds[way])} for ratio, way in ratios.items()]


def _ratio(auto: Sequence[float], other: Sequence[float]) -> Row:
    ratios = [a / b for a, b in zip(auto, other, strict=True)]
    return spread(ratios, "value") if len(ratios) > 1 else {"value": ratios[0]}


def auto_bars(names: Iterable[str]) -> dict[str, str]:
    """Return the bar of each ratio of auto."""
    return {
        f"{name}.{ratio}": bar
        for name in names
        for ratio, bar in (("auto_vs_better", "≤ 1.1"), ("auto_vs_worse", "≤ 0.5"))
    }


def auto_titles(bars: Iterable[str]) -> dict[str, str]:
    """Return the title of each ratio."""
    return {name: name.replace(".", ", ") for name in bars}
