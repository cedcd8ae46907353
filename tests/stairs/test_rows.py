"""Places of rows of arrival numbers: each number lies where a search from the left finds it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from stairs.kernels.rows import to_places


@pytest.mark.parametrize("seed", range(20))
def test_numbers_lie_where_a_search_finds_them(seed: int) -> None:
    draw = Random(seed)
    # Old versions are few and far between, or many of a late time; the newest ones follow each other.
    far = sorted({int(10 ** draw.uniform(0, 9)) for _ in range(draw.choice((0, 1, 5, 300)))})
    first = (far[-1] if far else 0) + draw.randint(1, 9)
    kept = np.array(far + list(range(first, first + draw.choice((0, 1, 40)))), np.int64)
    low = draw.randint(0, 99)
    rows = np.full((len(kept) + 2, 3), -1, np.int64)
    rows[: len(kept), 1] = kept
    to_places(rows, 1, kept, len(far), low)
    assert rows[: len(kept), 1].tolist() == list(range(low, low + len(kept)))
    rows[: len(kept), 1] = -1
    assert (rows == -1).all()
