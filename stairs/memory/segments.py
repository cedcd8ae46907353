"""A flat array cut into segments, one per owner: one array serves any number of streams or classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Segments:
    """Consecutive segments of one flat array: segment k is `array[base[k] : base[k] + size[k]]`."""

    def __init__(self, dtype: npt.DTypeLike, sizes: list[int], fill: int) -> None:
        self.fill = fill
        self.size = list(sizes)
        self.base = self._bases()
        self.array: npt.NDArray[Any] = np.full(sum(sizes), fill, dtype)

    @classmethod
    def over(cls, array: npt.NDArray[Any], sizes: list[int], fill: int) -> Segments:
        """Return segments over an existing array, whose length is the sum of the sizes."""
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
        """Return a view of segment k."""
        return self.array[self.base[k] : self.base[k] + self.size[k]]

    def copy(self) -> Segments:
        """Return a copy. O(whole array)."""
        new = Segments(self.array.dtype, self.size, self.fill)
        new.array[:] = self.array
        return new

    def resized(self, k: int, size: int) -> Segments:
        """Return a copy in which segment k has another size and contains only `fill`. O(whole array).

        The original does not change, so a failed allocation loses nothing.
        """
        sizes = list(self.size)
        sizes[k] = size
        new = Segments(self.array.dtype, sizes, self.fill)
        for other in range(len(sizes)):
            if other != k:
                new.view(other)[:] = self.view(other)
        return new
