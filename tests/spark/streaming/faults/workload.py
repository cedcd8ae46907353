"""The input of the broken job and its expected output: three streams in files, one file of each per micro-batch.

The oracle knows nothing of the engine, of Spark or of key groups. It knows which rows are in which micro-batch, the
rule for late rows, and what a result is.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import eddy
from tests.spark.streaming.faults.traps import pass_by

STREAMS = ("R", "S", "T")
RANGES = {"R": 10, "S": 20, "T": 15}
LATENESS = 25
SPAN = 40
"""Ticks of event time that a batch covers."""
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
SPARK_SCHEMA = "k long, t long, v long"
PLANS = (None, "((R S) T)", "((S T) R)", "((R T) S)")
KEYS = 24
PLACEMENTS: tuple[Any, ...] = (
    "grid",
    "hops",
    "grid",
    "grid",
    {"R": [("S", "ship"), ("T", "window")], "S": [("T", "window"), ("R", "ship")], "T": [("S", "ship"), ("R", "ship")]},
    "grid",
)
"""Of key groups and fragments only the grid has engines, so it comes more often."""

Row = tuple[int, int, int]
Result = tuple[int, ...]


def kept(rows: pa.RecordBatch, *, traps: str) -> Any:
    """The filter of each stream, which runs where rows are split; a place for faults."""
    pass_by(Path(traps), "split")
    return pc.not_equal(pc.bit_wise_and(rows.column("v"), 7), 3)


def accepted(results: pa.RecordBatch, *, traps: str) -> Any:
    """The filter of results, which runs where rows are joined; a place for faults."""
    pass_by(Path(traps), "join")
    total = pc.add(pc.add(results.column(0), results.column(1)), results.column(2))
    return pc.not_equal(pc.bit_wise_and(total, 3), 1)


def query(traps: Path) -> eddy.Query:
    """Return the join; its filters are places for the faults below a directory."""
    keep = eddy.Predicate(partial(kept, traps=str(traps)))
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(RANGES[name]), time="t", filter=keep) for name in STREAMS]
    where = eddy.Predicate(partial(accepted, traps=str(traps)), columns=[f"{name}.v" for name in STREAMS])
    return eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], where=where)


@dataclass(frozen=True)
class FaultsWorkload:
    """The rows of a seed: `batches` micro-batches with `rows` rows of each stream.

    Keys are Zipf-like; rows are out of order within the lateness, and a few of them far beyond it.
    """

    seed: int
    batches: int
    rows: int = 70

    @cached_property
    def streams(self) -> dict[str, list[list[Row]]]:
        """The rows (k, t, v) per stream and batch; v numbers the rows of a stream."""
        chance = random.Random(f"rows {self.seed}")
        weights = [1 / (key + 3) for key in range(KEYS)]
        made: dict[str, list[list[Row]]] = {name: [] for name in STREAMS}
        for name in STREAMS:
            for batch in range(self.batches):
                keys = chance.choices(range(KEYS), weights, k=self.rows)
                made[name].append([])
                for number, key in enumerate(keys):
                    far = batch >= 3 and chance.random() < 0.03
                    time = SPAN * batch + chance.randrange(-20, SPAN) - (2 * SPAN if far else 0)
                    made[name][batch].append((key, time, batch * self.rows + number))
        return made

    def write(self, root: Path) -> None:
        """Write a directory of Parquet files for each stream, one for each batch, in the order Spark takes them."""
        for name in STREAMS:
            (root / name).mkdir(parents=True)
            for batch, rows in enumerate(self.streams[name]):
                path = root / name / f"{batch:06d}.parquet"
                table = pa.Table.from_pylist([dict(zip("ktv", row, strict=True)) for row in rows], schema=SCHEMA)
                pq.write_table(table, path)
                os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))

    def expected(self) -> tuple[Counter[Result], dict[str, Counter[Row]]]:
        """Return results as concatenated (k, t, v) of R, S and T, and late rows of each stream; by nested loops."""
        late: dict[str, Counter[Row]] = {name: Counter() for name in STREAMS}
        arrived: dict[str, dict[int, list[Row]]] = {name: defaultdict(list) for name in STREAMS}
        greatest = dict.fromkeys(STREAMS, -(10**9))
        mark = -(10**9)
        for batch in range(self.batches):
            for name in STREAMS:
                for row in self.streams[name][batch]:
                    if row[2] & 7 == 3:
                        continue
                    if row[1] < mark:
                        late[name][row] += 1
                    else:
                        arrived[name][row[0]].append(row)
                    greatest[name] = max(greatest[name], row[1])
            mark = max(mark, min(greatest.values()) - LATENESS)
        results: Counter[Result] = Counter()
        for key, left in arrived["R"].items():
            for r in left:
                for s in arrived["S"][key]:
                    if not -RANGES["R"] <= r[1] - s[1] <= RANGES["S"]:
                        continue
                    for t in arrived["T"][key]:
                        newest = max(r[1], s[1], t[1])
                        inside = all(
                            newest - row[1] <= RANGES[name] for name, row in zip("RST", (r, s, t), strict=True)
                        )
                        if inside and (r[2] + s[2] + t[2]) & 3 != 1:
                            results[(*r, *s, *t)] += 1
        return results, late


def counted(table: pa.Table) -> Counter[Any]:
    """Return the rows of a table as tuples, with their counts."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
