"""W1 with RANGE windows as interval joins in Pathway. Run by a Python that has pathway, not by that of this package.

    python pathway_w1.py SPAN COMMIT FILE

FILE has one line `stream,k,ts,v` for each arrival, by time; a commit follows each COMMIT arrivals. One line of JSON is
printed: results, the sum of all values in them, seconds, version.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import pathway as pw

STREAMS = "RSTU"
VALUES = [f"v{name}" for name in STREAMS]


class Arrival(pw.Schema):
    """A row of the file."""

    source: str
    k: int
    ts: int
    v: int


class ArrivalSubject(pw.io.python.ConnectorSubject):
    """The arrivals of a file, with a commit after each `commit` of them."""

    deletions_enabled = False

    def __init__(self, file: str, commit: int) -> None:
        super().__init__()
        self.file, self.commit_after = file, commit

    def run(self) -> None:
        with open(self.file) as lines:
            for count, line in enumerate(lines, 1):
                source, k, ts, v = line.split(",")
                self.next(source=source, k=int(k), ts=int(ts), v=int(v))
                if count % self.commit_after == 0:
                    self.commit()


def join(arrivals: pw.Table, span: int) -> pw.Table:
    """Join the four streams. An interval join compares one time of its left side, so other pairs are filtered.

    All rows are within `span` of the youngest row exactly if any two rows are within `span` of each other.
    """
    forget = pw.temporal.common_behavior(delay=None, cutoff=span, keep_results=True)
    joined = None
    for i, name in enumerate(STREAMS):
        stream = arrivals.filter(pw.this.source == name)
        stream = stream.select(pw.this.k, **{f"t{name}": pw.this.ts, f"v{name}": pw.this.v})
        if joined is None:
            joined = stream
            continue
        columns = [f"{kind}{other}" for other in STREAMS[:i] for kind in "tv"]
        both = joined.interval_join(
            stream,
            joined.tR,
            stream[f"t{name}"],
            pw.temporal.interval(-span, span),
            joined.k == stream.k,
            behavior=forget,
        )
        joined = both.select(
            k=pw.left.k,
            **{column: pw.left[column] for column in columns},
            **{f"{kind}{name}": pw.right[f"{kind}{name}"] for kind in "tv"},
        )
        for other in STREAMS[1:i]:
            apart = pw.this[f"t{name}"] - pw.this[f"t{other}"]
            joined = joined.filter((apart <= span) & (apart >= -span))
    return joined


def main(span: int, commit: int, file: str) -> None:
    """Run the join of the file."""
    arrivals = pw.io.python.read(ArrivalSubject(file, commit), schema=Arrival, autocommit_duration_ms=None)
    with tempfile.TemporaryDirectory(prefix="eddy-peers-") as folder:
        out = Path(folder) / "results.csv"
        pw.io.csv.write(join(arrivals, span).select(pw.this.k, *(pw.this[name] for name in VALUES)), out)
        start = time.perf_counter()
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        seconds = time.perf_counter() - start
        results = total = 0
        with out.open() as lines:
            for row in csv.DictReader(lines):
                sign = int(row["diff"])
                results += sign
                total += sign * sum(int(row[name]) for name in VALUES)
    print(json.dumps({"results": results, "total": total, "seconds": seconds, "version": version("pathway")}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
