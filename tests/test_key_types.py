"""The tests' own conversions: plain values survive the conversion to Arrow and back, in every type that holds them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.key_types import FAMILIES, KeyTypeFamily, holds, to_arrow, to_plain, to_text


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_round_trip(family: KeyTypeFamily) -> None:
    for kind in family.types:
        values = [*family.domain(kind, family.values), None]
        array = to_arrow(values, kind)
        assert array.type == kind
        assert [to_text(value) for value in to_plain(array)] == [to_text(value) for value in values]


def test_what_a_type_cannot_hold() -> None:
    assert not holds(pa.int8(), 128)
    assert not holds(pa.timestamp("s"), 1)
    assert not holds(pa.float32(), 0.1)
    assert not holds(pa.float32(), 1e300)
    assert not holds(pa.timestamp("ns"), 253402300799 * 10**9)
