"""A flat array cut into segments, one per owner: one array serves any number of streams or classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def copy_ring(new: npt.NDArray[Any], old: npt.NDArray[Any], low: int, following: int) -> None:
    """Copy elements low .. following - 1 from one ring to another; slot = number modulo slots, along axis 0.

    Both rings have a slot for each of them. In runs, because a copy element by element takes several times as long.
    """
    while low < following:
        n = min(following - low, len(old) - low % len(old), len(new) - low % len(new))
        new[low % len(new) : low % len(new) + n] = old[low % len(old) : low % len(old) + n]
        low += n


class Segments:
    """Consecutive segments of one flat array: segment k is `array[base[k] : base[k] + size[k]]`."""

    def __init__(self, dtype: npt.DTypeLike, sizes: list[int], fill: int) -> None:
        self.fill = fill
        self.size = list(sizes)
        self.base = self._bases()
        # The system gives zeros page by page, when they are first written.
        self.array: npt.NDArray[Any] = np.full(sum(sizes), fill, dtype) if fill else np.zeros(sum(sizes), dtype)

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
