"""eddy itself: as its users have it, counting only, and its engine without Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

import eddy
from bench.engine import Engine
from bench.peers.turns import Peer
from bench.peers.works import ROWS, STREAMS, Step, Work


class Arrow:
    """Arrow batches in, Arrow tables with the key and all values out; the default policy, which adapts."""

    def __init__(self, work: Work) -> None:
        self.runtime = eddy.Runtime(work.query)

    def push(self, given: Any) -> pa.Table:
        return self.runtime.push(*given)

    def count(self, results: pa.Table) -> int:
        return int(results.num_rows)

    def total(self, results: pa.Table) -> int:
        return sum(pa.compute.sum(results[f"{name}.v"]).as_py() or 0 for name in STREAMS)


class Counting:
    """Arrow batches in, the number of results out."""

    def __init__(self, work: Work) -> None:
        self.runtime = eddy.Runtime(work.query, count_only=True)

    def push(self, given: Any) -> pa.Table:
        return self.runtime.push(*given)

    def count(self, results: pa.Table) -> int:
        return int(results["count"][0].as_py())

    def total(self, results: pa.Table) -> None:
        return None


class Kernels:
    """Keys as arrays in, row ids in a buffer out, one plan; as the hand-written loops have it."""

    def __init__(self, work: Work) -> None:
        self.engine = Engine(work.query)

    def push(self, given: Any) -> int:
        return self.engine.push(*given)

    def count(self, results: int) -> int:
        return results

    def total(self, results: int) -> None:
        return None


def _batches(work: Work, step: Step) -> Any:
    return step.batches, step.order


def _keys(work: Work, step: Step) -> Any:
    return step.order, [[np.ascontiguousarray(step.keys[step.order == i])] for i in range(len(STREAMS))]


EDDY = "eddy"


def peers() -> list[Peer]:
    """Return the three."""
    mine = eddy.__version__
    return [
        Peer(EDDY, Arrow, _batches, mine),
        Peer("eddy, counting", Counting, _batches, mine),
        Peer("eddy, engine", Kernels, _keys, mine, windows=(ROWS,)),
    ]
