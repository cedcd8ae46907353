"""The combinations that the kernels found in the current push: numbers of tuples, gathered on request."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.results.results import Place
from stairs.descriptors import M_DELETED, M_OUT, S_BASE
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.plain_types import Column
from stairs.result_blocks import ResultBlocks


class Walked:
    """The results of the open push of one engine, `eddy.results.results.Combinations`; made once, for all pushes.

    blocks   the object that makes tables of few rows, None = results are no plain columns
    """

    def __init__(self, modules: Modules, payload: Payload, blocks: ResultBlocks | None) -> None:
        self._modules, self._payload, self._blocks = modules, payload, blocks

    @property
    def size(self) -> int:
        """Their number."""
        return self._modules.figures[M_OUT]

    @property
    def signs(self) -> npt.NDArray[np.uint8]:
        """INSERTED or DELETED, uint8[size or more]."""
        return self._modules.walk.signs

    @property
    def deleted(self) -> int:
        """Number of deleted ones among them."""
        return self._modules.figures[M_DELETED]

    def columns(self) -> dict[Place, Column]:
        """Return the kept columns of the combinations."""
        modules = self._modules
        return self._payload.gather(modules.walk.ids, self.size, modules.streams[:, S_BASE])

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return the arrival numbers of their components, int64[streams, size]."""
        return self._modules.arrival_numbers()

    def rows(self) -> pa.Table | None:
        """Return their columns as a table if they are few and plain, else None."""
        return None if self._blocks is None else self._blocks.table(self._modules.walk.ids, self.size)
