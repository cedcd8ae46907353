"""A query of NEXMark in Flink SQL. Run by a Python that has apache-flink, not by that of this package.

    python flink_nexmark.py QUERY_FILE THREADS FOLDER...

Each FOLDER has person.csv, auction.csv and bid.csv, in order of time, with times in milliseconds; each is one job of an
embedded cluster. One line of JSON is printed for each: results, seconds, version.
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

COLUMNS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, at_ms BIGINT,"
    " extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, at_ms BIGINT,"
    " expires_ms BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at_ms BIGINT, extra STRING",
}
SETTINGS = {
    "pipeline.object-reuse": "true",
    "rest.bind-port": "0",  # any free port
}


def joined(tables: TableEnvironment, folder: str, query: str) -> dict[str, object]:
    """Run the query over the files of one folder as a job."""
    for name in [*COLUMNS, "results"]:
        tables.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS {name}")
    for name, columns in COLUMNS.items():
        expires = ", expires AS TO_TIMESTAMP_LTZ(expires_ms, 3)" if name == "auction" else ""
        file = (Path(folder) / f"{name}.csv").resolve().as_uri()
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE {name} ({columns}, dateTime AS TO_TIMESTAMP_LTZ(at_ms, 3){expires},"
            " WATERMARK FOR dateTime AS dateTime)"
            f" WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{file}')"
        )
    with tempfile.TemporaryDirectory(prefix="eddy-nexmark-") as out:
        kinds = [str(kind) for kind in tables.sql_query(query).get_schema().get_field_data_types()]
        columns = ", ".join(
            f"c{i} {'TIMESTAMP_LTZ(3)' if 'TIMESTAMP' in kind else 'BIGINT' if 'BIGINT' in kind else 'STRING'}"
            for i, kind in enumerate(kinds)
        )
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE results ({columns}) WITH ('connector' = 'filesystem', 'format' = 'csv',"
            f" 'path' = '{Path(out).as_uri()}')"
        )
        start = time.perf_counter()
        tables.execute_sql(f"INSERT INTO results {query}").wait()
        seconds = time.perf_counter() - start
        results = 0
        for part in Path(out).rglob("*"):
            if part.is_file() and not part.name.startswith("."):
                with part.open() as lines:
                    results += sum(1 for _ in lines)
    return {"results": results, "seconds": seconds, "version": version("apache-flink")}


def main(query: str, threads: int, folders: list[str]) -> None:
    """Run the jobs one after the other in one cluster."""
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    configuration.set_string("parallelism.default", str(threads))
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for folder in folders:
        print(json.dumps(joined(tables, folder, query)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text(), int(sys.argv[2]), sys.argv[3:])
