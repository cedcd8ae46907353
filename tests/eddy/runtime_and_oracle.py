"""A runtime that changes its plan, and an oracle, which has no plan.

Arrivals are written "R1 S1.2 T1@5": the stream, its keys in the order of its columns, and its event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import eddy
from eddy.query.clock_rule import WatermarkOf
from stairs.descriptors import C_NEXT
from tests.cases import Arrival, BatchedPush, JoinCase, StreamCase, assert_changes, changes

A, B, C = "((R S) T) U", "((S T) R) U", "((S T) U) R"
"""The plans of the paper's figures 2 and 4: RS and RST; ST and RST; ST and STU."""


def query(columns: Sequence[str], window: str = "rows", size: int = 100, lateness: int = 0, **sizes: int) -> JoinCase:
    """Return a query over R, S, T, … by the names of their key columns: "ab" has a and b. Equal names join. The
    stream that is ahead is the clock."""
    timed = window == "range"
    streams, predicates = [], []
    last: dict[str, str] = {}
    for name, letters in zip("RSTUVW", columns, strict=False):
        schema = pa.schema([(column, pa.int64()) for column in (*letters, "t", "v")])
        streams.append(StreamCase(name, schema, window, sizes.get(name, size), "t" if timed else None))  # type: ignore[arg-type]
        for column in letters:
            if column in last:
                predicates.append((((last[column], column), (name, column)),))
            last[column] = name
    watermark: WatermarkOf = "fastest" if timed else "slowest"
    return JoinCase(tuple(streams), tuple(predicates), lateness=lateness, watermark=watermark)


ONE_CLASS = query(["a"] * 4)
CHAIN = query(["a", "ab", "bc", "c"])


class Twins:
    """A runtime and an oracle that receive the same arrivals."""

    def __init__(self, case: JoinCase, plan: str, strategy: str, output: str = "changelog", **options: Any) -> None:
        self.case, self.output, self.oracle = case, output, case.oracle()
        self.runtime = eddy.Runtime(case.query(), plan, strategy=strategy, output=output, ids_only=True, **options)

    def arrivals(self, text: str, v: int = 1) -> list[Arrival]:
        """Read arrivals."""
        arrivals = []
        for word in text.split():
            keys, _, time = word[1:].partition("@")
            i = self.case.names.index(word[0])
            key_names = self.case.streams[i].schema.names[:-2]
            values = dict(zip(key_names, map(int, keys.split(".")), strict=True))
            arrivals.append((i, {**values, "t": int(time or 0), "v": v}))
        return arrivals

    def push(self, text: str) -> list[tuple[Any, ...]]:
        """Push arrivals, compare with the oracle and return the changes."""
        batched = BatchedPush(tuple(self.arrivals(text)))
        table = self.runtime.push(batched.batches(self.case), [i for i, _ in batched.arrivals])
        outcomes = [self.oracle.arrive(self.case.names[i], row) for i, row in batched.arrivals]
        assert_changes(table, changes(self.case, outcomes, self.oracle, self.output, "ids"), "ids")
        self.runtime.check()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def each(self, text: str) -> list[tuple[Any, ...]]:
        """Push arrivals one by one."""
        return [row for word in text.split() for row in self.push(word)]

    def transition(self, *plans: str) -> None:
        """Change plans."""
        for plan in plans:
            self.runtime.transition(plan)
            self.runtime.check()
            assert self.runtime.plan == plan

    def demote_all(self) -> None:
        """Drop all that states store."""
        for stair in self.runtime.stairs:
            for kid in range(int(stair.modules.classes[stair.by, C_NEXT])):
                stair.demote(kid)
