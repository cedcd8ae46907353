"""The arrays every kernel works on: one arena for all state modules of an engine.

    heads    int32  per class, key-major: row `key id` holds the newest sequence number of that key in each SteM,
                    so one arrival touches one or two cache lines, not one per stream
    recs     int32  per stream, a ring of tuple records; a record is (link, key id) for each attribute of the stream
    times    int64  per stream, a ring of event times beside `recs` (only in timed queries)
    words    int64  per class, the words of each interned key
    table    int64  per class, open addressing with linear probing, slots of (tag, key id), key id -1 = empty
    freed    int32  per class, a stack of key ids to use again
    streams, classes, attrs, meta   descriptors, columns named in `stairs.fields`

    a stream of capacity 8 with one attribute, after arrivals 4 (key id 7), 5 (key id 2) and 9 (key id 7):

        heads[row 7] = 9      recs[slot 9 & 7 = 1] = (link 4, key id 7)
                              recs[slot 4 & 7 = 4] = (link of the tuple before it with key id 7, key id 7)

A chain is newest first; a link below the stream's low mark ends it, so expiry writes nothing. A slot holds whatever its
last tuple left; only sequence numbers in [low mark, next) mean something.
Source of the module: Raman, Deshpande, Hellerstein, "Using state modules for adaptive query processing", ICDE 2003,
sec. 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Arena(NamedTuple):
    """Flat arrays of all state modules (see the module)."""

    heads: Int32s
    recs: Int32s
    times: Int64s
    words: Int64s
    table: Int64s
    freed: Int32s
    streams: Int64s
    classes: Int64s
    attrs: Int64s
    meta: Int64s


class Routes(NamedTuple):
    """Where the tuples of each stream go.

    span   int64[streams, R_FIELDS] the route of stream i: where its trunk and leaf hops lie in `hops`
    hops   int64[n, H_FIELDS]       probes in order, with their counters
    ops    int64[n, O_FIELDS]       checks and bindings on a match
    """

    span: Int64s
    hops: Int64s
    ops: Int64s


class Batch(NamedTuple):
    """One push.

    order  uint8[arrivals]          the stream of each arrival
    input  int64[]                  words of the keys, per attribute (A_INPUT), row by row
    dead   uint8[]                  per stream (S_DEAD), 1 = a key of the row is null, so it can join nothing
    """

    order: Bytes
    input: Int64s
    dead: Bytes


class Walk(NamedTuple):
    """Room for a walk and what it gives.

    ids       int32[room * streams] sequence numbers of the components, result after result, streams in query order
    lists     int64[room]           sequence numbers the leaf hops of the arrival at hand found
    ends      int64[streams]        ends[k] .. ends[k + 1] of `lists` are those of its leaf hop k
    levels    int64[3, streams]     per level of the walk: the candidate to come back to, the level to resume after it;
                                    the turn of each leaf hop
    bound     int64[classes]        where the head row of the key bound for each class starts
    current   int64[streams]        sequence number bound for each stream
    """

    ids: Int32s
    lists: Int64s
    ends: Int64s
    levels: Int64s
    bound: Int64s
    current: Int64s


class Entries(NamedTuple):
    """What STAIRs hold (see `stairs.stair`).

    heads   int32[]                   per state, the newest entry of each key id, and with it the key's mark
    ring    int32[]                   per state, a ring of entries (link, a sequence number for each stream of the set)
    states  int64[states, E_FIELDS]   descriptors
    parts   int64[n, P_FIELDS]        per state, the streams of its set, ascending
    """

    heads: Int32s
    ring: Int32s
    states: Int64s
    parts: Int64s
