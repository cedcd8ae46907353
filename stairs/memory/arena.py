"""The arrays on which all kernels work: one arena for all state modules of an engine.

    heads    int32  per class, key-major: row `key id` holds the newest sequence number of that key in each SteM,
                    so one arrival touches one or two cache lines, not one per stream
    recs     int32  per stream, a ring of tuple records; a record is (link, key id) for each attribute of the stream
    values   int64  per stream, rings with the slots of `recs`: one of event times in timed queries, then one for each
                    column that a comparison reads
    words    int64  per class, the words of each interned key
    table    int64  per class, open addressing with linear probing, slots of (tag, key id), key id -1 = empty
    freed    int32  per class, a stack of key ids to recycle
    presence int64  in joins of many streams on one key, bits of each key (`stairs.kernels.presence`); otherwise empty
    streams, classes, attrs, links, bands, meta   descriptors, columns named in `stairs.descriptors`; those of `bands`
                                                  contain addresses (`stairs.bands`)

    a stream of capacity 8 with one attribute, after arrivals 4 (key id 7), 5 (key id 2) and 9 (key id 7):

        heads[row 7] = 9      recs[slot 9 & 7 = 1] = (link 4, key id 7)
                              recs[slot 4 & 7 = 4] = (link of the tuple before it with key id 7, key id 7)

A chain is newest first, and a link below the stream's low mark ends it, so expiry writes nothing. A head with a no-good
mark is negative (`stairs.kernels.marks`). A slot keeps the record of its last tuple; only sequence numbers in
[low mark, next) have a meaning.
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
Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""int64 with two axes. Kernels get arrays by address, so the annotations here are their types
(`stairs.kernels.by_address`)."""
Cubes = np.ndarray[tuple[int, int, int], np.dtype[np.int64]]
"""int64 with three axes."""


class Arena(NamedTuple):
    """Flat arrays of all state modules (see the module)."""

    heads: Int32s
    recs: Int32s
    values: Int64s
    words: Int64s
    table: Int64s
    freed: Int32s
    presence: Int64s
    streams: Rows
    classes: Rows
    attrs: Rows
    links: Rows
    bands: Rows
    meta: Int64s


class Routes(NamedTuple):
    """The routes of the tuples of each stream, and of the promotions of states.

    span   int64[routes, R_FIELDS]  where the trunk and leaf hops of a route lie in `hops`: row track * streams + i is
                                    the route of stream i in a plan; later rows are promotions (E_ROUTE)
    hops   int64[n, H_FIELDS]       probes in order
    counts int64[V_FIELDS, n]       what each hop has done
    ops    int64[n, O_FIELDS]       checks and bindings on a match
    compares  int64[n, X_FIELDS]    comparisons on a match
    ready  int64[n, 5]              only under an eddy. Row i * classes + c: two words with a bit for each module in the
                                    ranking of stream i that is probed by class c, two words with a bit for each module
                                    whose matches bind c, and 1 if i has the class itself; row streams * classes + i:
                                    the bits of all classes of i
    """

    span: Rows
    hops: Rows
    counts: Rows
    ops: Rows
    compares: Rows
    ready: Rows


class Input(NamedTuple):
    """The rows of one push.

    words  int64[]                  words of the keys, per attribute (A_INPUT), row by row
    dead   uint8[]                  per attribute (A_DEAD), 1 = a key of the row is null, so the row cannot join
    clock  int64[]                  per arrival, the watermark with it; empty without event times
    """

    words: Int64s
    dead: Bytes
    clock: Int64s


class Opening(NamedTuple):
    """The open push: what it has, and what was before it (`stairs.kernels.opening`).

    rows     int64[J_FIELDS, streams]   the rows of each stream
    need     int64[2]                   words and marks that the input needs, where it lacks room for them
    streams  int64[streams, S_FIELDS]   the descriptors of the streams before it
    meta     int64[M_FIELDS]            `meta` before it
    """

    rows: Rows
    need: Int64s
    streams: Rows
    meta: Int64s


class Batch(NamedTuple):
    """One push.

    order        uint8[arrivals]    the stream of each arrival
    input, dead, clock  `words`, `dead` and `clock` of its Input
    """

    order: Bytes
    input: Int64s
    dead: Bytes
    clock: Int64s


class Walk(NamedTuple):
    """Memory of a walk, with its results.

    ids       int32[room * streams] sequence numbers of the components, result by result, streams in query order
    signs     uint8[room]           INSERTED or DELETED, result by result (only in a changelog)
    levels    int64[2, streams]     per level of a walk: the candidate to resume with, the level to resume after it
    turn      int64[streams]        the element of each list in the present combination
    bound     int64[classes]        where the head row of the key bound for each class starts
    kids      int64[classes]        the key id bound for each class (only with stored states)
    current   int64[streams]        sequence number bound for each stream; in joins on one key, the next to prefetch
    others    int64[comparisons]    sequence numbers with which the candidates of a hop are compared
    frames    int64[depth, T_FIELDS + 2 * (streams + classes)]  tuples in flight in an eddy; row 0: a promotion
    lows      int32[streams]        low marks of all streams (only in joins on one key, as the arrays below)
    gone      int32[streams]        marks of RANGE windows (`stairs.kernels.one_key_times`)
    sure      int32[2 * streams]    further marks; the second half has none
    met       int32[BLOCK, 1 + 2 * streams]  a list of arrivals that met partners (`stairs.kernels.one_key_results`)
    """

    ids: Int32s
    signs: Bytes
    levels: Rows
    turn: Int64s
    bound: Int64s
    kids: Int64s
    current: Int64s
    others: Int64s
    frames: Rows
    lows: Int32s
    gone: Int32s
    sure: Int32s
    met: Int32s
    several: Int64s
    alone: Int64s


class Chunk(NamedTuple):
    """Memory of the open chunk (`stairs.kernels.chunk`), which has up to CHUNK events, and of their probes.

    streams     int64[streams, K_FIELDS]           the events of each stream
    places      int32[events]                      places of arrivals, ascending, stream by stream (K_START)
    departures  int32[events]                      places of departures, ascending, stream by stream (K_GONE_AT)
    owners      uint8[events]                      by place, the stream
    signs       uint8[events]                      by place, INSERTED for an arrival or DELETED for a departure
    twins       uint8[events]                      by place, for the end of a version: 1 = the next event is an upsert
                                                   that finds the same results, so this one need not probe
    tuples      int32[events]                      by place, the sequence number of the tuple
    clock       int64[events]                      by place, the watermark there
    counts      int64[events]                      by place, the results of the event; then where the next one goes
    levels      int64[streams, streams, L_FIELDS]  per stream, the events; then the partial results after each hop that
                                                   makes a level; then the lists of each other leaf hop
    sources     int64[classes, 3]                  where the key of each class comes from: level, stream, offset in its
                                                   record
    partials    int32[room]                        levels: Q_FIELDS for each partial result; lists: first and end of the
                                                   list of each partial result of the last level, then sequence numbers
    """

    streams: Rows
    places: Int32s
    departures: Int32s
    owners: Bytes
    signs: Bytes
    twins: Bytes
    tuples: Int32s
    clock: Int64s
    counts: Int64s
    levels: Cubes
    sources: Rows
    partials: Int32s


class Entries(NamedTuple):
    """The STAIRs (see `stairs.stair`); `states` contains the addresses of their heads and rings.

    states  int64[states, E_FIELDS]   descriptors
    parts   int64[n, P_FIELDS]        per state, the streams of its set, ascending
    lows    int64[tracks * streams]   per track, the first sequence number of each stream that counts: the low mark of
                                      the stream, or the track's mark if that is greater
    marks   int64[tracks * streams]   per track, the first tuple of each stream that the track knows
    """

    states: Rows
    parts: Rows
    lows: Int64s
    marks: Int64s
