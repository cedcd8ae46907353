"""Synopses of windows: the frequencies of keys, from which joins of several hops are predicted.

A stream counts the keys of a slice of the hash values, the same slice in all streams of a class. The expected matches
of a tuple whose key has distribution d in a window with distribution p are w · Σ d(v) p(v); after the join, the key has
the distribution d·p, normalised. Keys of different classes of a stream count as independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eddy.placement.places import coordinates
from eddy.placement.tuples import Ints

Floats = npt.NDArray[np.float64]
SLICES = 1 << 16
MOST_KEYS = 1024


@dataclass(frozen=True, eq=False)
class Distribution:
    """The share of tuples that have each key, for the keys of a slice of the hash values.

    keys     int64[n], ascending
    shares   float64[n]
    slice    the part of all hash values that the keys are from, of SLICES
    """

    keys: Ints
    shares: Floats
    slice: int = SLICES
    _met: dict[Distribution, tuple[float, Distribution]] = field(default_factory=dict, init=False, repr=False)
    """Cached return values of `meet`: a planner tries many orders, in which the same few pairs occur."""

    def sliced(self, most: int) -> Distribution:
        """Return the part of a smaller slice."""
        if most >= self.slice:
            return self
        kept = coordinates(self.keys, SLICES) < most
        return Distribution(self.keys[kept], self.shares[kept], most)

    @property
    def selectivity(self) -> float:
        """The mean fraction of the tuples that share a value: the paper's f."""
        return float((self.shares**2).sum()) * SLICES / self.slice

    def meet(self, other: Distribution) -> tuple[float, Distribution]:
        """Return the chance that two tuples have the same key, and the distribution of the key that they share.

        Further calls with the same pair return the same objects. The first call costs a merge of both key arrays.
        """
        if other not in self._met:
            self._met[other] = other._met[self] = self._meeting(other)
        return self._met[other]

    def _meeting(self, other: Distribution) -> tuple[float, Distribution]:
        most = min(self.slice, other.slice)
        mine, two = self.sliced(most), other.sliced(most)
        keys, left, right = np.intersect1d(mine.keys, two.keys, assume_unique=True, return_indices=True)
        both = mine.shares[left] * two.shares[right]
        chance = float(both.sum())
        # The slice holds a part of all keys, and therefore the same part of the shares.
        shares = both / chance * (most / SLICES) if chance else both
        return chance * SLICES / most, Distribution(keys, shares, most)

    def mixed(self, other: Distribution, weight: float) -> Distribution:
        """Return the distribution of rows of which a share of `weight` comes from another distribution."""
        most = min(self.slice, other.slice)
        mine, two = self.sliced(most), other.sliced(most)
        keys, at = np.unique(np.concatenate([mine.keys, two.keys]), return_inverse=True)
        shares = np.concatenate([mine.shares * (1 - weight), two.shares * weight])
        return Distribution(keys, np.bincount(at, shares, len(keys)).astype(np.float64), most)


def distribution(keys: Ints, most_keys: int = MOST_KEYS) -> Distribution:
    """Return the distribution of the keys of rows; at most about `most_keys` keys are counted."""
    distinct, counts = np.unique(keys, return_counts=True)
    whole = Distribution(distinct, counts / max(len(keys), 1))
    most = SLICES
    while len(whole.sliced(most).keys) > most_keys and most > 1:
        most //= 2
    return whole.sliced(most)


@dataclass(frozen=True)
class Synopsis:
    """Figures of one stream.

    rate          rows per epoch
    window        rows in the window
    tuple_bytes   mean bytes of a row
    keys          by class, the distribution of the keys of the window
    """

    rate: float
    window: float
    tuple_bytes: float
    keys: Mapping[int, Distribution]

    @property
    def preceding(self) -> float:
        """The mean number of rows of the window before a row of the epoch.

        These are all older rows of the window and half of the rows of the epoch.
        """
        return max(self.window - self.rate / 2, 0.0)
