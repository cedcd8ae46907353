"""Counts of what a runtime did, in all and per state."""

from __future__ import annotations

from typing import Any

from stairs.arena import Routes
from stairs.fields import (
    H_MATCHES,
    H_PROBES,
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


def metrics(modules: Modules, routes: Routes, payload: Payload, late: list[int], results: int) -> dict[str, Any]:
    """Return counts since the start.

    In all: arrivals, results, combinations, inserts, expired, late, probes, matches, bytes. "states" has the same for
    each SteM, by name, with rows live now, and `walked`, the arrivals that found something at each of their leaf hops;
    "classes" has keys and bytes of each key directory; "hops" one entry for each probe of each route: from, to, probes
    (chains walked) and matches (tuples found in them that passed). results are those that `where` accepted,
    combinations those it was asked about.
    """
    graph = modules.graph
    hops: list[dict[str, Any]] = []
    for i, name in enumerate(graph.names):
        for h in range(int(routes.span[i, R_TRUNK]), int(routes.span[i, R_END])):
            target = graph.names[int(routes.hops[h, H_TARGET])]
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
            "late": late[i],
            "probes": sum(hop["probes"] for hop in to),
            "matches": sum(hop["matches"] for hop in to),
            "bytes": modules.stem_bytes(i) + payload.bytes_of(i),
        }
    classes = [{"keys": modules.keys(c), "bytes": modules.key_bytes(c)} for c in range(graph.n_classes)]
    return {
        "arrivals": int(modules.meta[M_ARRIVALS]),
        "results": results,
        "combinations": int(modules.meta[M_RESULTS]),
        "inserts": sum(state["inserts"] for state in states.values()),
        "expired": sum(state["expired"] for state in states.values()),
        "late": sum(late),
        "probes": sum(hop["probes"] for hop in hops),
        "matches": sum(hop["matches"] for hop in hops),
        "bytes": modules.nbytes + payload.nbytes,
        "states": states,
        "classes": classes,
        "hops": hops,
    }
