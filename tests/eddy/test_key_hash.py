"""Hashes for partitioning by key: a key has the same hash in every stream and type, and other keys have others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.oracle import Row
from eddy.ingest.keys import key_hash
from tests.cases import Arrival, Case, arrow_rows
from tests.draws import arrivals, cases


def plain_key(row: Row, components: tuple[tuple[str, ...], ...]) -> tuple[Any, ...] | None:
    """Return the key of a row; None if it equals nothing: a null, NaN, or unequal columns of one component."""
    key = []
    for columns in components:
        first, *others = (row[column] for column in columns)
        if first is None or first != first or any(other is None or other != first for other in others):
            return None
        key.append(first)
    return tuple(key)


@given(st.data())
def test_equal_keys_have_equal_hashes_in_all_streams(data: st.DataObject) -> None:
    case: Case = data.draw(cases())
    rows: list[Arrival] = data.draw(arrivals(case))
    query: eddy.Query = case.query()
    for c, one in enumerate(query.classes):
        hash_of: dict[tuple[Any, ...], int] = {}
        for i, stream in enumerate(case.streams):
            if stream.name not in one.columns:
                continue
            own = [row for at, row in rows if at == i]
            batch = arrow_rows(stream.schema, own, data.draw(st.integers(0, 2)))
            hashes, joinable = key_hash(query, c, stream.name, batch)
            keys = [plain_key(row, one.columns[stream.name]) for row in own]
            assert joinable.tolist() == [key is not None for key in keys]
            for key, found in zip(keys, hashes.tolist(), strict=True):
                if key is None:
                    assert found == 0
                else:
                    assert hash_of.setdefault(key, found) == found
        assert len(set(hash_of.values())) == len(hash_of)
