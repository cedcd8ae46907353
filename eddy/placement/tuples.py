"""Tuples as arrays: rows of one stream, or intermediate tuples with a row of each stream joined so far.

    rows     by stream int64[n], the arrival number of the component in its stream
    keys     by attribute class int64[n], the key; two keys are equal exactly if these numbers are
    time     int64[n], event time of the head
    newest   int64[n], greatest event time of the components
    due      int64[n], least of (event time + window) over the components: newest <= due, or the tuple joins nothing

These arrays hold no payload: a component's row number stands for its row, and `n_bytes` counts the bytes of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Tuples(NamedTuple):
    """Tuples of one source; all arrays have one entry per tuple."""

    rows: Mapping[int, Ints]
    keys: Mapping[int, Ints]
    time: Ints
    newest: Ints
    due: Ints

    @property
    def size(self) -> int:
        """The number of tuples."""
        return len(self.time)

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Tuples:
        """Return the chosen tuples."""
        return Tuples(
            {i: rows[chosen] for i, rows in self.rows.items()},
            {c: keys[chosen] for c, keys in self.keys.items()},
            self.time[chosen],
            self.newest[chosen],
            self.due[chosen],
        )

    def n_bytes(self, widths: Sequence[float]) -> float:
        """Return the bytes of these tuples; `widths` has the mean bytes of a row of each stream."""
        return self.size * sum(widths[i] for i in self.rows)


def merged(parts: Sequence[Tuples]) -> Tuples:
    """Return the tuples of several parts of the same source, one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Tuples(
        {i: np.concatenate([part.rows[i] for part in parts]) for i in first.rows},
        {c: np.concatenate([part.keys[c] for part in parts]) for c in first.keys},
        *(np.concatenate([part[k] for part in parts]) for k in (2, 3, 4)),
    )


def _in(keys: Ints, known: Ints) -> npt.NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(keys), bool)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys


def without(keys: Ints, known: Ints) -> Ints:
    """Return the keys that are not in the ascending array `known`, in ascending order and without duplicates."""
    distinct = np.unique(keys)
    return distinct[~_in(distinct, known)]


def common(keys: Ints, known: Ints) -> Ints:
    """Return the keys that are in the ascending array `known`, in the order of the keys."""
    return keys[_in(keys, known)]
