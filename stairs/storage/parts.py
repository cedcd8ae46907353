"""An object as plain parts, which can be written to a file, and their checked reading: values, arrays and rows by name.

Each class with state returns it as a dictionary (`to_parts`) and reads it back part by part (`load_parts`). The parts
name no class and no attribute. The reader asks for each part by name and states its form (`stairs.storage.json_form`);
for an array it states the dtype and the shape, for rows the schema. A part that differs raises the error of the reader.

    to_parts:    {"next": 8, "heads": int32[4], "rings": [{"size": 64}]}
    load_parts:  parts.integer("next", low=0)   parts.array("heads", np.int32, (4,))   parts.items("rings")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.errors import EddyError, StateError
from stairs.storage.json_form import (
    Form,
    FormError,
    anything,
    boolean,
    floating,
    integer,
    list_of,
    optional,
    row_of,
    text,
)

Plain = dict[str, Any]
"""JSON values, NumPy arrays, Arrow arrays and record batches as bytes, by name."""
MOST = 1 << 62


class Memory:
    """The arrays to which parts refer. This base class contains none; a subclass finds them in a file.

    Each method returns what was written as `place`, and raises FormError if that is not as the reader states.
    """

    def array(self, place: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array; one -1 in `shape` matches any length."""
        raise FormError(f"it is an array of {dtype}, but these parts contain no arrays")

    def arrow(self, place: object, kind: pa.DataType) -> pa.Array:
        """Return an Arrow array."""
        raise FormError(f"it is an array of {kind}, but these parts contain no arrays")

    def batch(self, place: object, schema: pa.Schema) -> pa.RecordBatch:
        """Return a record batch that was written as bytes."""
        raise FormError("it is a record batch, but these parts contain no arrays")


NO_MEMORY = Memory()


def powers_of_two(numbers: Sequence[int]) -> bool:
    """Return whether all numbers are powers of two."""
    return all(n > 0 and n & (n - 1) == 0 for n in numbers)


class Parts:
    """The parts of one object. Every method raises the error of the reader for a part that is missing or does not fit.

    what   name of the object for messages, "" = none
    error  makes the error from a text
    """

    def __init__(
        self, values: object, memory: Memory, what: str = "", error: Callable[[str], EddyError] = StateError
    ) -> None:
        self.what, self._memory, self._error = what, memory, error
        self._asked: set[str] = set()
        self._below: list[Parts] = []
        self.require(isinstance(values, dict), f"{type(values).__name__} instead of parts by name")
        assert isinstance(values, dict)
        self._values: Plain = values

    def wrong(self, fault: object) -> EddyError:
        """Return the error for a fault."""
        return self._error(f"{self.what}: {fault}" if self.what else str(fault))

    def require(self, holds: bool, fault: str) -> None:
        """Raise the error for `fault` unless `holds` is true."""
        if not holds:
            raise self.wrong(fault)

    def value(self, name: str, form: Form = anything) -> Any:
        """Return a part as the JSON reader returned it, if it has this form."""
        self.require(name in self._values, f"{name!r} is missing")
        self._asked.add(name)
        value = self._values[name]
        try:
            form(value, name)
        except FormError as problem:
            raise self.wrong(problem) from None
        return value

    def whole(self, form: Form) -> Plain:
        """Return all parts as the JSON reader returned them, if together they have this form."""
        return Parts({"header": self._values}, self._memory, self.what, self._error).value("header", form)

    def check_read(self) -> None:
        """Raise the error for a part that nobody asked for, here or in nested objects."""
        unknown = self._values.keys() - self._asked
        self.require(not unknown, f"{min(unknown, default='')!r} is unknown")
        for nested in self._below:
            nested.check_read()

    def integer(self, name: str, low: int = 0, high: int = MOST) -> int:
        """Return an integer within low .. high."""
        return int(self.value(name, integer(low, high)))

    def optional(self, name: str, high: int = MOST) -> int | None:
        """Return an integer within 0 .. high, or None."""
        number: int | None = self.value(name, optional(integer(0, high)))
        return number

    def number(self, name: str) -> float:
        """Return a float, which may be infinite or NaN."""
        return float(self.value(name, floating))

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        return bool(self.value(name, boolean))

    def text(self, name: str) -> str:
        """Return a string."""
        return str(self.value(name, text))

    def sequence(self, name: str, n: int | None = None, form: Form = anything) -> list[Any]:
        """Return a list whose entries have a form, with `n` entries unless `n` is None."""
        return list(self.value(name, list_of(form, n)))

    def integers(self, name: str, n: int | None = None, low: int = 0, high: int = MOST) -> list[int]:
        """Return a list of integers within low .. high, with `n` entries unless `n` is None."""
        return self.sequence(name, n, integer(low, high))

    def numbers(self, name: str, n: int | None = None) -> list[float]:
        """Return a list of floats."""
        return self.sequence(name, n, floating)

    def rows(self, name: str, n: int | None, width: int, low: int = 0) -> list[list[int]]:
        """Return `n` rows of `width` integers each, none below `low`."""
        return self.sequence(name, n, list_of(integer(low, MOST), width))

    def masks(self, name: str) -> list[tuple[int, int]]:
        """Return pairs of integers of any size."""
        whole = integer(-(1 << 1000))
        return [(first, second) for first, second in self.sequence(name, None, row_of(whole, whole))]

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        return self.sequence(name, None, text)

    def _part(self, values: object, what: str) -> Parts:
        part = Parts(values, self._memory, f"{self.what}, {what}" if self.what else what, self._error)
        self._below.append(part)
        return part

    def part(self, name: str) -> Parts:
        """Return a nested object as its parts."""
        return self._part(self.value(name), name)

    def items(self, name: str, n: int | None = None) -> list[Parts]:
        """Return a list of nested objects, each as its parts."""
        return [self._part(entry, f"{name} {k}") for k, entry in enumerate(self.sequence(name, n))]

    def lists(self, name: str, n: int) -> list[list[Parts]]:
        """Return `n` lists of nested objects, each as its parts."""
        lists = self.sequence(name, n, list_of(anything))
        return [[self._part(entry, f"{name} {k}") for entry in entries] for k, entries in enumerate(lists)]

    def array(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array, C-contiguous and writable; one -1 in `shape` matches any length."""
        return self._read(name, self._memory.array, self.value(name), np.dtype(dtype), shape)

    def arrays(
        self, name: str, dtype: npt.DTypeLike, shapes: Sequence[tuple[int, ...]] | None = None
    ) -> list[npt.NDArray[Any]]:
        """Return a list of arrays, each as `array` does: one for each shape, or any number in one dimension."""
        listed = self.sequence(name, None if shapes is None else len(shapes))
        pairs = zip(listed, [(-1,)] * len(listed) if shapes is None else shapes, strict=True)
        return [self._read(name, self._memory.array, entry, np.dtype(dtype), shape) for entry, shape in pairs]

    def arrow(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return an Arrow array of type `kind`."""
        return self._read(name, self._memory.arrow, self.value(name), kind)

    def batches(self, name: str, schema: pa.Schema, most: int) -> list[pa.RecordBatch]:
        """Return record batches of a schema, with at most `most` rows in all, every array validated."""
        batches = [self._read(name, self._memory.batch, entry, schema) for entry in self.sequence(name)]
        rows = sum(batch.num_rows for batch in batches)
        self.require(rows <= most, f"{name}: it has {rows} rows, at most {most} were written")
        return batches

    def _read(self, name: str, reader: Callable[..., Any], *stated: Any) -> Any:
        """Return what a method of the memory returns."""
        try:
            return reader(*stated)
        except FormError as problem:
            raise self.wrong(f"{name}: {problem}") from problem
