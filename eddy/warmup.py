"""Compile (or load from the cache) the kernels of a push before the first row comes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import Gate
from eddy.live.seal import LEAST_KEY_BYTES, Seal
from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.query.windows import Range
from eddy.runtime import Runtime


def warmup() -> None:
    """Run tiny joins that reach every kernel of a push that succeeds, of changes of plan, snapshots, live engines.

    Call it in a process before it forks workers, or at the start of a service: one to two minutes when nothing is
    cached, well below one when the kernels are on disk, nothing the second time.
    """
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
    streams = [Stream(name, schema, window=Range(10), time="t") for name in ("R", "S")]
    query = Query(streams, ["R.k = S.k", "R.s = S.s"], lateness=1)
    runtime = Runtime(query)
    rows = 200
    batch = pa.record_batch(
        {"k": list(range(rows)), "s": [str(k) for k in range(rows)], "t": list(range(rows))}, schema=schema
    )
    for start in (0, 100):
        runtime.push({"R": batch.slice(start, 80), "S": batch.slice(start, 80)})
    # Late rows, without the message that a runtime has for the first of them.
    Gate(query).admit({"R": batch.slice(20, 80), "S": batch.slice(20, 80)}, None, rows, None)
    Runtime.restore(runtime.snapshot(), query)
    # A given order and row numbers go through kernels of their own.
    Runtime(query, ids_only=True).push({"R": batch, "S": batch}, order=[0] * rows + [1] * rows)
    third = Query([*streams, Stream("T", schema, window=Range(10), time="t")], ["R.k = S.k", "S.k = T.k"])
    # Samples are taken and plans are tried when a policy is asked.
    deciding = Runtime(third, decide_every=50)
    for start in (0, 100):
        deciding.push({name: batch.slice(start, 100) for name in ("R", "S", "T")})
    deciding.stats()
    for strategy in ("stairs", "jisc"):
        changing = Runtime(third, "(R S) T", strategy=strategy)
        changing.push(dict.fromkeys(("R", "S", "T"), batch))
        changing.transition("R (S T)")
        changing.push({name: batch.slice(rows - 5, 5) for name in ("R", "S", "T")})
        for stair in changing.stairs:
            stair.make_room(0)
    Seal(bytes(LEAST_KEY_BYTES)).of_blocks(b"", np.zeros(64, np.uint8), np.array([[0, 64]]))
