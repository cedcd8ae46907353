"""W1 with RANGE windows in Flink SQL. Run by a Python that has apache-flink, not by that of this package.

    python flink_w1.py interval|multi-join SPAN THREADS FILE...

Each FILE has one line `stream,k,ts,v` for each arrival, by time; each is joined as one job of an embedded cluster.
"interval" is a chain of three interval joins. "multi-join" is one MultiJoin operator: regular joins on the key, with
the conditions on time as a filter. The state of this operator expires by processing time only, so the operator keeps
all rows of these short runs. One line of JSON is printed for each file: results, the sum of all values in them,
seconds, version.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

STREAMS = "RSTU"
SETTINGS = {
    "pipeline.object-reuse": "true",
    "rest.bind-port": "0",  # any free port
}


def query(span: int, multi_join: bool) -> str:
    """Return the join. An interval join compares one event time of its left side, so other pairs are filtered.

    All rows are within `span` of the youngest row exactly if any two rows are within `span` of each other.
    """
    joined = "R"
    for i, name in enumerate(STREAMS[1:], 1):
        near = f"{name}.e BETWEEN R.e - {interval(span)} AND R.e + {interval(span)}"
        pairs = [f"ABS({name}.ts - {other}.ts) <= {span}" for other in STREAMS[1:i]]
        joined += f" JOIN {name} ON " + " AND ".join([f"R.k = {name}.k", *([] if multi_join else [near, *pairs])])
    values = ", ".join(f"{name}.v AS v{name}" for name in STREAMS)
    ts = ", ".join(f"{name}.ts" for name in STREAMS)
    where = f" WHERE GREATEST({ts}) - LEAST({ts}) <= {span}" if multi_join else ""
    return f"SELECT R.k AS k, {values} FROM {joined}{where}"


def interval(span: int) -> str:
    """Return a span of ticks, a millisecond each, as an interval of SQL."""
    seconds, milliseconds = divmod(span, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"INTERVAL '{hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{milliseconds:03}' DAY TO SECOND(3)"


def joined(tables: TableEnvironment, file: str, span: int, multi_join: bool) -> dict[str, object]:
    """Run the join of one file as a job."""
    with tempfile.TemporaryDirectory(prefix="eddy-peers-") as folder:
        for name in ("arrivals", "results", *STREAMS):
            kind = "TABLE" if name in ("arrivals", "results") else "VIEW"
            tables.execute_sql(f"DROP TEMPORARY {kind} IF EXISTS {name}")
        tables.execute_sql(
            "CREATE TEMPORARY TABLE arrivals (source STRING, k BIGINT, ts BIGINT, v BIGINT,"
            " e AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR e AS e) WITH ('connector' = 'filesystem', 'format' = 'csv',"
            f" 'path' = '{Path(file).resolve().as_uri()}')"
        )
        values = ", ".join(f"v{name} BIGINT" for name in STREAMS)
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE results (k BIGINT, {values}) WITH ('connector' = 'filesystem', 'format' = 'csv',"
            f" 'path' = '{Path(folder).as_uri()}')"
        )
        for name in STREAMS:
            tables.execute_sql(
                f"CREATE TEMPORARY VIEW {name} AS SELECT k, ts, v, e FROM arrivals WHERE source = '{name}'"
            )
        plan = tables.explain_sql(f"INSERT INTO results {query(span, multi_join)}")
        if multi_join and "MultiJoin" not in plan:
            raise RuntimeError("this version of Flink does not plan a MultiJoin")
        start = time.perf_counter()
        tables.execute_sql(f"INSERT INTO results {query(span, multi_join)}").wait()
        seconds = time.perf_counter() - start
        results = total = 0
        for part in Path(folder).rglob("*"):
            if part.is_file() and not part.name.startswith("."):
                with part.open() as lines:
                    for line in lines:
                        results += 1
                        total += sum(map(int, line.split(",")[1:]))
    return {"results": results, "total": total, "seconds": seconds, "version": version("apache-flink")}


def main(kind: str, span: int, threads: int, files: list[str]) -> None:
    """Run the jobs one after the other in one cluster."""
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    configuration.set_string("parallelism.default", str(threads))
    if kind == "multi-join":
        configuration.set_string("table.optimizer.multi-join.enabled", "true")
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for file in files:
        print(json.dumps(joined(tables, file, span, kind == "multi-join")), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
