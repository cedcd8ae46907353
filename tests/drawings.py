"""The drawings in the guide: `python -m tests.drawings` writes them, and a test compares them.

Counts are deterministic, so the same sources give the same bytes. Times are left out of the timeline.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import eddy
from eddy.show.timeline_svg import timeline_svg
from tests.documents import ROOT

FOLDER = ROOT / "docs" / "guide" / "seeing"
COLUMNS = {"visits": "user", "orders": ("user", "item"), "items": ("item", "depot"), "depots": "depot"}
PLANS = ("((visits orders) items) depots", "((orders items) depots) visits", "(visits orders) (items depots)")


def drawings() -> dict[str, str]:
    """Return the drawings by the names of their files."""
    columns = {name: (given,) if isinstance(given, str) else given for name, given in COLUMNS.items()}
    streams = [
        eddy.Stream(name, pa.schema([(c, pa.int64()) for c in column_names]), window=eddy.Rows(200))
        for name, column_names in columns.items()
    ]
    on = ["visits.user = orders.user", "orders.item = items.item", "items.depot = depots.depot"]
    runtime = eddy.Runtime(eddy.Query(streams, on), PLANS[0], policy="fixed", store=["visits orders"], count_only=True)
    rng, keys = np.random.default_rng(3), {"user": 60, "item": 90, "depot": 150}
    for n, plan in enumerate(PLANS):
        if n:
            store = ["items depots"] if plan == PLANS[2] else []
            runtime.transition(plan, store=store)
        for _ in range(2 + n):
            rows = {
                name: {c: rng.integers(0, keys[c], 150) for c in column_names} for name, column_names in columns.items()
            }
            order = rng.permutation(np.repeat(np.arange(4), 150))
            runtime.push({name: pa.record_batch(arrays) for name, arrays in rows.items()}, order)
    history = [{**row, "ns_before": 0, "ns_after": 0} for row in runtime.history().to_pylist()]
    return {
        "plan.svg": runtime.explain("svg") + "\n",
        "timeline.svg": timeline_svg(history, runtime.position, runtime.plan) + "\n",
    }


def main() -> None:
    """Write the drawings."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawings().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
