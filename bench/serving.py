"""The cost of a live page: `python -m bench.serving` prints nanoseconds per push with and without a server.

Two runtimes take the same pushes of one row, and alternate in taking a push first; the second runtime has a server. A
push of one row is the worst case, since the cost of a server for a push does not depend on the rows of the push.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns, thread_time_ns
from urllib.request import urlopen

import pyarrow as pa

from eddy import Query, Rows, Runtime, Stream, serve
from eddy.show.pages import RecentFigures, as_bytes, document
from eddy.watch.embedded import observe, sheet_of

PUSHES, ROUNDS = 8000, 3
SCHEMA = pa.schema([("k", pa.int64())])
BATCHES = [pa.record_batch({"k": [key]}, schema=SCHEMA) for key in range(997)]


def made() -> Runtime:
    """Return a join of three streams on one key."""
    streams = [Stream(name, SCHEMA, window=Rows(1000)) for name in "RST"]
    return Runtime(Query(streams, ["R.k = S.k", "S.k = T.k"]), policy="fixed", count_only=True)


def pushed(runtime: Runtime, n: int) -> int:
    """Push a row; return the nanoseconds that it took."""
    batch = {"R": BATCHES[n % len(BATCHES)]}
    began = perf_counter_ns()
    runtime.push(batch)
    return perf_counter_ns() - began


def paired(plain: Runtime, served: Runtime) -> tuple[float, float, float]:
    """Return the median nanoseconds of a push of each runtime, and the median difference of two pushes in a pair."""
    pairs = []
    for n in range(PUSHES):
        if n % 2:
            nanoseconds = pushed(plain, n)
            pairs.append((nanoseconds, pushed(served, n)))
        else:
            other = pushed(served, n)
            pairs.append((pushed(plain, n), other))
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b - a for a, b in pairs)


def timed(act: Callable[[], object]) -> float:
    """Return the median microseconds of CPU of a call."""
    took = []
    for _ in range(200):
        began = thread_time_ns()
        act()
        took.append(thread_time_ns() - began)
    return median(took) / 1e3


def main() -> None:
    """Print all figures."""
    plain, served = made(), made()

    def show(what: str) -> None:
        for _ in range(ROUNDS):
            without, with_it, difference = paired(plain, served)
            print(f"{what}: {without:,.0f} and {with_it:,.0f} ns per push, {difference:+,.0f} ns in a pair")

    paired(plain, served)
    show("no server")
    with serve(served, 0) as server:
        show("a server, nobody looks")
        ended = threading.Event()
        with urlopen(f"{server.url}events") as events:

            def look() -> None:
                while not ended.is_set() and events.readline():
                    pass

            reader = threading.Thread(target=look)
            reader.start()
            show("a server, one page open")
            ended.set()
            reader.join()
    seen = observe(served)
    print(f"figures, in the thread of the engine: {timed(lambda: observe(served)):,.0f} us")
    render = timed(lambda: as_bytes(document(sheet_of(seen, "eddy"), RecentFigures(), True)))
    print(f"the page's data, in a thread of the server: {render:,.0f} us")


if __name__ == "__main__":
    main()
