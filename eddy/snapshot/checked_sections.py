"""The sections of a snapshot that was read, each checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.storage.arrays import ArrayBytesError, numbers_in
from eddy.storage.arrow_bytes import ArrowBytesError, read_batches
from eddy.storage.sections import FileKind


class CheckedSections:
    """The sections of a file of one kind, by name. Every method raises the error of the kind for what does not fit."""

    def __init__(self, sections: Mapping[str, memoryview], kind: FileKind) -> None:
        self._sections, self._kind = sections, kind

    def check_names(self, wanted: set[str], optional: set[str]) -> None:
        """Raise unless the sections are all of those `wanted`, and some of those that are optional."""
        for name in sorted(wanted ^ (self._sections.keys() - optional)):
            raise self._kind.wrong(f"section {name!r} {'is missing' if name in wanted else 'is unknown'}")

    def whole(self, name: str) -> bytes:
        """Return the bytes of a section."""
        return bytes(self._sections[name])

    def numbers(
        self,
        name: str,
        dtype: str = "<i8",
        native: npt.DTypeLike = np.int64,
        shape: tuple[int, ...] | None = None,
    ) -> npt.NDArray[Any]:
        """Return the numbers of a section, copied: numba would compile each kernel again for read-only memory.

        shape   None = one dimension, as long as the section; -1 for the length of the first of two dimensions
        """
        memory = self._sections[name]
        if shape is not None and shape[0] == -1:
            shape = (memory.nbytes // (np.dtype(dtype).itemsize * shape[1]), shape[1])
        try:
            return numbers_in(memory, dtype, shape).astype(native)
        except ArrayBytesError as problem:
            raise self._kind.wrong(f"section {name!r}: {problem}") from problem

    def batches(self, name: str, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
        """Return the record batches of a section, of `most` rows at most; none for a section that is absent."""
        if name not in self._sections:
            return []
        try:
            return read_batches(self._sections[name], schema, most)
        except ArrowBytesError as problem:
            raise self._kind.wrong(f"section {name!r}: {problem}") from problem
