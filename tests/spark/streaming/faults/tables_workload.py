"""The input of the broken job over tables, and its answer: a stream and two tables, whose changes come in disorder.

The files are those of `workload.py`. In those of S and T, `v` is the key of a row and `t` the version of a change: the
rows move to another `k`, and so from one key group to another.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import eddy
from eddy import agg
from tests.spark.streaming.faults.workload import (
    KEYS,
    LATENESS,
    SCHEMA,
    FaultsWorkload,
    Result,
    Row,
    accepted,
    kept,
)

TABLES, RANGE, ROWS = ("S", "T"), 60, 30
"""The tables, the window of the stream R, and the number of rows of a table."""
FIRST = 6
"""Groups of the answer of `groups_query`."""


def tables_query(traps: Path) -> eddy.Query:
    """Return the join; its filters are places for the faults below a directory."""
    keep = eddy.Predicate(partial(kept, traps=str(traps)))
    stream = eddy.Stream("R", SCHEMA, window=eddy.Range(RANGE), time="t", filter=keep)
    tables = [eddy.Table(name, SCHEMA, key="v", version="t", filter=keep) for name in TABLES]
    where = eddy.Predicate(partial(accepted, traps=str(traps)), columns=["R.v", "S.v", "T.v"])
    return eddy.Query([stream, *tables], ["R.k = S.k", "S.k = T.k"], where=where)


def groups_query(traps: Path) -> eddy.Query:
    """Return the first groups of the join: a changelog above a changelog."""
    joined = tables_query(traps)
    aggregates = {"n": agg.count(), "most": agg.max("R.v"), "least": agg.min("T.t")}
    first = eddy.Top(FIRST, order=["n desc", "S.v"], rank="place")
    more = {"where": joined.where, "group_by": ["S.v"], "aggregates": aggregates, "top": first}
    return eddy.Query(joined.streams, joined.on, **more)


@dataclass(frozen=True)
class TablesWorkload(FaultsWorkload):
    """The rows of a seed, as `FaultsWorkload` has them for the stream."""

    @cached_property
    def streams(self) -> dict[str, list[list[Row]]]:
        """The rows (k, t, v) per input and batch."""
        made, chance = dict(super().streams), random.Random(f"changes {self.seed}")
        for name in TABLES:
            versions = list(range(self.batches * self.rows))
            # Some changes come a batch late, or early.
            versions.sort(key=lambda number: number + chance.randrange(self.rows))
            made[name] = [
                [
                    (chance.randrange(KEYS), versions[batch * self.rows + k], chance.randrange(ROWS))
                    for k in range(self.rows)
                ]
                for batch in range(self.batches)
            ]
        return made

    def expected(self) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        """Return the answer after all batches, and the late rows; by nested loops."""
        late: dict[str, Counter[Row]] = {name: Counter() for name in "RST"}
        arrived, greatest, mark = list[Row](), -(10**9), -(10**9)
        for rows in self.streams["R"]:
            for row in (row for row in rows if row[2] & 7 != 3):
                if row[1] < mark:
                    late["R"][row] += 1
                else:
                    arrived.append(row)
                greatest = max(greatest, row[1])
            mark = max(mark, greatest - LATENESS)
        newest: dict[str, dict[int, Row]] = {name: {} for name in TABLES}
        for name, latest in newest.items():
            for row in (row for rows in self.streams[name] for row in rows):
                if row[2] not in latest or row[1] > latest[row[2]][1]:
                    latest[row[2]] = row
        present = [row for row in arrived if mark - RANGE <= row[1] <= mark]
        results: Counter[Result] = Counter()
        for r in present:
            for s in (row for row in newest["S"].values() if row[0] == r[0] and row[2] & 7 != 3):
                for t in (row for row in newest["T"].values() if row[0] == r[0] and row[2] & 7 != 3):
                    if (r[2] + s[2] + t[2]) & 3 != 1:
                        results[(*r, *s, *t)] += 1
        return results, late


@dataclass(frozen=True)
class GroupsWorkload(TablesWorkload):
    """The same rows, of whose results the first groups are asked."""

    def expected(self) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        """Return the first groups after all batches, and the late rows."""
        results, late = super().expected()
        groups: dict[int, list[Result]] = {}
        for result in results.elements():
            groups.setdefault(result[5], []).append(result)
        ranked = sorted(
            ((v, len(rows), max(row[2] for row in rows), min(row[7] for row in rows)) for v, rows in groups.items()),
            key=lambda group: (-group[1], group[0]),
        )
        return Counter((*group, place) for place, group in enumerate(ranked[:FIRST], start=1)), late
