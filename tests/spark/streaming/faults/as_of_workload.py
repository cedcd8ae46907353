"""The input of the broken job with an as-of join, and its results: two streams and the versions of a table.

The files are those of `workload.py`. Of T, `k` is the key of a version and `t` its begin. A version that the filter
rejects says that its key has none from then on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import eddy
from tests.spark.streaming.faults.workload import (
    LATENESS,
    RANGES,
    SCHEMA,
    STREAMS,
    FaultsWorkload,
    Result,
    Row,
    accepted,
    kept,
)

TOLERANCE = 30
"""How far the begin of a version may be from the time of a row of S."""


def as_of_query(traps: Path) -> eddy.Query:
    """Return the join; its filters are places for the faults below a directory."""
    keep = eddy.Predicate(partial(kept, traps=str(traps)))
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(RANGES[name]), time="t", filter=keep) for name in "RS"]
    versions = eddy.VersionedTable("T", SCHEMA, key="k", time="t", filter=keep)
    nearest = eddy.AsOf(versions, ["S.k = T.k"], "S.t", direction="nearest", tolerance=TOLERANCE)
    where = eddy.Predicate(partial(accepted, traps=str(traps)), columns=["R.v", "S.v", "T.v"])
    return eddy.Query(streams, ["R.k = S.k"], as_of=[nearest], where=where)


def nearest(versions: list[Row], s: Row) -> Row | None:
    """Return the version of a row; `versions` are in the order of arrival."""
    newest = {row[1]: row for row in versions if row[0] == s[0]}
    valid = max((time for time in newest if time <= s[1]), default=None)
    ahead = min((time for time, row in newest.items() if time >= s[1] and row[2] & 7 != 3), default=None)
    back = [valid] if valid is not None and newest[valid][2] & 7 != 3 else []
    near = [time for time in (*back, *([] if ahead is None else [ahead])) if abs(time - s[1]) <= TOLERANCE]
    return newest[min(near, key=lambda time: (abs(time - s[1]), time))] if near else None


@dataclass(frozen=True)
class AsOfWorkload(FaultsWorkload):
    """The rows of a seed, as `FaultsWorkload` has them."""

    def expected(self) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        """Return the results whose versions are certain after all batches, and the late rows; by nested loops."""
        late: dict[str, Counter[Row]] = {name: Counter() for name in STREAMS}
        arrived: dict[str, list[Row]] = {name: [] for name in STREAMS}
        greatest, mark = dict.fromkeys(STREAMS, -(10**9)), -(10**9)
        for batch in range(self.batches):
            for name in STREAMS:
                for row in self.streams[name][batch]:
                    if name != "T" and row[2] & 7 == 3:
                        continue
                    if row[1] < mark:
                        late[name][row] += 1
                    else:
                        arrived[name].append(row)
                    greatest[name] = max(greatest[name], row[1])
            mark = max(mark, min(greatest.values()) - LATENESS)
        results: Counter[Result] = Counter()
        for s in arrived["S"]:
            # The rows of a stream have numbers that ascend, so those of one time are in order of their content.
            t = nearest(arrived["T"], s) if s[1] + TOLERANCE < mark else None
            for r in arrived["R"] if t is not None else ():
                inside = r[0] == s[0] and -RANGES["R"] <= r[1] - s[1] <= RANGES["S"]
                if t is not None and inside and (r[2] + s[2] + t[2]) & 3 != 1:
                    results[(*r, *s, *t)] += 1
        return results, late
