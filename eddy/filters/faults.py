"""Rows on which an expression has no value, such as a division by zero: the failing rows and the reason of each.

Arrow evaluates an expression on a whole batch, and reports only that some row fails. Then the batch is halved until
the failing rows are alone. Batches without a failing row take no extra time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError)
"""The errors that Arrow raises for an expression that does not fit its rows."""


class Fault(NamedTuple):
    """The reason for which a row or a group has no result.

    kind        "filter", "where", "group_by", "aggregate", "having" or "select"
    expression  the text of the expression that has no value
    reason      the message of Arrow, or a sum that exceeds its type
    """

    kind: str
    expression: str
    reason: str


Faults = dict[int, Fault]
"""Faults by the number of the row, ascending."""


def reasons(evaluate: Callable[[pa.Table], object], rows: pa.Table, most: int | None = None) -> dict[int, str]:
    """Return the numbers of the rows on which an evaluation raises an error of Arrow, ascending, each with its reason.

    most   how many rows to find, None = all
    Raises the error if it does not come from single rows. Cost: O(failing rows * log(rows)) evaluations.
    """
    failing: dict[int, str] = {}
    parts = [(0, rows.num_rows)]
    while parts and (most is None or len(failing) < most):
        first, end = parts.pop()
        try:
            evaluate(rows.slice(first, end - first))
        except FAILURES as error:
            if end - first == 0:
                raise
            if end - first == 1:
                failing[first] = str(error).splitlines()[0] if str(error) else type(error).__name__
                continue
            middle = (first + end) // 2
            parts += [(middle, end), (first, middle)]
    return failing


def others(faults: Mapping[int, object], count: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows without a fault, of `count` rows, ascending."""
    kept = np.ones(count, np.bool_)
    kept[list(faults)] = False
    return np.flatnonzero(kept)
