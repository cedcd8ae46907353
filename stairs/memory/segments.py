"""A flat array cut into segments, one an owner, so that one array serves any number of streams, classes or states."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Segments:
    """Owners' segments of one flat array, in order: segment k is `array[base[k] : base[k] + size[k]]`."""

    def __init__(self, dtype: npt.DTypeLike, sizes: list[int], fill: int) -> None:
        self.fill = fill
        self.size = list(sizes)
        self.base = self._bases()
        self.array: npt.NDArray[Any] = np.full(sum(sizes), fill, dtype)

    @classmethod
    def over(cls, array: npt.NDArray[Any], sizes: list[int], fill: int) -> Segments:
        """Return the segments of an array that is there, which has the length of all sizes together."""
        new = cls(array.dtype, [], fill)
        new.size, new.array = list(sizes), array
        new.base = new._bases()
        return new

    def _bases(self) -> list[int]:
        bases, total = [], 0
        for size in self.size:
            bases.append(total)
            total += size
        return bases

    def view(self, k: int) -> npt.NDArray[Any]:
        """Return segment k without a copy."""
        return self.array[self.base[k] : self.base[k] + self.size[k]]

    def copy(self) -> Segments:
        """Return segments of the same sizes with the same contents. O(whole array)."""
        new = Segments(self.array.dtype, self.size, self.fill)
        new.array[:] = self.array
        return new

    def resized(self, k: int, size: int) -> Segments:
        """Return a copy in which segment k has another size and holds `fill` only. O(whole array).

        The original is untouched, so a failed allocation loses nothing.
        """
        sizes = list(self.size)
        sizes[k] = size
        new = Segments(self.array.dtype, sizes, self.fill)
        for other in range(len(sizes)):
            if other != k:
                new.view(other)[:] = self.view(other)
        return new
