"""Keys as numbers: one int64 per class and row, so that two keys of a class are equal exactly if their numbers are.

A number has a meaning only for the `KeyNumbers` object that assigned it, because byte strings and keys of several
columns are interned.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.keys import KeyEncoder
from eddy.placement.tuples import Ints
from eddy.query.query import Query
from stairs.bytes_directory import BytesDirectory


def classes_of(query: Query) -> tuple[frozenset[int], ...]:
    """Return per stream the attribute classes in which it has a key."""
    return tuple(
        frozenset(c for c, attribute_class in enumerate(query.classes) if name in attribute_class.columns)
        for name in query.graph.names
    )


class KeyNumbers:
    """Numbers the keys of all streams of a query, and keeps every byte string and wide key numbered."""

    def __init__(self, query: Query) -> None:
        self._encoders = {
            (i, c): KeyEncoder(stream.place, query.classes[c].columns[stream.name], query.classes[c].types)
            for i, (stream, classes) in enumerate(zip(query.streams, classes_of(query), strict=True))
            for c in classes
        }
        self._texts = {
            (c, at): BytesDirectory() for c, texts in enumerate(query.graph.texts[: len(query.classes)]) for at in texts
        }
        self._wide = {c: BytesDirectory() for c, width in enumerate(query.graph.widths) if width > 1}

    @property
    def kept(self) -> int:
        """The number of byte strings and wide keys that are kept."""
        return sum(directory.most for directory in (*self._texts.values(), *self._wide.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of the strings and keys that are kept, and of their tables."""
        return sum(directory.nbytes for directory in (*self._texts.values(), *self._wide.values()))

    def numbers(self, stream: int, c: int, batch: pa.RecordBatch, dead: npt.NDArray[np.uint8]) -> Ints:
        """Return the number of each row's key in a class, int64[rows]; marks rows with a null dead, uint8[rows]."""
        encoder = self._encoders[stream, c]
        words = np.zeros(len(batch) * encoder.width, np.int64)
        nulls = np.zeros(len(batch), np.uint8)
        texts = {at: directory for (of, at), directory in self._texts.items() if of == c}
        encoder.encode(batch, words, nulls, texts)
        dead |= nulls
        if encoder.width == 1:
            return words
        offsets = np.arange(len(batch) + 1, dtype=np.int64) * 8 * encoder.width
        offsets.flags.writeable = False
        text = words.view(np.uint8)
        text.flags.writeable = False
        return self._wide[c].intern(offsets, text, nulls)
