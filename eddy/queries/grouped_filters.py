"""Grouped filters: the ranges of all versions, asked at once, in time that grows with the log of their number.

The ends of all ranges on a column cut its values into cells, in which no answer changes:

    version 0: 3 <= x <= 8        cuts   3  6  9            cell   null  …2  3…5  6…8  9…
    version 1: x >= 6                                       bits          -   0    0 1    1

A row is accepted by the versions whose bits are set in its cells of all columns. A version that asks nothing of a
column accepts all of its cells, null included.

A sorted array of cuts is made anew when a version comes or goes, in O(versions * log(versions) + bits set), 1 ms for
1 000 versions; it serves the search of the kernels as it is, so no structure for adding and removing lies beside it.
Source: Madden, Shah, Hellerstein, Raman, "Continuously adaptive continuous queries over streams", SIGMOD 2002,
sec. 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.ranges import GREATEST, LEAST, Codes, ColumnRange, codes
from eddy.queries.kernels import accepted_by_any, set_bits, share

Int64s = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


class _Column(NamedTuple):
    """The cells of one column: number 0 is null, number n + 1 begins at cut n - 1.

    cuts   int64[cuts], ascending
    texts  the texts that versions ask for, ascending, as an Arrow array; their numbers are the codes. None: not a text
    base   the row of `bits` of its first cell
    """

    cuts: Int64s
    texts: pa.Array | None
    base: int


class GroupedFilters:
    """The ranges of some versions, one version or more.

    ranges  per version those that must all hold

    Memory: cells * versions bits. Not changed after it was made.
    """

    def __init__(self, ranges: Sequence[Sequence[ColumnRange]]) -> None:
        self.versions = len(ranges)
        self._everyone = _set_of(range(self.versions), self.versions)
        texts: dict[str, set[str]] = {}
        for one in (one for own in ranges for one in own if one.text is not None):
            texts.setdefault(one.column, set()).add(str(one.text))
        number = {column: {text: n for n, text in enumerate(sorted(own))} for column, own in texts.items()}
        asked: dict[str, dict[int, tuple[int, int]]] = {}
        for version, own in enumerate(ranges):
            for column, low, high, text in own:
                if text is not None:
                    low = high = number[column][text]
                before = asked.setdefault(column, {}).get(version, (LEAST, GREATEST))
                asked[column][version] = max(low, before[0]), min(high, before[1])
        self._columns: dict[str, _Column] = {}
        blocks = [np.zeros((0, len(self._everyone)), np.int64)]
        for column, by_version in asked.items():
            cuts, block = self._cells(by_version)
            known = pa.array(sorted(texts[column])) if column in texts else None
            self._columns[column] = _Column(cuts, known, sum(map(len, blocks)))
            blocks.append(block)
        self._bits = np.concatenate(blocks)

    def _cells(self, asked: Mapping[int, tuple[int, int]]) -> tuple[Int64s, Int64s]:
        """Return the cuts of a column and the bits of its cells, given the range of each version that has one."""
        within = {version: ends for version, ends in asked.items() if ends[0] <= ends[1]}
        lows = np.array([low for low, _ in within.values()], np.int64)
        highs = np.array([high for _, high in within.values()], np.int64)
        cuts = np.unique(np.concatenate([lows, highs[highs < GREATEST] + 1]))
        cuts = cuts[cuts > LEAST]
        bits = np.tile(self._everyone & ~_set_of(asked, self.versions), (len(cuts) + 2, 1))
        first = np.searchsorted(cuts, lows, side="right") + 1
        end = np.searchsorted(cuts, highs, side="right") + 2
        set_bits(bits, np.fromiter(within, np.int64), first, end)
        return cuts, bits

    def share(self, n: int, values: Callable[[str], pa.Array | Codes]) -> dict[int, Int64s | None]:
        """Return, by the number of each version that accepts rows, their numbers, ascending; None for all rows.

        n       the number of rows
        values  returns a column, or codes
        """
        cells, always = self._located(n, values)
        if not cells.shape[1]:
            bits = np.unpackbits(always.view(np.uint8), count=self.versions, bitorder="little")
            return dict.fromkeys(np.flatnonzero(bits).tolist())
        counts = np.zeros(self.versions, np.int64)
        share(cells, self._bits, always, counts, _NONE)
        ends = np.cumsum(counts)
        rows, cursor = np.empty(ends[-1], np.int64), ends - counts
        if len(rows):
            share(cells, self._bits, always, cursor, rows)
        some = np.flatnonzero(counts)
        return {v: rows[end - counts[v] : end] for v, end in zip(some.tolist(), ends[some].tolist(), strict=True)}

    def wanted(self, n: int, values: Callable[[str], pa.Array | Codes]) -> Int64s | None:
        """Return the numbers of the rows that any version accepts, ascending; None for all rows."""
        cells, always = self._located(n, values)
        if not cells.shape[1]:
            return None if always.any() else _NONE
        found = np.empty(n, np.bool_)
        return None if accepted_by_any(cells, self._bits, always, found) == n else np.flatnonzero(found)

    def _located(self, n: int, values: Callable[[str], pa.Array | Codes]) -> tuple[Int64s, Int64s]:
        """Return the cells of each row in the columns with several, and the versions that the others leave."""
        always, found = self._everyone.copy(), []
        for name, column in self._columns.items() if n else ():
            given, valid = values(name), None
            if column.texts is not None and isinstance(given, pa.Array):
                given = np.asarray(pc.index_in(given, column.texts.cast(given.type)).fill_null(-1)).astype(np.int64)
            elif isinstance(given, pa.Array):
                given, valid = codes(given)
            if valid is None:
                least, greatest = np.searchsorted(column.cuts, [given.min(), given.max()], side="right")
                if least == greatest:
                    always &= self._bits[column.base + 1 + least]
                    continue
            cells = np.searchsorted(column.cuts, given, side="right") + (column.base + 1)
            found.append(cells if valid is None else np.where(valid, cells, column.base))
        return np.stack(found, axis=1) if found else np.zeros((n, 0), np.int64), always


def _set_of(chosen: Iterable[int], versions: int) -> Int64s:
    """Return a set of versions as a row of bits, int64[words]."""
    named = np.fromiter(chosen, np.int64)
    bits = np.zeros((1, -(-versions // 64)), np.int64)
    set_bits(bits, named, np.zeros(len(named), np.int64), np.ones(len(named), np.int64))
    return bits[0]
