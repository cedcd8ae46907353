"""Puts the rows of one stream where the kernels read them: keys as words, event times and payload in their rings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.keys import KeyEncoder
from eddy.query import Query
from stairs.modules import Modules
from stairs.payload import Payload, fixed_width, raw_values


class Loader:
    """Loads batches of stream i; what depends on the query alone is worked out once, so that a small push stays cheap."""

    def __init__(self, query: Query, i: int, kept: list[str]) -> None:
        stream = query.streams[i]
        schema = stream.schema
        self.i = i
        self.encoders = []
        for c in query.graph.attributes[i]:
            encoder = KeyEncoder(stream.name, query.classes[c].columns[stream.name], query.classes[c].types)
            plain = encoder.plain
            direct = plain is not None and schema.field(plain).type == encoder.types[0]
            # A key of one 64-bit integer column is copied as it is, from the memory its payload is copied from.
            self.encoders.append((c, encoder, schema.get_field_index(plain) if plain is not None and direct else -1))
        self._kept = [schema.get_field_index(name) for name in kept]
        self._widths = {k: fixed_width(schema.field(k).type) for k in self._kept}
        self._widths.update({k: 8 for _, _, k in self.encoders if k >= 0})

    def load(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64] | None, modules: Modules, payload: Payload) -> None:
        """Write the rows of the push under way. Raises InputError for a value its class cannot compare."""
        i = self.i
        columns = {k: batch.column(k) for k in self._widths}
        raw = {k: raw_values(columns[k], width) for k, width in self._widths.items() if width}
        dead = modules.dead_rows(i)
        for c, encoder, plain in self.encoders:
            if plain >= 0 and not columns[plain].null_count:
                modules.key_words(i, c)[:] = raw[plain]
            else:
                encoder.encode(batch, modules.key_words(i, c), dead, modules.texts_of[c])
        slices = modules.ring_slices(i, len(dead))
        if times is not None:
            modules.set_times(i, times, slices)
        for place, k in enumerate(self._kept):
            if self._widths[k]:
                payload.append_fixed(i, place, columns[k], raw[k], slices)
            else:
                payload.append_log(i, place, columns[k], modules.first_arrival(i))
