"""Figures of filters: as a table, and as lines of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter

SCHEMA = pa.schema(
    [
        ("where", pa.string()),
        ("predicate", pa.string()),
        ("position", pa.int64()),
        ("rows", pa.int64()),
        ("accepted", pa.int64()),
        ("seconds", pa.float64()),
        ("call_us", pa.float64()),
        ("row_ns", pa.float64()),
        ("selectivity", pa.float64()),
        ("selectivity_alone", pa.float64()),
        ("reorders", pa.int64()),
    ]
)
"""The columns of `Runtime.filters()`."""


def filter_table(filters: Mapping[str, AdaptiveFilter]) -> pa.Table:
    """Return the figures of filters as a table, a row for each predicate (see `AdaptiveFilter.stats`)."""
    rows = [{"where": name, **figures} for name, row_filter in filters.items() for figures in row_filter.stats()]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def filter_lines(filters: Mapping[str, AdaptiveFilter]) -> Iterator[str]:
    """Yield a line for each filter of several predicates: their order, selectivity and cost."""
    for name, row_filter in filters.items():
        if len(row_filter.predicates) < 2:
            continue
        asked = []
        for figures in row_filter.stats():
            share, cost = figures["selectivity"], figures["row_ns"]
            known = "-" if share is None or cost is None else f"{share:.3g} of rows, {cost:.3g} ns a row"
            asked.append(f"{figures['predicate']} ({known})")
        yield f"filter of {name}: {' → '.join(asked)}, {row_filter.reorders} changes of order"
