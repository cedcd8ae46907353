"""Policies and rows for tests of decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import eddy
from eddy.routing.policies import Decision, View

CHAIN = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
A, B = "((R S) T) U", "((S T) U) R"
LONG = {"P": "a", "Q": "ab", "M": "bc", "S": "cd", "T": "d"}
"""A chain in which plans differ."""


class Watch:
    """A policy that records the positions at which it was asked, and decides as the test says."""

    name = "watch"

    def __init__(self, act: Callable[[View, int], Any] = lambda view, n: None) -> None:
        self.act = act
        self.asked: list[int] = []
        self.views: list[View] = []

    def decide(self, view: View) -> Any:
        self.asked.append(view.position)
        self.views.append(view)
        return self.act(view, len(self.asked))


def turns(view: View, n: int) -> Decision:
    return Decision(A if view.plan == B else B, reason=f"turn {n}")


def batches(query: eddy.Query, seed: int, rows: int, keys: int = 7) -> dict[str, pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    return {
        stream.name: pa.record_batch(
            {column: rng.integers(0, keys, rows) for column in stream.schema.names}, schema=stream.schema
        )
        for stream in query.streams
    }


def push(runtime: eddy.Runtime, seed: int, rows: int) -> pa.Table:
    """Push rows of each stream, in turn."""
    n = len(runtime.query.streams)
    return runtime.push(batches(runtime.query, seed, rows), order=np.arange(rows * n) % n)


def texts(table: pa.Table) -> list[str]:
    """Return the rows of a table, sorted."""
    return sorted(map(str, table.to_pylist()))
