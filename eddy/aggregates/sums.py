"""Exact sums: numbers in limbs of 32 bits (`eddy.aggregates.kernels`), without rounding when rows enter or leave.

So a sum does not depend on the order of its numbers, on the plan, or on numbers that have left. Sums of floats are as
wide as the range of the exponents that occurred: one limb for each 32 powers of two. All groups of a query have the
same limbs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from eddy.aggregates.kernels import LIMB, MASK, add_floats, add_rows, carry, to_floats
from eddy.aggregates.words import Mask, decimal_array, decimal_words, float_values, plain_chunks, raw_words
from stairs.plain_types import Column, plain

Int64s = npt.NDArray[np.int64]
ODD = 3
"""Fields of a sum of floats before its limbs: counts of NaN, inf and -inf."""
_MAX_LIMBS = 70
"""More limbs than all exponents of float64 need."""
_LEAST_BASE = -34


@dataclass(frozen=True)
class Sum:
    """The sum of one input.

    kind   plain type of the input
    at     first field in the cells
    limbs  number of limbs
    base   the first limb counts 2^(32 base); 0 unless the input has floats

    A sum of floats of which all were zero so far has one limb.
    """

    kind: pa.DataType
    at: int
    limbs: int
    base: int = 0

    @classmethod
    def of(cls, kind: pa.DataType, at: int) -> Sum:
        """Return the sum of an input whose fields begin at `at`."""
        kind = plain(kind)
        if pt.is_floating(kind):
            return cls(kind, at, 1)
        return cls(kind, at, 2 * max(kind.bit_width // 64, 1) if pt.is_decimal(kind) else 2)

    @property
    def floats(self) -> bool:
        """Whether the input has floats."""
        return bool(pt.is_floating(self.kind))

    @property
    def width(self) -> int:
        """The number of fields."""
        return self.limbs + ODD * self.floats

    @property
    def first(self) -> int:
        """The field of the first limb."""
        return self.at + ODD * self.floats

    def fitting(self, column: Column) -> Sum:
        """Return the sum with limbs for all values of a column; the same sum if it has these limbs."""
        if not self.floats:
            return self
        least, most = self.base, self.base + self.limbs - 2
        for chunk in plain_chunks(column):
            values = np.abs(float_values(chunk))
            values = values[np.isfinite(values) & (values > 0)]
            if len(values):
                exponents = np.frexp(values[[values.argmin(), values.argmax()]])[1]
                low = max(int(exponents[0]) - 53, -1074) // LIMB
                if least > most:
                    least = most = low
                least, most = min(least, low), max(most, int(exponents[1]) // LIMB)
        if least > most:
            return self
        # One limb above the greatest value takes what is carried.
        wider = replace(self, base=least, limbs=most + 2 - least)
        return self if (wider.base, wider.limbs) == (self.base, self.limbs) else wider

    def covering(self, other: Sum) -> Sum:
        """Return the sum with all limbs of another sum added; the same sum if it has these limbs."""
        if not self.floats or other.limbs == 1:
            return self
        least, end = other.base, other.base + other.limbs
        if self.limbs > 1:
            least, end = min(least, self.base), max(end, self.base + self.limbs)
        wider = replace(self, base=least, limbs=end - least)
        return self if (wider.base, wider.limbs) == (self.base, self.limbs) else wider

    def moved(self, limbs: Int64s, new: Sum) -> Int64s:
        """Return limbs of this sum as limbs of a wider sum."""
        wider = np.zeros((len(limbs), new.limbs), np.int64)
        if self.limbs == 1:
            # All values were zeros; the first other values decide where the limbs begin.
            return wider
        below = self.base - new.base
        wider[:, below : below + self.limbs] = limbs
        carry(wider)
        return wider

    def add(self, column: Column, valid: Mask, signs: Int64s, numbers: Int64s, totals: Int64s) -> None:
        """Add signs[x] times each value that is not null to the cells totals[numbers[x]]."""
        at = 0
        for chunk in plain_chunks(column):
            rows = slice(at, at + len(chunk))
            at += len(chunk)
            targets = np.where(valid[rows], numbers[rows], -1)
            limbs = np.zeros((len(totals), self.limbs), np.int64)
            if self.floats:
                odd = np.zeros((len(totals), ODD), np.int64)
                add_floats(float_values(chunk), signs[rows].copy(), targets, self.base, limbs, odd)
                totals[:, self.at : self.first] += odd
            else:
                add_rows(_limbs(chunk) * signs[rows, None], targets, limbs)
            totals[:, self.first : self.first + self.limbs] += limbs

    def normal(self, cells: Int64s) -> None:
        """Bring the sum in some cells into normal form."""
        limbs = np.ascontiguousarray(cells[:, self.first : self.first + self.limbs])
        carry(limbs)
        cells[:, self.first : self.first + self.limbs] = limbs

    # Results

    def floats_of(self, cells: Int64s) -> npt.NDArray[np.float64]:
        """Return the float64 that is nearest to each sum; of decimals, to the number without its point."""
        limbs = np.ascontiguousarray(cells[:, self.first : self.first + self.limbs])
        floats = np.zeros(len(cells))
        to_floats(limbs, self.base, np.zeros(self.limbs + 3, np.uint64), floats)
        if self.floats:
            nans, positive, negative = (cells[:, self.at + k] > 0 for k in range(ODD))
            floats[positive], floats[negative] = np.inf, -np.inf
            floats[nans | (positive & negative)] = np.nan
        return floats

    def array(self, cells: Int64s, valid: Mask, kind: pa.DataType) -> tuple[pa.Array, Mask]:
        """Return the sums in a type, null where they are not valid or exceed its range, and which of them exceed it."""
        if self.floats:
            return pa.array(self.floats_of(cells), mask=~valid), np.zeros(len(cells), np.bool_)
        limbs = cells[:, self.first : self.first + self.limbs]
        limbs = np.where(valid[:, None], limbs, 0)
        last = limbs[:, -1]
        if pt.is_decimal(kind):
            return self._decimals(limbs, valid, kind)
        unsigned = pt.is_unsigned_integer(kind)
        low, high = (0, MASK) if unsigned else (-(1 << 31), (1 << 31) - 1)
        beyond = (last < low) | (last > high)
        words = (last << LIMB) | limbs[:, 0]
        sums = pa.array(words.view(np.uint64) if unsigned else words, mask=~valid | beyond)
        return (sums.view(kind) if pt.is_duration(kind) else sums), beyond

    def _decimals(self, limbs: Int64s, valid: Mask, kind: pa.DataType) -> tuple[pa.Array, Mask]:
        count = kind.bit_width // 64
        words = np.zeros((len(limbs), count), np.int64)
        last = limbs[:, -1]
        spread = np.column_stack([limbs[:, :-1], last & MASK, (last >> LIMB) & MASK, last >> 63])
        whole = np.repeat((last >> 63)[:, None] & MASK, 2 * count, axis=1)
        n = min(2 * count, spread.shape[1] - 1)
        whole[:, :n] = spread[:, :n] & MASK
        for k in range(count):
            words[:, k] = whole[:, 2 * k] | (whole[:, 2 * k + 1] << LIMB)
        beyond = np.zeros(len(limbs), np.bool_)
        if self.limbs >= 2 * count:
            beyond |= (last >> 31) != (last >> 63)
        try:
            decimal_array(words, kind).validate(full=True)
        except pa.ArrowInvalid:
            raw, size, most = words.tobytes(), 8 * count, 10**kind.precision
            parts = (raw[at : at + size] for at in range(0, len(raw), size))
            beyond |= [abs(int.from_bytes(part, "little", signed=True)) >= most for part in parts]
        return decimal_array(words, kind, valid & ~beyond), beyond

    def check(self, limbs: Int64s) -> bool:
        """Return whether numbers can be the limbs of this sum: they have the normal form."""
        return bool(((limbs[:, :-1] >= 0) & (limbs[:, :-1] <= MASK)).all())


def valid_range(base: int, limbs: int, floats: bool) -> bool:
    """Return whether a sum of floats can have this base and so many limbs."""
    return floats and base >= _LEAST_BASE and 1 <= limbs <= _MAX_LIMBS and base + limbs <= 35


def _limbs(column: pa.Array) -> Int64s:
    """Return numbers as limbs, int64[n, limbs], the last one signed."""
    if pt.is_decimal(column.type):
        words = decimal_words(column)
    else:
        words = raw_words(column).reshape(-1, 1)
    limbs = np.empty((len(words), 2 * words.shape[1]), np.int64)
    limbs[:, ::2] = words & MASK
    limbs[:, 1::2] = words >> LIMB
    limbs[:, 1:-1:2] &= MASK
    if pt.is_uint64(column.type):
        limbs[:, -1] &= MASK
    return limbs
