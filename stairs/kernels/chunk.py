"""A chunk: successive arrivals that are inserted first and probe afterwards, all together.

In a changelog, a tuple that leaves its window probes as well, to find the results to delete. So a chunk is a sequence
of *events*: arrivals and departures. The *place* of an event is its position in the chunk.

Since all arrivals of a chunk are in their SteMs before the first event probes, a probe decides for each tuple that it
finds whether its event may see that tuple. An event sees a tuple that arrived before it and has not left its window.
Only two sorts of tuples need a closer look: tuples of the chunk, whose places are compared, and the tuples that leave
their window during the chunk. All others are seen by every event of the chunk.

An upsert with the keys of the version that it ends finds the same results as the end of that version, with another
component. The two events are *twins*: only the second one probes, and the results of the first are copies of its own.

A chunk ends early if a stream would have more arrivals in it than live tuples. So chains contain few tuples that came
later than the event that probes.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    DELETED,
    INSERTED,
    K_COUNT,
    K_FIRST,
    K_GONE,
    K_GONE_AT,
    K_LOW,
    K_MOST,
    K_START,
    K_STAY,
    M_CHANGELOG,
    M_NEWEST,
    M_TIMED,
    M_WATERMARK,
    S_ATTR0,
    S_ATTR1,
    S_KEY,
    S_KIND,
    S_LIFE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_NUMBERS,
    S_RECS,
    S_SIZE,
    S_VALUES,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, u64
from stairs.kernels.marks import head_with, newest_of
from stairs.kernels.versions import (
    DEAD,
    bury,
    end_version,
    ended_by,
    is_delete,
    life_of,
    link_version,
    pass_dead,
    set_life,
)
from stairs.kernels.windows import RANGE, ROWS, expire_range
from stairs.memory.arena import Arena, Batch, Chunk

FEW = 32
"""Arrivals that a stream may have in a chunk, however few live tuples it has."""


@inlined
def are_twins(arena: Arena, i: int, old: int, new: int) -> bool:
    """Return whether two versions of table i have the same keys and compared values, and so find the same results."""
    row, mask = arena.streams[u64(i)], arena.streams[u64(i), S_MASK]
    before, after = row[S_RECS] + (old & mask) * row[S_WIDTH], row[S_RECS] + (new & mask) * row[S_WIDTH]
    same = True
    for x in range(row[S_ATTR0], row[S_ATTR1]):
        offset = arena.attrs[u64(x), A_OFFSET] + 1
        same = same and arena.recs[u64(before + offset)] == arena.recs[u64(after + offset)]
    for ring in range(row[S_VALUES], row[S_NUMBERS], mask + 1):
        same = same and arena.values[u64(ring + (old & mask))] == arena.values[u64(ring + (new & mask))]
    return same


@inlined
def has_twin(chunk: Chunk, place: int, n: int) -> bool:
    """Return whether the event at `place` takes back what the next one gives, and both are among the first n events."""
    return place + 1 < n and chunk.signs[u64(place)] == DELETED and chunk.twins[u64(place)] != 0


@inlined
def depart(chunk: Chunk, n: int, j: int, watermark: int) -> int:
    """Append the departure of the oldest tuple of stream j as event n of the chunk; return the number of events."""
    events = chunk.streams[u64(j)]
    chunk.owners[u64(n)] = j
    chunk.signs[u64(n)] = DELETED
    chunk.twins[u64(n)] = 0
    chunk.tuples[u64(n)] = events[K_LOW] + events[K_GONE]
    chunk.clock[u64(n)] = watermark
    events[K_GONE] += 1
    return n + 1


@inlined
def depart_version(arena: Arena, chunk: Chunk, n: int, i: int, s: int, watermark: int, inserted: bool) -> int:
    """Append, as event n, the departure of the version of table i that change s ends; return the number of events.

    inserted   the change is in its chains already; else it enters that of its primary key
    """
    ended = ended_by(arena, i, s)
    if not inserted:
        ended = end_version(arena, i, s)
        if not is_delete(arena, i, s):
            link_version(arena, i, arena.streams[u64(i), S_KEY], s)
    if ended >= 0 and life_of(arena, i, ended) != DEAD:
        set_life(arena, i, ended, n)
        chunk.owners[u64(n)] = i
        chunk.signs[u64(n)] = DELETED
        chunk.twins[u64(n)] = are_twins(arena, i, ended, s)
        chunk.tuples[u64(n)] = ended
        chunk.clock[u64(n)] = watermark
        chunk.streams[u64(i), K_GONE] += 1
        n += 1
    return n


@inlined
def depart_all(arena: Arena, chunk: Chunk, n: int, i: int, watermark: int) -> int:
    """Append the departures of expired tuples, and of the tuple that the next arrival of stream i displaces (-1: none).

    Return the number of events; if it is the most that the chunk has room for, departures may be missing.
    """
    streams, most = arena.streams, chunk.places.shape[0]
    for j in range(streams.shape[0]):
        row, events = streams[u64(j)], chunk.streams[u64(j)]
        if row[S_KIND] == RANGE:
            horizon = watermark - row[S_SIZE]
            s = events[K_LOW] + events[K_GONE]
            while n < most and s < events[K_FIRST] + events[K_COUNT]:
                if arena.values[u64(row[S_VALUES] + (s & row[S_MASK]))] >= horizon:
                    break
                n = depart(chunk, n, j, watermark)
                s += 1
    if i >= 0 and n < most and streams[u64(i), S_KIND] == ROWS:
        events = chunk.streams[u64(i)]
        if events[K_FIRST] + events[K_COUNT] + 1 - streams[u64(i), S_SIZE] > events[K_LOW] + events[K_GONE]:
            n = depart(chunk, n, i, watermark)
    return n


@inlined
def list_events(arena: Arena, batch: Batch, chunk: Chunk, start: int, stop: int, inserted: bool) -> int:
    """Write the events of the chunk that begins with arrival `start` and ends before `stop`; return their number.

    inserted   as in `open_chunk`

    With start = stop, only the departures at the present watermark are listed.
    """
    streams, meta, most = arena.streams, arena.meta, chunk.places.shape[0]
    timed, changelog, watermark = meta[M_TIMED] != 0, meta[M_CHANGELOG] != 0, meta[M_WATERMARK]
    n = np.int64(0)
    for a in range(start, stop):
        i = u64(batch.order[u64(a)])
        events = chunk.streams[i]
        s = events[K_FIRST] + events[K_COUNT]
        if events[K_COUNT] == events[K_MOST]:
            return n
        if timed:
            time = arena.values[u64(streams[i, S_VALUES] + (s & streams[i, S_MASK]))]
            watermark = batch.clock[u64(a)]
            meta[M_NEWEST] = max(meta[M_NEWEST], time)
        if changelog:
            n = depart_all(arena, chunk, n, np.int64(i), watermark)
        if streams[i, S_LIFE] > 0:
            # The next event after a departure is that of the change that caused it.
            if n + 2 > most:
                return n
            n = depart_version(arena, chunk, n, np.int64(i), s, watermark, inserted)
        if n == most:
            return n
        chunk.owners[u64(n)] = i
        chunk.signs[u64(n)] = INSERTED
        chunk.tuples[u64(n)] = s
        chunk.clock[u64(n)] = watermark
        events[K_COUNT] += 1
        n += 1
    if start == stop:
        n = depart_all(arena, chunk, n, np.int64(-1), watermark)
    return n


@inlined
def open_chunk(arena: Arena, batch: Batch, chunk: Chunk, start: int, stop: int, inserted: bool) -> int:
    """Lay out the chunk that begins with arrival `start` and ends before `stop`; return the number of its events.

    inserted   the arrivals up to `stop` are in their SteMs already
    """
    streams, events, changelog = arena.streams, chunk.streams, arena.meta[M_CHANGELOG] != 0
    for j in range(streams.shape[0]):
        i = u64(j)
        events[i, K_FIRST], events[i, K_COUNT], events[i, K_GONE] = streams[i, S_NEXT], 0, 0
        events[i, K_MOST] = stop - start if inserted else max(FEW, streams[i, S_NEXT] - streams[i, S_LO])
    if inserted:
        for a in range(start, stop):
            events[u64(batch.order[u64(a)]), K_FIRST] -= 1
    for j in range(streams.shape[0]):
        i = u64(j)
        events[i, K_LOW] = streams[i, S_LO]
        if streams[i, S_KIND] == ROWS and not changelog:
            events[i, K_LOW] = max(streams[i, S_LO], events[i, K_FIRST] - streams[i, S_SIZE])
    n = list_events(arena, batch, chunk, start, stop, inserted)
    at, gone_at = np.int64(0), np.int64(0)
    for j in range(streams.shape[0]):
        i = u64(j)
        events[i, K_START], events[i, K_GONE_AT] = at, gone_at
        at += events[i, K_COUNT]
        gone_at += events[i, K_GONE]
        events[i, K_COUNT], events[i, K_GONE] = 0, 0
    for place in range(n):
        i = u64(chunk.owners[u64(place)])
        if chunk.signs[u64(place)] == INSERTED:
            chunk.places[u64(events[i, K_START] + events[i, K_COUNT])] = place
            events[i, K_COUNT] += 1
        else:
            chunk.departures[u64(events[i, K_GONE_AT] + events[i, K_GONE])] = place
            events[i, K_GONE] += 1
    return n


@inlined
def time_at(arena: Arena, chunk: Chunk, place: int) -> int:
    """Return the event time of the tuple of the event at `place`."""
    row = arena.streams[u64(chunk.owners[u64(place)])]
    return arena.values[u64(row[S_VALUES] + (np.int64(chunk.tuples[u64(place)]) & row[S_MASK]))]


@inlined
def find_stay(arena: Arena, chunk: Chunk, n: int, strict: bool) -> None:
    """Set for each stream the first tuple that no event of the chunk, which has n, sees outside its window.

    If event times are compared in each result (`strict`), a tuple of a RANGE window need not leave it within a chunk.
    """
    streams, events = arena.streams, chunk.streams
    for i in range(streams.shape[0]):
        j = u64(i)
        stay, following, size = events[j, K_LOW], events[j, K_FIRST] + events[j, K_COUNT], streams[j, S_SIZE]
        if streams[j, S_LIFE] > 0:
            # Any version may end.
            stay = following if events[j, K_GONE] > 0 else stay
        elif arena.meta[M_CHANGELOG] != 0:
            stay += events[j, K_GONE]
        elif streams[j, S_KIND] == ROWS:
            stay = max(stay, following - size)
        elif streams[j, S_KIND] == RANGE and not strict:
            ring, mask, horizon = streams[j, S_VALUES], streams[j, S_MASK], time_at(arena, chunk, n - 1) - size
            while stay < following and arena.values[u64(ring + (stay & mask))] < horizon:
                stay += 1
        events[j, K_STAY] = stay


@inlined
def insert_chunk(arena: Arena, chunk: Chunk) -> int:
    """Insert the arrivals of the chunk into their SteMs, attribute by attribute; return the number of arrivals."""
    arrivals = np.int64(0)
    streams, attrs, recs, heads = arena.streams, arena.attrs, arena.recs, arena.heads
    for j in range(streams.shape[0]):
        i = u64(j)
        n, first = chunk.streams[i, K_COUNT], chunk.streams[i, K_FIRST]
        ring, mask, width = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH]
        if n > 0:
            for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
                c = u64(attrs[u64(x), A_CLASS])
                column, stride = arena.classes[c, C_HEADS] + attrs[u64(x), A_COLUMN], arena.classes[c, C_STRIDE]
                if streams[i, S_LIFE] > 0:
                    # The primary key was linked when the events were listed.
                    for s in range(first, first + n if x != streams[i, S_KEY] else first):
                        if not is_delete(arena, j, s):
                            link_version(arena, j, x, s)
                    continue
                for s in range(first, first + n):
                    at = ring + (s & mask) * width + attrs[u64(x), A_OFFSET]
                    kid = np.int64(recs[u64(at + 1)])
                    if kid >= 0:
                        p = u64(column + kid * stride)
                        recs[u64(at)] = newest_of(heads[p])
                        heads[p] = head_with(heads[p], s)
            streams[i, S_NEXT] = first + n
        arrivals += n
    return arrivals


@inlined
def has_arrived(chunk: Chunk, j: int, s: int, place: int) -> bool:
    """Return whether tuple s >= K_FIRST of stream j has arrived when the event at `place` probes."""
    events = chunk.streams[u64(j)]
    return chunk.places[u64(events[K_START] + s - events[K_FIRST])] < place


@inlined
def has_left(arena: Arena, chunk: Chunk, j: int, s: int, place: int) -> bool:
    """Return whether tuple s < K_STAY of stream j has left its window when the event at `place` probes."""
    row, events = arena.streams[u64(j)], chunk.streams[u64(j)]
    if row[S_LIFE] > 0:
        return life_of(arena, j, s) < place
    if arena.meta[M_CHANGELOG] != 0:
        return chunk.departures[u64(events[K_GONE_AT] + s - events[K_LOW])] < place
    if row[S_KIND] == ROWS:
        return chunk.places[u64(events[K_START] + s + row[S_SIZE] - events[K_FIRST])] < place
    return arena.values[u64(row[S_VALUES] + (s & row[S_MASK]))] < time_at(arena, chunk, place) - row[S_SIZE]


@inlined
def newest_seen(arena: Arena, chunk: Chunk, j: int, offset: int, s: int, place: int) -> int:
    """Return the newest tuple that the event at `place` sees, from tuple s of stream j down its chain; -1 for none.

    offset   where (link, key id) of the chain lies in a record
    """
    row, events = arena.streams[u64(j)], chunk.streams[u64(j)]
    while s >= events[K_FIRST] and not has_arrived(chunk, j, s, place):
        s = np.int64(arena.recs[u64(row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + offset)])
    while s >= events[K_LOW] and s < events[K_STAY] and has_left(arena, chunk, j, s, place):
        if row[S_LIFE] == 0:
            return np.int64(-1)
        s = np.int64(arena.recs[u64(row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + offset)])
    return np.int64(-1) if s < events[K_LOW] else s


@inlined
def close_events(arena: Arena, chunk: Chunk, n: int) -> int:
    """Set watermark and low marks to those after the first n events of the chunk; return the number of arrivals.

    Afterwards K_FIRST is the number that follows those of these arrivals.
    """
    streams, meta, events = arena.streams, arena.meta, chunk.streams
    arrivals = np.int64(0)
    if n > 0 and meta[M_TIMED] != 0:
        meta[M_WATERMARK] = chunk.clock[u64(n - 1)]
    for place in range(n):
        i = u64(chunk.owners[u64(place)])
        if chunk.signs[u64(place)] == INSERTED:
            events[i, K_FIRST] += 1
            arrivals += 1
        elif streams[i, S_LIFE] > 0:
            bury(arena, np.int64(i), np.int64(chunk.tuples[u64(place)]), np.int64(chunk.tuples[u64(place + 1)]))
        else:
            streams[i, S_LO] += 1
    for j in range(streams.shape[0]):
        if streams[u64(j), S_LIFE] > 0 and n > 0:
            streams[u64(j), S_LO] = pass_dead(arena, j, events[u64(j), K_FIRST])
    if meta[M_CHANGELOG] == 0:
        for j in range(streams.shape[0]):
            i = u64(j)
            if streams[i, S_KIND] == ROWS:
                streams[i, S_LO] = max(streams[i, S_LO], events[i, K_FIRST] - streams[i, S_SIZE])
            elif streams[i, S_KIND] == RANGE:
                expire_range(arena, j)
    return arrivals
