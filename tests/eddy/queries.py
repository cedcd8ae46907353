"""Queries by the columns of their streams, for tests of data and plans."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

import eddy


def make_query(columns: Mapping[str, str], window: eddy.Rows | eddy.Unbounded) -> eddy.Query:
    """Return a query over streams with these int64 columns, one letter each; columns of one name are equal."""
    streams, predicates, last = [], [], dict[str, str]()
    for name, letters in columns.items():
        streams.append(eddy.Stream(name, pa.schema([(column, pa.int64()) for column in letters]), window=window))
        for column in letters:
            if column in last:
                predicates.append(f"{last[column]}.{column} = {name}.{column}")
            last[column] = name
    return eddy.Query(streams, predicates)
