"""Counts of what a runtime did, in all and per state."""

from __future__ import annotations

from typing import Any

from eddy.results.late_rows import LateRows
from jisc.strategies import Strategy
from stairs.descriptors import (
    H_MATCHES,
    H_PROBES,
    H_STATE,
    H_TARGET,
    M_ARRIVALS,
    M_RESULTS,
    R_END,
    R_TRUNK,
    S_BASE,
    S_LO,
    S_NEXT,
    S_WALKED,
)
from stairs.modules import Modules
from stairs.payload import Payload


def metrics(
    modules: Modules, strategy: Strategy, payload: Payload, late: LateRows, results: int, deleted: int
) -> dict[str, Any]:
    """Return counts since the start.

    In all: arrivals, results, combinations, inserts, expired, late, late_dropped (late rows that had to go before they
    were taken), probes, matches, bytes, and late_bytes (of them, those of late rows kept). "states" has the same for
    each SteM, by name, with rows live now, and `walked`, the arrivals that found something at each of their leaf hops;
    "classes" has keys and bytes of each key directory; "hops" one entry for each probe of each route that runs now:
    from, to (a stream, or the streams of a STAIR), probes (chains walked) and matches (tuples found in them that
    passed); "stairs" one entry for each state stored: its streams and class, entries live now, key ids not attempted
    yet, and what was done since it was made. results are those that `where` accepted, combinations those it was asked
    about, deleted the results taken back in a changelog.
    """
    graph, routes = modules.graph, strategy.routes
    stairs = {stair.row: stair for stair in strategy.stairs}
    hops: list[dict[str, Any]] = []
    for route in range(len(strategy.trees) * graph.n_streams):
        name = graph.names[route % graph.n_streams]
        for h in range(int(routes.span[route, R_TRUNK]), int(routes.span[route, R_END])):
            target, stair = graph.names[int(routes.hops[h, H_TARGET])], int(routes.hops[h, H_STATE])
            if stair >= 0:
                target = " ".join(graph.names[j] for j in stairs[stair].streams)
            probes, matches = int(routes.hops[h, H_PROBES]), int(routes.hops[h, H_MATCHES])
            hops.append({"from": name, "to": target, "probes": probes, "matches": matches})
    states = {}
    for i, name in enumerate(graph.names):
        arrived = int(modules.streams[i, S_NEXT] + modules.streams[i, S_BASE])
        to = [hop for hop in hops if hop["to"] == name]
        states[name] = {
            "arrivals": arrived,
            "inserts": arrived,
            "walked": int(modules.streams[i, S_WALKED]),
            "rows": modules.rows(i),
            "expired": int(modules.streams[i, S_LO] + modules.streams[i, S_BASE]),
            "late": late.counts[i],
            "late_dropped": late.dropped[i],
            "probes": sum(hop["probes"] for hop in to) + int(strategy.past[i, 0]),
            "matches": sum(hop["matches"] for hop in to) + int(strategy.past[i, 1]),
            "bytes": modules.stem_bytes(i) + payload.bytes_of(i),
        }
    classes = [{"keys": modules.keys(c), "bytes": modules.key_bytes(c)} for c in range(graph.n_classes)]
    return {
        "arrivals": int(modules.meta[M_ARRIVALS]),
        "results": results,
        "deleted": deleted,
        "combinations": int(modules.meta[M_RESULTS]),
        "inserts": sum(state["inserts"] for state in states.values()),
        "expired": sum(state["expired"] for state in states.values()),
        "late": sum(late.counts),
        "late_dropped": sum(late.dropped),
        "probes": sum(hop["probes"] for hop in hops) + int(strategy.past[:, 0].sum()),
        "matches": sum(hop["matches"] for hop in hops) + int(strategy.past[:, 1].sum()),
        "bytes": modules.nbytes + payload.nbytes + strategy.nbytes + late.nbytes,
        "late_bytes": late.nbytes,
        "states": states,
        "classes": classes,
        "hops": hops,
        "stairs": [
            {
                "streams": [graph.names[j] for j in stair.streams],
                "class": stair.by + 1,
                "entries": stair.rows,
                "pending": stair.pending,
                "bytes": stair.nbytes,
                **stair.counters(),
            }
            for stair in stairs.values()
        ],
    }
