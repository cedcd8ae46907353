"""Queries of NEXMark in Flink SQL. Run by a Python that has apache-flink, not by that of this package.

    python flink_nexmark.py JOBS_FILE

JOBS_FILE has one object of JSON a line for each job, and the jobs run one after the other in one JVM:

    query        the statement, a SELECT
    parallelism  number of parallel instances of each operator
    events       folder of person.csv, auction.csv, bid.csv, in order of time, and side_input.csv; times in milliseconds
    results      folder for the changes of the results, in Maxwell's JSON; null discards them

One line of JSON is printed for each job: seconds, version. The seconds are the run time that Flink states for the job,
from the arrival of the planned job in the cluster to the end of its last task. They contain neither the start of the
JVM and of the cluster nor the planning of the statement.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

AT = "`dateTime` AS TO_TIMESTAMP_LTZ(at_ms, 3)"
IN_ORDER = "WATERMARK FOR `dateTime` AS `dateTime`"
TABLES = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, at_ms BIGINT,"
    f" extra STRING, {AT}, {IN_ORDER}",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, at_ms BIGINT,"
    " expires_ms BIGINT, seller BIGINT, category BIGINT, extra STRING,"
    f" {AT}, expires AS TO_TIMESTAMP_LTZ(expires_ms, 3), {IN_ORDER}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at_ms BIGINT, extra STRING,"
    f" {AT}, {IN_ORDER}",
    # A version of each key that holds from the beginning of time.
    "side_input": "key BIGINT, side STRING, since AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR since AS since,"
    " PRIMARY KEY (key) NOT ENFORCED",
}
SETTINGS = {
    "pipeline.object-reuse": "true",
    "rest.bind-port": "0",  # any free port
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",  # this and the size as in the benchmark's own settings for Flink
    "table.exec.mini-batch.size": "50000",
    "table.local-time-zone": "UTC",
}


def run(tables: TableEnvironment, query: str, parallelism: int, events: str, results: str | None) -> dict[str, object]:
    """Run a query over the files of one folder as a job."""
    tables.get_config().set("parallelism.default", str(parallelism))
    for name, columns in TABLES.items():
        file = (Path(events) / f"{name}.csv").resolve().as_uri()
        declare(tables, name, columns, f"'connector' = 'filesystem', 'format' = 'csv', 'path' = '{file}'")
    kinds = [str(kind) for kind in tables.sql_query(query).get_schema().get_field_data_types()]
    columns = ", ".join(f"c{i} {declared(kind)}" for i, kind in enumerate(kinds))
    if results is None:
        declare(tables, "results", columns, "'connector' = 'blackhole'")
    else:
        place = Path(results).resolve().as_uri()
        declare(
            tables, "results", columns, f"'connector' = 'filesystem', 'format' = 'maxwell-json', 'path' = '{place}'"
        )
    job = tables.execute_sql(f"INSERT INTO results {query}")
    job.wait()
    client = job.get_job_client()
    assert client is not None  # a job that was submitted has one
    took_ms = client.get_job_execution_result().result().get_net_runtime()
    return {"seconds": took_ms / 1000, "version": version("apache-flink")}


def declare(tables: TableEnvironment, name: str, columns: str, options: str) -> None:
    """Make a table in place of an earlier one of its name."""
    tables.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS {name}")
    tables.execute_sql(f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({options})")


def declared(kind: str) -> str:
    """Return the type of a column of results, for a type as Flink shows it, such as `BIGINT NOT NULL`."""
    for word, name in (("TIMESTAMP", "TIMESTAMP_LTZ(3)"), ("BIGINT", "BIGINT"), ("DOUBLE", "DOUBLE")):
        if word in kind:
            return name
    return "STRING"


def main(jobs: list[str]) -> None:
    """Run the jobs. Ends the process with the innermost reason if one fails in the JVM."""
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for job in jobs:
        try:
            print(json.dumps(run(tables, **json.loads(job))), flush=True)
        except Exception as failed:
            sys.exit(f"{type(failed).__name__}: {reason(str(failed))}")


def reason(text: str) -> str:
    """Return the line of the innermost cause in a text that may have stack traces of the JVM."""
    lines = text.splitlines() or [""]
    causes = [line for line in lines if line.startswith((": ", "Caused by: "))]
    return [lines[0], *causes][-1]


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text().splitlines())
