"""From rows to words: the words of the group of a row, and those of its place in the order (`eddy.tops.trees`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.words import Words, encode
from eddy.query.top import Ranking
from eddy.tops.trees import DESCENDING, TEXT
from stairs.bytes_directory import BytesDirectory

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class RankedRows:
    """The words of rows of one schema, given what makes their groups and their order.

    ties   names of integer columns that decide between rows of equal order
    width  number of words of the place of a row
    """

    def __init__(self, ranking: Ranking, rows: pa.Schema, ties: list[str]) -> None:
        self._by, self._order, self._ties = ranking.by, [column.name for column in ranking.order], ties
        self._groups = [Words(rows.field(name).type) for name in ranking.by]
        self._places = [Words(rows.field(name).type) for name in self._order]
        self.key_words = len(self._groups) + 1
        self.width = len(self._places) + 1 + len(ties)
        kinds = zip(self._places, ranking.order, strict=True)
        self.kinds = np.array(
            [TEXT * encoding.text | DESCENDING * column.descending for encoding, column in kinds], np.int64
        )
        # Values come after nulls where nulls come first.
        self._turned = np.int64(sum(1 << k for k, column in enumerate(ranking.order) if column.nulls_first))

    def keys(self, table: pa.Table, texts: BytesDirectory) -> Int64s:
        """Return the words of the groups of rows, int64[n, key_words]."""
        return encode(
            [(encoding, table[name]) for encoding, name in zip(self._groups, self._by, strict=True)], texts, len(table)
        )

    def places(self, table: pa.Table, texts: BytesDirectory) -> Int64s:
        """Return the words of the places of rows, int64[n, width]."""
        columns = [(encoding, table[name]) for encoding, name in zip(self._places, self._order, strict=True)]
        words = encode(columns, texts, len(table))
        words[:, -1] ^= self._turned
        ties = [np.asarray(table[name]).astype(np.int64, copy=False) for name in self._ties]
        return np.ascontiguousarray(np.column_stack([words, *ties])) if ties else words

    def text_ids(self, keys: Int64s, places: Int64s) -> Iterator[Int64s]:
        """Yield the ids of byte strings in words of groups and of places."""
        for types, words, turned in ((self._groups, keys, np.int64(0)), (self._places, places, self._turned)):
            for k, encoding in enumerate(types):
                if encoding.text:
                    nulls = (words[:, len(types)] ^ turned) >> k & 1
                    yield words[nulls == 0, k]

    def ranks(self, places: Int64s, texts: BytesDirectory) -> Int64s:
        """Return numbers int64[n, …] whose order from left to right is that of places. O(n log n)."""
        late, columns = places[:, len(self._places)], list[Int64s]()
        for k, encoding in enumerate(self._places):
            value = (late ^ self._turned) >> k & 1 == 0
            ranks = np.zeros(len(places), np.int64)
            ranks[value] = encoding.order(np.ascontiguousarray(places[value, k]), texts)
            columns += [late >> k & 1, ~ranks if self.kinds[k] & DESCENDING else ranks]
        return np.column_stack([*columns, places[:, len(self._places) :]])
