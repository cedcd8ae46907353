"""Checks of bands: what they contain is what the SteMs contain."""

from __future__ import annotations

import numpy as np

from stairs.bands import ENTRY_BYTES
from stairs.checks.byte_strings import require
from stairs.descriptors import B_AT, B_COUNT, B_LOW, B_SLOTS, B_UPTO, S_BANDS, S_LIFE, S_LO, S_NEXT
from stairs.kernels.bands import RUNS
from stairs.stems import Stems


def check_bands(stems: Stems) -> None:
    """Raise StateError unless each band has the live tuples before B_UPTO that can join, in sorted runs. O(state).

    It may also have versions of a table that were buried later: those are no matches wherever they are found.
    """
    for b, i in enumerate(stems.bands.streams):
        first, low, following = stems.streams[i, [S_BANDS, S_LO, S_NEXT]].tolist()
        what, band = f"SteM {stems.graph.names[i]}, band of ring {b - first}", stems.bands.table[b]
        if not band[B_SLOTS]:
            require(stems.bands.memory(b) is None, f"{what}: it has memory, and no room")
            continue
        require(0 <= b - first < stems.graph.rings[i], f"{what}: the first band of the stream is {first}")
        values, tuples = memory = stems.bands.memory(b) or (np.zeros(0), np.zeros(0))
        require(sum(part.nbytes for part in memory) == len(values) * ENTRY_BYTES > 0, f"{what}: its memory is missing")
        upto = int(band[B_UPTO])
        require(upto <= following and band[B_LOW] <= low, f"{what}: it has tuples up to {upto} of {following}")
        runs = [slice(at, at + n) for at, n in zip(band[B_AT:][:RUNS], band[B_COUNT:][:RUNS], strict=True)]
        require(all((np.diff(values[run]) >= 0).all() for run in runs), f"{what}: a run is not sorted")
        entries = np.concatenate([np.stack([tuples[run], values[run]]) for run in runs], axis=1)
        records = stems.recs.view(i).reshape(stems.capacity[i], -1)
        entries = entries[:, entries[0] >= low]
        if stems.streams[i, S_LIFE] > 0:
            entries = entries[:, records[entries[0].astype(np.int64) & (stems.capacity[i] - 1), 1] >= 0]
        live = np.arange(low, max(low, upto))
        slots = live & (stems.capacity[i] - 1)
        joins = records[slots, 1] >= 0
        wanted = np.stack([live[joins], stems.value_ring(i, b - first)[slots][joins]])
        right = np.array_equal(entries[:, np.argsort(entries[0])], wanted)
        require(right, f"{what}: its live entries are not the tuples {low} .. {upto - 1}")
