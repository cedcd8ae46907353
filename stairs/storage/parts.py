"""An object as plain parts, which can be written to a file: JSON values and arrays by name, and their checked reading.

Each class with state returns it as a dictionary (`to_parts`) and reads it back part by part (`load_parts`). The parts
name no class and no attribute. The reader asks for each part by name and states its type and range; for an array it
states the dtype and the shape. A part that differs raises StateError.

    to_parts:    {"next": 8, "heads": int32[4], "rings": [{"size": 64}]}
    load_parts:  parts.integer("next", low=0)   parts.array("heads", np.int32, (4,))   parts.items("rings")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.errors import StateError

Plain = dict[str, Any]
"""JSON values, NumPy arrays and Arrow arrays, by name."""
MOST = 1 << 62


class Memory:
    """The arrays to which parts refer. This base class contains none; a subclass finds them in a file."""

    def array(self, place: object, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the array that was written as `place`. Raises StateError."""
        raise StateError(f"an array of {dtype} at {place}, but these parts contain no arrays")

    def arrow(self, place: object, kind: pa.DataType) -> pa.Array:
        """Return the Arrow array that was written as `place`. Raises StateError."""
        raise StateError(f"an array of {kind} at {place}, but these parts contain no arrays")


NO_MEMORY = Memory()


def powers_of_two(numbers: Sequence[int]) -> bool:
    """Return whether all numbers are powers of two."""
    return all(n > 0 and n & (n - 1) == 0 for n in numbers)


class Parts:
    """The parts of one object. Every method raises StateError for a part that is missing or does not fit.

    what  name of the object for messages
    """

    def __init__(self, values: object, memory: Memory, what: str) -> None:
        if not isinstance(values, dict):
            raise StateError(f"{what}: {type(values).__name__} instead of parts by name")
        self._values: Plain = values
        self._memory = memory
        self.what = what

    def plain(self, name: str) -> Any:
        """Return a part as the JSON reader returned it."""
        if name not in self._values:
            raise StateError(f"{self.what} has no part {name!r}")
        return self._values[name]

    def require(self, holds: bool, fault: str) -> None:
        """Raise StateError with `fault` unless `holds` is true."""
        if not holds:
            raise StateError(f"{self.what}: {fault}")

    def _wrong(self, name: str, wanted: str) -> StateError:
        return StateError(f"{self.what}: {name} is {str(self._values.get(name))[:100]}, not {wanted}")

    def integer(self, name: str, low: int = 0, high: int = MOST) -> int:
        """Return an integer within low .. high."""
        value = self.plain(name)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, f"an integer of {low} .. {high}")
        return value

    def optional(self, name: str, high: int = MOST) -> int | None:
        """Return an integer within 0 .. high, or None."""
        return None if self.plain(name) is None else self.integer(name, high=high)

    def number(self, name: str) -> float:
        """Return a float, which may be infinite or NaN."""
        value = self.plain(name)
        if type(value) is not float:
            raise self._wrong(name, "a float")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self.plain(name)
        if type(value) is not bool:
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Return a string."""
        value = self.plain(name)
        if type(value) is not str:
            raise self._wrong(name, "a string")
        return value

    def sequence(self, name: str, n: int | None = None) -> list[Any]:
        """Return a list, with `n` entries unless `n` is None."""
        value = self.plain(name)
        if type(value) is not list or n not in (None, len(value)):
            raise self._wrong(name, "a list" if n is None else f"a list of {n}")
        return value

    def integers(self, name: str, n: int | None = None, low: int = 0, high: int = MOST) -> list[int]:
        """Return a list of integers within low .. high, with `n` entries unless `n` is None."""
        values = self.sequence(name, n)
        if not all(type(value) is int and low <= value <= high for value in values):
            raise self._wrong(name, f"a list of integers of {low} .. {high}")
        return values

    def numbers(self, name: str, n: int | None = None) -> list[float]:
        """Return a list of floats."""
        values = self.sequence(name, n)
        if not all(type(value) is float for value in values):
            raise self._wrong(name, "a list of floats")
        return values

    def rows(self, name: str, n: int, width: int, low: int = 0) -> list[list[int]]:
        """Return `n` rows of `width` integers each, none below `low`."""
        rows = self.sequence(name, n)
        for row in rows:
            whole = type(row) is list and len(row) == width
            if not whole or not all(type(value) is int and low <= value <= MOST for value in row):
                raise self._wrong(name, f"{n} rows of {width} integers")
        return rows

    def masks(self, name: str) -> list[tuple[int, int]]:
        """Return pairs of integers of any size."""
        pairs = self.sequence(name)
        if not all(type(pair) is list and [type(value) for value in pair] == [int, int] for pair in pairs):
            raise self._wrong(name, "a list of pairs")
        return [(first, second) for first, second in pairs]

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        values = self.sequence(name)
        if not all(type(value) is str for value in values):
            raise self._wrong(name, "a list of strings")
        return values

    def part(self, name: str) -> Parts:
        """Return a nested object as its parts."""
        return Parts(self.plain(name), self._memory, f"{self.what}, {name}")

    def items(self, name: str, n: int | None = None) -> list[Parts]:
        """Return a list of nested objects, each as its parts."""
        return [Parts(one, self._memory, f"{self.what}, {name} {k}") for k, one in enumerate(self.sequence(name, n))]

    def lists(self, name: str, n: int) -> list[list[Parts]]:
        """Return `n` lists of nested objects, each as its parts."""
        found = []
        for k, own in enumerate(self.sequence(name, n)):
            if type(own) is not list:
                raise self._wrong(name, "a list of lists")
            found.append([Parts(one, self._memory, f"{self.what}, {name} {k}") for one in own])
        return found

    def array(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array, C-contiguous, aligned and writable; -1 in `shape` matches any length."""
        return self._shaped(name, self.plain(name), np.dtype(dtype), shape)

    def arrays(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> list[npt.NDArray[Any]]:
        """Return a list of arrays, each as `array` does."""
        return [self._shaped(name, one, np.dtype(dtype), shape) for one in self.sequence(name)]

    def arrow(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return an Arrow array of type `kind`."""
        return self._memory.arrow(self.plain(name), kind)

    def _shaped(self, name: str, place: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        found = self._memory.array(place, dtype)
        fits = found.ndim == len(shape) and all(want in (-1, n) for want, n in zip(shape, found.shape, strict=True))
        self.require(fits, f"{name} has shape {found.shape}, not {shape}")
        return found
