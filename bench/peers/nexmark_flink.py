"""NEXMark in Flink SQL: the queries in its dialect, their jobs over files of events, the comparison of the results.

Each job reads files of events in the streaming mode of Flink. Before a query is timed, a job of each parallelism
writes the changes of its results; they are folded and compared with the rows of DuckDB. These jobs also let the JVM
compile. The timed jobs discard their results, as in the benchmark.

Flink states how long a job ran. The time of a job over the first quarter of the events is subtracted from that of a job
over all events, so neither the start of tasks nor the first events, whose code is not compiled yet, count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.csv as pc

from bench.harness.figure import Say
from bench.harness.turns import Mismatch
from bench.peers.apart import beyond, flink_runs
from bench.peers.environment import Unavailable
from bench.workloads.nexmark import QUERIES, references, side_input

PARALLEL = (1, 2)
TIMEOUT = 1800.0
REPLACED = {
    # AVG of integers is an integer in Flink.
    "AVG(Q.final)": "AVG(CAST(Q.final AS DOUBLE))",
    # No connector of the distribution looks up rows, so each bid is joined with the version of its event time.
    "FOR SYSTEM_TIME AS OF PROCTIME()": "FOR SYSTEM_TIME AS OF B.dateTime",
}
Runs = Callable[[str, Sequence[str]], list[dict[str, object]]]
"""Runs a script with arguments; returns the objects that it printed."""


@dataclass(frozen=True)
class FlinkJob:
    """One job.

    query    the statement; parallelism: of each operator
    events   folder of files, as `write_events` makes it
    results  folder for the changes of the results; None discards them
    """

    query: str
    parallelism: int
    events: str
    results: str | None = None


@dataclass(frozen=True)
class FlinkOutcome:
    """Result of a query with one parallelism.

    seconds  run time of the events after the first quarter, once for each round
    results  number of rows that stand after all changes
    """

    parallelism: int
    seconds: list[float]
    results: int
    version: str


def flink_form(query: str) -> str:
    """Return a query in the dialect of Flink, in which `dateTime` is a keyword."""
    for text, other in REPLACED.items():
        query = query.replace(text, other)
    return re.sub(r"\bdateTime\b", "`dateTime`", query)


def write_events(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write streams, and the table that q13 looks up, as CSV files without header; times are milliseconds."""
    folder.mkdir(parents=True)
    for name, table in {**tables, "side_input": side_input()}.items():
        for i, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
        pc.write_csv(table, folder / f"{name}.csv", pc.WriteOptions(include_header=False))


def compare(name: str, tables: Mapping[str, pa.Table], results: Path) -> int:
    """Fold the changes in a folder and compare them with the rows of DuckDB; return the number of rows.

    Raises Mismatch unless the rows are the same, each as often.
    """
    import duckdb

    files = [str(file) for file in sorted(results.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    with closing(duckdb.connect()) as connection:
        for table_name, table in {**tables, "side_input": side_input()}.items():
            connection.register(table_name, table)
        text = references(QUERIES[name])
        kinds = [kind for _, kind, *_ in connection.execute(f"DESCRIBE {text}").fetchall()]
        columns = [f"c{i}" for i in range(len(kinds))]
        names, struct = ", ".join(columns), ", ".join(f"{column} VARCHAR" for column in columns)
        connection.execute(f"CREATE TABLE wanted AS SELECT * FROM ({text}) AS w({names})")
        connection.execute("CREATE TABLE found AS FROM wanted LIMIT 0")
        connection.execute("ALTER TABLE found ADD COLUMN sign TINYINT")
        if files:
            lines = f"columns = {{data: 'STRUCT({struct})', type: 'VARCHAR'}}, format = 'newline_delimited'"
            given = ", ".join(f"CAST(data.{column} AS {kind})" for column, kind in zip(columns, kinds, strict=True))
            signed = f"SELECT {given}, CASE type WHEN 'insert' THEN 1 ELSE -1 END FROM read_json($files, {lines})"
            connection.execute(f"INSERT INTO found {signed}", {"files": files})
        both = f"SELECT *, 1 AS sign FROM wanted UNION ALL SELECT {names}, -sign FROM found"
        odd = connection.execute(
            f"SELECT {names}, sum(sign)::BIGINT FROM ({both}) GROUP BY {names} HAVING sum(sign) <> 0 LIMIT 1"
        ).fetchall()
        if odd:
            *row, more = odd[0]
            raise Mismatch(
                f"{name}: rows of Flink differ: DuckDB has {more:+} of {row}; no figure of it means anything"
            )
        return int(connection.execute("SELECT count(*) FROM wanted").fetchall()[0][0])


def run_jobs(runs: Runs, jobs: Iterable[FlinkJob]) -> list[dict[str, object]]:
    """Run jobs one after the other in one JVM; return an answer for each."""
    with TemporaryDirectory(prefix="eddy-nexmark-") as place:
        file = Path(place) / "jobs.json"
        file.write_text("".join(f"{json.dumps(asdict(job))}\n" for job in jobs))
        return runs("flink_nexmark.py", [str(file)])


def measure_flink(
    name: str, first: Mapping[str, pa.Table], tables: Mapping[str, pa.Table], rounds: int, say: Say
) -> list[FlinkOutcome]:
    """Measure a query with each parallelism over all events, beyond the time of the first events.

    Raises Unavailable, and Mismatch if Flink has other results than DuckDB.
    """
    runs = flink_runs(TIMEOUT)
    if not find_spec("duckdb"):
        raise Unavailable("flink: its rows are compared with those of DuckDB (pip install 'eddy-join[bench]')")
    with TemporaryDirectory(prefix="eddy-nexmark-") as place:
        few, of_all = Path(place) / "few", Path(place) / "all"
        write_events(first, few)
        write_events(tables, of_all)
        say(f"{name}: Flink")
        query = flink_form(QUERIES[name])
        results = {parallelism: Path(place) / f"results-{parallelism}" for parallelism in PARALLEL}
        jobs = [FlinkJob(query, parallelism, str(of_all), str(folder)) for parallelism, folder in results.items()]
        timed = [FlinkJob(query, parallelism, str(folder)) for parallelism in PARALLEL for folder in (few, of_all)]
        answers = run_jobs(runs, [*jobs, *timed * rounds])
        say(f"{name}: results of Flink")
        counts = [compare(name, tables, folder) for folder in results.values()]
    taken = [float(str(answer["seconds"])) for answer in answers[len(jobs) :]]
    outcomes = []
    for i, parallelism in enumerate(PARALLEL):
        short, long = taken[2 * i :: len(timed)], taken[2 * i + 1 :: len(timed)]
        seconds = beyond("flink", short, long, "four times the events")
        outcomes.append(FlinkOutcome(parallelism, seconds, counts[i], str(answers[-1]["version"])))
    return outcomes
