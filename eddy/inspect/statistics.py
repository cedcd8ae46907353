"""Figures of the data and of the runtime itself as one table: the result of `Runtime.stats`.

Each call draws tuples from the whole windows and counts their partners through the indexes of the live state. Pushes
take no time for these statistics. A call does not change the samples for decisions, so a call never changes a decision.
Column `recent` shows the samples for decisions; if `recent` is far from `fanout`, the data have changed within the
window.

The figures of a pair regard one class, those of a chain the two named classes; other predicates between the same
streams are ignored. The size of a chain is estimated from the tuples of its middle stream: the mean product of their
numbers of partners on both sides. So a correlation of the two attributes is taken into account.
Source of sizes by samples through join indexes: Li, Wu, Yi, Zhao, "Wander join: online aggregation via random walks",
SIGMOD 2016; of the error of a sample without repetition: Cochran, "Sampling techniques", 1977, sec. 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.inspect.hops import hop_figures
from eddy.routing.router import Router
from jisc.strategies import Strategy
from stairs.descriptors import M_ARRIVALS, S_BASE, S_NEXT
from stairs.modules import Modules
from stairs.samples import Floats

DRAWN = 256
"""Upper bound of the tuples drawn from a window."""
CHAINS = 2000
"""Upper bound of the chains shown, those with the earliest middle stream first; on one key there are O(streams^3)."""

INT, FLOAT = pa.int64(), pa.float64()
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), False),
        ("from", pa.string()),
        ("through", pa.string()),
        ("to", pa.string()),
        ("classes", pa.list_(INT)),
        ("arrivals", INT),
        ("fresh", INT),
        ("share", FLOAT),
        ("rows", INT),
        ("fanout", FLOAT),
        ("hit", FLOAT),
        ("error", FLOAT),
        ("sampled", INT),
        ("recent", FLOAT),
        ("size", FLOAT),
        ("size_error", FLOAT),
        ("probes", INT),
        ("matches", INT),
        ("selectivity", FLOAT),
        ("ns", FLOAT),
        ("samples", INT),
        ("decisions", INT),
        ("drifts", INT),
        ("seconds", FLOAT),
    ]
)
"""The columns of `Runtime.stats()`; null = does not apply to the kind, or unknown.

kind          "stream", "pair", "chain", "hop" or "cost"
from, to      streams; of a hop, the stream whose tuples take it, and the stream, or the streams of the state, probed
through       the stream in the middle of a chain
classes       attribute classes by their numbers in `explain`: the one probed by (pair, hop), or two (chain)
arrivals      stream: since the start. cost: of all streams
fresh         stream: arrivals since the last sample for decisions
share         stream: share of recent arrivals; older samples have less weight
rows          stream: tuples in its window
fanout        pair: mean number of partners in the window of `to` of a tuple in the window of `from`
hit           pair: share of the tuples of `from` with at least one partner
error         pair: standard error of fanout; 0 if every tuple was counted
sampled       pair, chain: tuples counted
recent        pair: fanout of the recent tuples in the sample for decisions, each when it was sampled
size          pair, chain: number of results of joining the present windows
size_error    standard error of size
probes        hop: chains walked since the plan began
matches       hop: tuples in them that passed the checks
selectivity   hop: matches per probe
ns            hop: nanoseconds since the plan began, by the weights of `eddy.routing.costs`. cost: measured present
              nanoseconds of CPU per arrival
samples, decisions, drifts   cost: number of samples, of decisions of the policy, and of changes in the cost of an
              arrival while the plan stayed
seconds       cost: total CPU time of sampling and deciding
"""

Row = dict[str, Any]


def stats_table(modules: Modules, strategy: Strategy, router: Router) -> pa.Table:
    """Return a table of SCHEMA: streams, pairs, chains, hops, cost, in this order.

    The call changes nothing. Without statistics (`router.sampling`) estimates are null. O(streams * DRAWN *
    attributes^2 + rows of the table).
    """
    rows = [*_streams(modules, router)]
    rows += _estimates(modules, router)
    rows += _hops(modules, strategy)
    rows.append(_cost(modules, router))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _streams(modules: Modules, router: Router) -> Iterator[Row]:
    arrived = modules.streams[:, S_NEXT] + modules.streams[:, S_BASE]
    fresh = arrived - router.samples.progress[:-1, 0]
    shares = router.shares_now
    known = router.sampling and bool(arrived.any())
    for i, name in enumerate(modules.graph.names):
        yield {
            "kind": "stream",
            "from": name,
            "arrivals": int(arrived[i]),
            "fresh": int(fresh[i]) if router.sampling else None,
            "share": float(shares[i]) if known else None,
            "rows": modules.live(i),
        }


def _estimates(modules: Modules, router: Router) -> Iterator[Row]:
    """Yield the pairs, then the chains."""
    graph, neighbours = modules.graph, router.samples.neighbours
    # The same seed each time: two calls without a push between them return the same table.
    rng = np.random.default_rng(0)
    drawn = [
        router.samples.of_window(i, DRAWN, rng) if router.sampling else np.zeros((0, len(adjacent)))
        for i, adjacent in enumerate(neighbours)
    ]
    for i, adjacent in enumerate(neighbours):
        recent = router.samples.profile(i)
        for k, near in enumerate(adjacent):
            partners = drawn[i][:, k]
            yield {
                "kind": "pair",
                "from": graph.names[i],
                "to": graph.names[near.stream],
                "classes": [near.by + 1],
                "hit": float((partners > 0).mean()) if len(partners) else None,
                "recent": float(recent[:, k].mean()) if len(recent) and router.sampling else None,
                **_size(partners, modules.live(i)),
            }
    left = CHAINS
    for j, adjacent in enumerate(neighbours):
        # On one class, the chain is the same with any of its streams in the middle, so the chain is shown once.
        pairs = [
            (a, b)
            for a, b in combinations(range(len(adjacent)), 2)
            if adjacent[a].stream != adjacent[b].stream
            and (adjacent[a].by != adjacent[b].by or adjacent[a].stream < j < adjacent[b].stream)
        ]
        for pair in pairs[:left]:
            a, b = sorted(pair, key=lambda k: adjacent[k].stream)
            estimate = _size(drawn[j][:, a] * drawn[j][:, b], modules.live(j))
            yield {
                "kind": "chain",
                "from": graph.names[adjacent[a].stream],
                "through": graph.names[j],
                "to": graph.names[adjacent[b].stream],
                "classes": [adjacent[a].by + 1, adjacent[b].by + 1],
                **{name: estimate[name] for name in ("sampled", "size", "size_error")},
            }
        left -= len(pairs[:left])


def _size(partners: Floats, rows: int) -> Row:
    """Return the mean number of partners of sampled tuples, its error, and both scaled to all `rows` tuples."""
    n = len(partners)
    if not n:
        return {"fanout": None, "error": None, "sampled": 0, "size": None, "size_error": None}
    mean = float(partners.mean())
    # Drawn without repetition: the error is 0 if every tuple was counted.
    error = float(partners.std(ddof=1) / np.sqrt(n) * np.sqrt(1 - n / rows)) if n < rows else 0.0
    return {"fanout": mean, "error": error, "sampled": n, "size": mean * rows, "size_error": error * rows}


def _hops(modules: Modules, strategy: Strategy) -> Iterator[Row]:
    for hop in hop_figures(modules, strategy):
        yield {
            "kind": "hop",
            "from": hop.stream,
            "to": " ".join(hop.to),
            "classes": None if hop.by is None else [hop.by + 1],
            "probes": hop.probes,
            "matches": hop.matches,
            "selectivity": hop.matches / hop.probes if hop.probes else None,
            "ns": hop.ns,
        }


def _cost(modules: Modules, router: Router) -> Row:
    return {
        "kind": "cost",
        "arrivals": int(modules.meta[M_ARRIVALS]),
        "ns": None if np.isnan(router.nanoseconds) else float(router.nanoseconds),
        "samples": router.pace.samples,
        "decisions": router.pace.decisions,
        "drifts": router.pace.drifts,
        "seconds": router.seconds,
    }
