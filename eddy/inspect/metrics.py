"""Counts since the start, in total and per state: the result of `Runtime.metrics`."""

from __future__ import annotations

from typing import Any

from eddy.inspect.hops import hop_figures
from eddy.join.join import Join
from eddy.pipeline.pipeline import Pipeline
from stairs.descriptors import (
    A_MARKS,
    M_ARRIVALS,
    M_RESULTS,
    S_ATTR0,
    S_ATTR1,
    S_BASE,
    S_NEXT,
    S_WALKED,
)

Counts = dict[str, Any]


def metrics(pipeline: Pipeline) -> Counts:
    """Return counts since the start.

    Total:     arrivals, inserts, expired, late, late_dropped (late rows dropped before they were collected), failed
               and failed_dropped (the same of joined rows and groups that fail), probes, matches, combinations (before
               `where`), results (after it), deleted (results taken back in a changelog), bytes, late_bytes (the part
               of `bytes` that late rows take) and file_bytes (rows in files, beside `bytes`)
    "states"   the same for each SteM, by name, with `rows` (live now), `walked` (arrivals with a match at each of their
               leaf hops) and `marks` (keys of which no row has a result, which probes skip)
    "classes"  keys and bytes of each key directory
    "hops"     per probe of each present route: from, to (a stream, or the streams of a STAIR), probes (chains walked)
               and matches (tuples in them that passed the checks)
    "rings"    ring values (`eddy.aggregates.rings`), None if they cannot serve the query: whether they serve now, their
               roots, known rows, tuples visited, how often they and enumeration took turns, bytes. While they serve,
               joined rows are not found, and do not count in `combinations` and `results`
    "stairs"   per stored state: streams, class, entries (live now), pending (key ids not attempted yet), bytes, and
               counters since the state was made

    A query with branches has the figures of each inner join under "joins", by the names of its streams, and "open": the
    matches whose partners are counted, and the rows that wait for their versions in as-of joins.
    """
    late, partners = pipeline.late.rows, pipeline.partners
    counts: Counts = {
        "arrivals": pipeline.position,
        "results": pipeline.n_results,
        "deleted": pipeline.n_deleted,
        "late": sum(late.counts),
        "late_dropped": sum(late.dropped),
        "failed": pipeline.failed.count,
        "failed_dropped": pipeline.failed.dropped,
        "bytes": pipeline.nbytes,
        "late_bytes": late.nbytes,
        "file_bytes": pipeline.file_bytes,
    }
    if partners is not None:
        joins = {join.title: _join_counts(join) for join in pipeline.joins.values()}
        return {**counts, "open": partners.waiting, "joins": joins}
    figures = _join_counts(pipeline.join) | counts
    for state, count, dropped in zip(figures["states"].values(), late.counts, late.dropped, strict=True):
        state.update(late=count, late_dropped=dropped)
    return figures


def _join_counts(join: Join) -> Counts:
    """Return the counts of one join."""
    modules, strategy = join.modules, join.strategy
    hops: list[Counts] = [
        {"from": hop.stream, "to": " ".join(hop.to), "probes": hop.probes, "matches": hop.matches}
        for hop in hop_figures(modules, strategy)
    ]
    states = {
        name: _state(join, i, [hop for hop in hops if hop["to"] == name]) for i, name in enumerate(modules.graph.names)
    }
    classes = [{"keys": modules.keys(c), "bytes": modules.key_bytes(c)} for c in range(modules.graph.n_classes)]
    return {
        "arrivals": int(modules.meta[M_ARRIVALS]),
        "results": join.n_results,
        "deleted": join.n_deleted,
        "combinations": int(modules.meta[M_RESULTS]),
        "inserts": sum(state["inserts"] for state in states.values()),
        "expired": sum(state["expired"] for state in states.values()),
        "probes": sum(hop["probes"] for hop in hops) + int(strategy.past[:, 0].sum()),
        "matches": sum(hop["matches"] for hop in hops) + int(strategy.past[:, 1].sum()),
        "bytes": join.nbytes,
        "states": states,
        "classes": classes,
        "hops": hops,
        "rings": _rings(join),
        "stairs": [
            {
                "streams": [modules.graph.names[j] for j in stair.streams],
                "class": stair.by + 1,
                "entries": stair.rows,
                "pending": stair.pending,
                "bytes": stair.nbytes,
                **stair.counters(),
            }
            for stair in strategy.stairs
        ],
    }


def _rings(join: Join) -> Counts | None:
    """Return the counts of ring values."""
    rings = join.rings
    if rings is None:
        return None
    return {
        "serves": rings.choice.on,
        "roots": [join.query.graph.names[i] for i in rings.roots],
        "known": rings.known,
        "walked": rings.walked,
        "changes": rings.choice.changes,
        "bytes": rings.nbytes,
    }


def _state(join: Join, i: int, hops: list[Counts]) -> Counts:
    """Return the counts of the SteM of stream i; `hops` are those that probe it."""
    modules, past = join.modules, join.strategy.past
    arrived, live = int(modules.streams[i, S_NEXT] + modules.streams[i, S_BASE]), modules.live(i)
    return {
        "arrivals": arrived,
        "inserts": arrived,
        "walked": int(modules.streams[i, S_WALKED]),
        "rows": live,
        "marks": int(modules.attrs[modules.streams[i, S_ATTR0] : modules.streams[i, S_ATTR1], A_MARKS].sum()),
        "expired": arrived - live,
        "probes": sum(hop["probes"] for hop in hops) + int(past[i, 0]),
        "matches": sum(hop["matches"] for hop in hops) + int(past[i, 1]),
        "bytes": modules.stem_bytes(i) + join.payload.bytes_of(i),
    }
