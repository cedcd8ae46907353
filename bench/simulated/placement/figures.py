"""Figures of streams, measured over the rows of their windows: for plans over many nodes, and for the paper's plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eddy.placement.costs import StreamStatistics
from eddy.placement.synopses import Synopsis, distribution
from eddy.placement.tuples import Tuples, merged


def synopses(
    windows: Sequence[Sequence[Tuples]],
    rates: Sequence[float],
    row_bytes: Sequence[float],
    classes: Sequence[frozenset[int]],
) -> list[Synopsis]:
    """Return the figures of all streams.

    windows    per stream the rows of its window, in parts
    rates      per stream its rows per epoch
    row_bytes  per stream the mean bytes of a row
    classes    per stream the attribute classes that it has
    """
    figures = []
    for i, logged in enumerate(windows):
        if not any(rows.size for rows in logged):
            nothing = {c: distribution(np.zeros(1, np.int64)) for c in classes[i]}
            figures.append(Synopsis(rates[i] or 1.0, 1.0, row_bytes[i] or 8.0, nothing))
            continue
        rows = merged(logged)
        keys = {c: distribution(values) for c, values in rows.keys.items()}
        figures.append(Synopsis(rates[i], rows.size, row_bytes[i], keys))
    return figures


def statistics(figures: Sequence[Synopsis], classes: int) -> list[StreamStatistics]:
    """Return the figures of all streams in the form of the paper's cost model; `classes` is the number of classes."""
    return [
        StreamStatistics(
            figure.rate,
            figure.window,
            figure.tuple_bytes,
            tuple(figure.keys[c].selectivity if c in figure.keys else None for c in range(classes)),
        )
        for figure in figures
    ]


def unknown(classes: int, present: frozenset[int]) -> StreamStatistics:
    """Return figures of a stream before the first measurement."""
    return StreamStatistics(1.0, 1.0, 1.0, tuple(1.0 if c in present else None for c in range(classes)))


def differ(old: StreamStatistics, new: StreamStatistics, factor: float) -> bool:
    """Return whether a figure has changed by more than a factor."""
    pairs = [(old.rate, new.rate), (old.window, new.window), (old.tuple_bytes, new.tuple_bytes)]
    pairs += [(a or 0.0, b or 0.0) for a, b in zip(old.selectivity, new.selectivity, strict=True)]
    return any(max(pair) > factor * min(pair) for pair in pairs)
