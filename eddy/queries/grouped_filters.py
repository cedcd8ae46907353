"""Grouped filters: the sets of values of all versions, asked at once, in time that grows with the log of their number.

The ends of all ranges on a column cut its values into cells, in which no answer changes:

    version 0: 3 <= x <= 8        cuts   3  6  9            cell   null  …2  3…5  6…8  9…
    version 1: x >= 6, or null                              bits          1   0    0 1    1

A row is accepted by the versions whose bits are set in its cells of all columns. A version that asks nothing of a
column accepts all of its cells, null included. Texts are cut in the same way: the code of a text is the number of cuts
that are not after it.

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

from eddy.filters.ranges import GREATEST, LEAST, Codes, ColumnSet, Ranges, TextEnd, as_sets, codes, without_null
from eddy.queries.kernels import accepted_by_any, set_bits, share, text_codes
from stairs.plain_types import to_plain

Int64s = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


class TextCuts:
    """The cuts of a column of texts, numbered from 1 on in their order.

    A text of a cut has two of them, before and after it; one of the two may be missing.
    """

    def __init__(self, ends: Iterable[TextEnd]) -> None:
        cuts = sorted(set(ends))
        self.numbers = {cut: n for n, cut in enumerate(cuts, 1)}
        texts = sorted({text for text, _ in cuts})
        known = pa.array(texts, pa.large_binary())
        self._offsets, self._bytes = _buffers_of(known)
        # The code of a text between two texts, and of each text itself, in turn.
        befores = np.array([self.numbers.get((text, 0), 0) for text in texts], np.int64)
        afters = np.array([self.numbers.get((text, 1), 0) for text in texts], np.int64)
        turns = np.stack([befores, afters], axis=1).reshape(-1)
        self._places = np.maximum.accumulate(np.concatenate([_FIRST, turns]))

    def codes(self, column: pa.Array) -> Int64s:
        """Return the number of cuts that are not after each text, int64[rows]; any number for a null."""
        numbers = np.empty(len(column), np.int64)
        offsets, data = _buffers_of(column.cast(pa.large_binary()))
        text_codes(offsets, data, self._offsets, self._bytes, self._places, numbers)
        return numbers


def _buffers_of(texts: pa.Array) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return the offsets and the bytes of an array of large_binary."""
    _, offsets, data = texts.buffers()
    starts = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)
    return (
        starts[texts.offset : texts.offset + len(texts) + 1],
        np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
    )


_FIRST = np.zeros(1, np.int64)


class _Column(NamedTuple):
    """The cells of one column: number 0 is null, number n + 1 begins at cut n - 1.

    cuts   int64[cuts], ascending
    texts  the cuts of texts, whose numbers are the codes. None: not a column of texts
    base   the row of `bits` of its first cell
    """

    cuts: Int64s
    texts: TextCuts | None
    base: int


class GroupedFilters:
    """The sets of values of some versions, one version or more.

    sets    per version those that must all hold

    Memory: cells * versions bits. Not changed after it was made.
    """

    def __init__(self, sets: Sequence[Sequence[ColumnSet]]) -> None:
        self.versions = len(sets)
        wanted = {
            version: by_column
            for version, column_sets in enumerate(sets)
            if all((by_column := as_sets(column_sets)).values())
        }
        # The others accept nothing, as conditions of theirs contradict each other.
        self._everyone = _set_of(wanted, self.versions)
        asked: dict[str, dict[int, Ranges]] = {}
        for version, by_column in wanted.items():
            for column, ranges in by_column.items():
                asked.setdefault(column, {})[version] = ranges
        self._columns: dict[str, _Column] = {}
        blocks = [np.zeros((0, len(self._everyone)), np.int64)]
        for column, by_version in asked.items():
            at_null = [version for version, ranges in by_version.items() if without_null(ranges)[0]]
            by_version = {version: without_null(ranges)[1] for version, ranges in by_version.items()}
            texts = _texts_of(by_version)
            if texts is not None:
                by_version = {version: _numbered(ranges, texts.numbers) for version, ranges in by_version.items()}
            cuts, block = self._cells(by_version)
            block[0] |= _set_of(at_null, self.versions)
            self._columns[column] = _Column(cuts, texts, sum(map(len, blocks)))
            blocks.append(block)
        self._bits = np.concatenate(blocks)

    def _cells(self, asked: Mapping[int, Ranges]) -> tuple[Int64s, Int64s]:
        """Return the cuts of a column and the bits of its cells, given the ranges of each version that asks for it."""
        versions = np.array([version for version, ranges in asked.items() for _ in ranges], np.int64)
        lows = np.array([low for ranges in asked.values() for low, _ in ranges], np.int64)
        highs = np.array([end - 1 for ranges in asked.values() for _, end in ranges], np.int64)
        cuts = np.unique(np.concatenate([lows, highs[highs < GREATEST] + 1]))
        cuts = cuts[cuts > LEAST]
        bits = np.tile(self._everyone & ~_set_of(asked, self.versions), (len(cuts) + 2, 1))
        first = np.searchsorted(cuts, lows, side="right") + 1
        end = np.searchsorted(cuts, highs, side="right") + 2
        set_bits(bits, versions, first, end)
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
        accepted = np.empty(n, np.bool_)
        return None if accepted_by_any(cells, self._bits, always, accepted) == n else np.flatnonzero(accepted)

    def _located(self, n: int, values: Callable[[str], pa.Array | Codes]) -> tuple[Int64s, Int64s]:
        """Return the cells of each row in the columns with several, and the versions that the others leave."""
        always, column_cells = self._everyone.copy(), []
        for name, column in self._columns.items() if n else ():
            given, valid = values(name), None
            if isinstance(given, pa.Array):
                given = to_plain(given)  # a null of a dictionary may be among its values
            if isinstance(given, pa.Array) and (column.texts is not None or not len(column.cuts)):
                valid = np.asarray(given.is_valid()) if given.null_count else None
                given = np.zeros(len(given), np.int64) if column.texts is None else column.texts.codes(given)
            elif isinstance(given, pa.Array):
                given, valid = codes(given)
            if valid is None:
                least, greatest = np.searchsorted(column.cuts, [given.min(), given.max()], side="right")
                if least == greatest:
                    always &= self._bits[column.base + 1 + least]
                    continue
            cells = np.searchsorted(column.cuts, given, side="right") + (column.base + 1)
            column_cells.append(cells if valid is None else np.where(valid, cells, column.base))
        return np.stack(column_cells, axis=1) if column_cells else np.zeros((n, 0), np.int64), always


def _texts_of(asked: Mapping[int, Ranges]) -> TextCuts | None:
    """Return the cuts of a column of texts, None for another column."""
    ends = [end for ranges in asked.values() for span in ranges for end in span]
    return TextCuts(ends) if ends and isinstance(ends[0], tuple) else None


def _numbered(ranges: Ranges, numbers: Mapping[TextEnd, int]) -> Ranges:
    """Return ranges of texts as ranges of codes."""
    return tuple((numbers[low], numbers[end]) for low, end in ranges)


def _set_of(chosen: Iterable[int], versions: int) -> Int64s:
    """Return a set of versions as a row of bits, int64[words]."""
    named = np.fromiter(chosen, np.int64)
    bits = np.zeros((1, -(-versions // 64)), np.int64)
    set_bits(bits, named, np.zeros(len(named), np.int64), np.ones(len(named), np.int64))
    return bits[0]
