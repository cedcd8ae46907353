"""The kernel of late materialisation: all fixed-width columns of all results in one call."""

from __future__ import annotations

import numpy as np

from stairs.accelerate import jit, u64

P_STREAM = 0  # stream the column belongs to
P_WIDTH = 1  # bytes of a value: 1, 2, 4, 8 or 16
P_RING = 2  # where its ring starts, in values of that width (of 8 bytes for 16)
P_MASK = 3  # slots of the ring - 1
P_OUT = 4  # where its values go, in the same unit
P_FIELDS = 5


@jit
def gather(
    columns: np.ndarray,
    ids: np.ndarray,
    n_streams: int,
    rings: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    values: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    n: int,
) -> None:
    """Copy the value of each component into the columns of the output.

    columns int64[n_columns, P_FIELDS]; ids int32[n * n_streams], result after result; rings and values: the memory of all
    rings and of all output columns, each seen as uint8, uint16, uint32 and uint64.
    """
    for k in range(columns.shape[0]):
        j, width, mask = columns[k, P_STREAM], columns[k, P_WIDTH], columns[k, P_MASK]
        ring, at = columns[k, P_RING], columns[k, P_OUT]
        if width == 8:
            for r in range(n):
                values[3][u64(at + r)] = rings[3][u64(ring + (ids[u64(r * n_streams + j)] & mask))]
        elif width == 4:
            for r in range(n):
                values[2][u64(at + r)] = rings[2][u64(ring + (ids[u64(r * n_streams + j)] & mask))]
        elif width == 2:
            for r in range(n):
                values[1][u64(at + r)] = rings[1][u64(ring + (ids[u64(r * n_streams + j)] & mask))]
        elif width == 1:
            for r in range(n):
                values[0][u64(at + r)] = rings[0][u64(ring + (ids[u64(r * n_streams + j)] & mask))]
        else:
            for r in range(n):
                source = ring + 2 * (ids[u64(r * n_streams + j)] & mask)
                values[3][u64(at + 2 * r)] = rings[3][u64(source)]
                values[3][u64(at + 2 * r + 1)] = rings[3][u64(source + 1)]
