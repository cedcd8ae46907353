"""Programs of `eddy run` on Spark: results, resumption, failures, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from eddy.program.running import RunningProgram, check_program
from eddy.spark import SparkJoinError
from eddy.spark.errors import StreamingStateError
from stairs.errors import SqlError
from tests.eddy.test_program import SET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = {"availableNow": True}
PROGRAM = """
CREATE TABLE clicks (k BIGINT, page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)
WITH ('connector' = 'files', 'path' = '{0}/clicks', 'format' = 'json');
CREATE TABLE buys (k BIGINT, price DOUBLE, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)
WITH ('connector' = 'files', 'path' = '{0}/buys', 'format' = 'json');
CREATE TABLE sales WITH ('connector' = 'files', 'path' = '{0}/sales');
CREATE TABLE pairs (k BIGINT, other BIGINT) WITH ('connector' = 'results', 'path' = '{0}/pairs');
INSERT INTO sales SELECT c.k, page, price FROM clicks c JOIN buys b
ON c.k = b.k AND b.at BETWEEN c.at AND c.at + INTERVAL '10' MINUTE;
INSERT INTO pairs SELECT a.k, b.k AS other FROM buys a JOIN buys b ON a.price = b.price
AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR;
"""


def write(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add a file of JSON to a stream; it appears with its rows."""
    (folder / name).mkdir(exist_ok=True)
    part = folder / f".{name}"
    part.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    part.rename(folder / name / f"{len(list((folder / name).iterdir()))}.json")


def add(folder: Path, hour: int) -> None:
    """Add rows to both streams: two of three sales follow a click, and two sales have one price."""
    at = f"2026-01-01T{hour:02}"
    write(folder, "clicks", [{"k": k, "page": f"page {hour}", "at": f"{at}:00:0{k}.5"} for k in (1, 2)])
    write(folder, "buys", [{"k": k, "price": max(k, 2.0), "at": f"{at}:05:00"} for k in (1, 2, 3)])


def sales(folder: Path) -> Counter[tuple[Any, ...]]:
    """Return the rows of `sales`."""
    files = [str(path) for path in (folder / "sales").glob("batch=*/*.parquet")]
    if not files:
        return Counter()
    rows = pyarrow.dataset.dataset(files).to_table(columns=["k", "page", "price"]).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def expected(hours: range) -> Counter[tuple[Any, ...]]:
    """Return the rows of `sales` after `add` of some hours."""
    return Counter((k, f"page {hour}", 2.0) for hour in hours for k in (1, 2))


def finished(spark: SparkSession, folder: Path, text: str | None = None) -> list[str]:
    """Run a program over what is there, and return its summary."""
    program = check_program((PROGRAM if text is None else text).format(folder))
    running = RunningProgram.started(spark, program, folder / "state", NOW)
    running.wait(threading.Event())
    return running.summary()


def test_each_result_is_written_once_through_restarts(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    assert finished(spark, tmp_path) == [
        "sales: 5 rows in 1 micro-batches, 2 results",
        "pairs: 6 rows in 1 micro-batches, 5 results",
    ]
    add(tmp_path, 3)
    assert finished(spark, tmp_path)[0] == "sales: 5 rows in 1 micro-batches, 2 results"
    assert sales(tmp_path) == expected(range(0, 4, 3))
    assert {entry.name for entry in (tmp_path / "state").iterdir()} == {"sales", "pairs"}


def test_options_of_the_join_stand_at_its_target(spark: SparkSession, tmp_path: Path) -> None:
    text = PROGRAM.replace("/sales')", "/sales', 'join.output' = 'changelog', 'join.plan' = 'buys clicks')")
    text = text.replace("BETWEEN c.at AND", "BETWEEN c.at - INTERVAL '10' MINUTE AND")
    for step, at in enumerate(("00:00", "01:00", "30:00")):
        moment = f"2026-01-01T00:{at}"
        write(tmp_path, "clicks", [{"k": 1, "page": f"page {step}", "at": moment}])
        write(tmp_path, "buys", [{"k": 1, "price": float(step), "at": moment}])
        finished(spark, tmp_path, text)
    files = sorted(str(path) for path in (tmp_path / "sales").glob("batch=*/*.parquet"))
    rows = pyarrow.dataset.dataset(files).to_table(columns=["op", "page", "price"]).to_pylist()
    # The rows of a start wait until those of the next one have come; then those of the first two have left.
    assert Counter(tuple(row.values()) for row in rows) == Counter([("+I", "page 0", 0.0), ("-D", "page 0", 0.0)])


def test_groups_and_first_rows_of_all_results_are_kept_by_key(spark: SparkSession, tmp_path: Path) -> None:
    text = f"""{PROGRAM.split("CREATE TABLE sales")[0]}
CREATE TABLE revenue (page STRING, n BIGINT, spent DOUBLE, PRIMARY KEY (page) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = '{{0}}/revenue');
CREATE TABLE best (page STRING, price DOUBLE, place BIGINT, PRIMARY KEY (page, place) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = '{{0}}/best');
INSERT INTO revenue SELECT page, COUNT(*) AS n, SUM(price) AS spent FROM clicks c JOIN buys b
ON c.k = b.k AND b.at BETWEEN c.at AND c.at + INTERVAL '10' MINUTE GROUP BY page;
INSERT INTO best SELECT page, price, place FROM (SELECT page, price, ROW_NUMBER() OVER (
PARTITION BY page ORDER BY price DESC) AS place FROM clicks c JOIN buys b
ON c.k = b.k AND b.at BETWEEN c.at AND c.at + INTERVAL '10' MINUTE) WHERE place <= 1;
"""
    for hour in range(3):
        write(tmp_path, "clicks", [{"k": 1, "page": f"page {hour % 2}", "at": f"2026-01-01T{hour:02}:00:00"}])
        write(tmp_path, "buys", [{"k": 1, "price": 1.5 * hour, "at": f"2026-01-01T{hour:02}:05:00"}])
        finished(spark, tmp_path, text)
    # The last click waits for the clock of the other stream; the first ones have left their windows long ago.
    write(tmp_path, "clicks", [{"k": 9, "page": "", "at": "2026-01-02T00:00:00"}])
    write(tmp_path, "buys", [{"k": 8, "price": 0.0, "at": "2026-01-02T00:00:00"}])
    finished(spark, tmp_path, text)
    kept = {
        name: sorted(tuple(row.values()) for row in DeltaTable(tmp_path / name).to_pyarrow_table().to_pylist())
        for name in ("revenue", "best")
    }
    assert kept["revenue"] == [("page 0", 2, 3.0), ("page 1", 1, 1.5)]
    assert kept["best"] == [("page 0", 3.0, 1), ("page 1", 1.5, 1)]


def test_a_program_reads_what_another_has_written(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    finished(spark, tmp_path)
    later = PROGRAM.split("INSERT")[0] + (
        "CREATE TABLE both WITH ('connector' = 'files', 'path' = '{0}/sales2');"
        "INSERT INTO both SELECT p.k, p.other AS page, b.price FROM pairs p JOIN buys b ON p.other = b.k;"
    )
    (line,) = finished(spark, tmp_path, later)
    assert line == "both: 8 rows in 1 micro-batches, 5 results"


def test_a_program_that_cannot_start_as_a_whole_runs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    finished(spark, tmp_path)
    other = PROGRAM.replace("a.price = b.price", "a.k = b.k")
    with pytest.raises(StreamingStateError, match="new checkpoint"):
        finished(spark, tmp_path, other)
    assert not [active for active in spark.streams.active if active.name in ("sales", "pairs")]


def test_a_join_that_fails_ends_the_others_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    program = check_program(PROGRAM.format(tmp_path))
    running = RunningProgram.started(spark, program, tmp_path / "state", {"processingTime": "100 milliseconds"})
    running.joins["broken"] = _FailedJoin()  # type: ignore[assignment]
    with pytest.raises(SparkJoinError, match=r"^broken: no such source$"):
        running.wait(threading.Event())
    assert not any(running_join.isActive for running_join in running.joins.values())


def test_an_input_that_is_not_there_is_an_error_at_its_place(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    with pytest.raises(SqlError, match=r"line 3, column 30: table 'clicks': .*PATH_NOT_FOUND"):
        finished(spark, tmp_path, PROGRAM.replace("{0}/clicks", "{0}/none"))
    assert not (tmp_path / "state" / "pairs").exists()


def test_a_line_that_is_no_row_ends_the_job(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0)
    (tmp_path / "buys" / "bad.json").write_text('{"k": "many", "price": 1.0, "at": "2026-01-01T00:01:00"}\n')
    with pytest.raises(SparkJoinError, match=r"^(sales|pairs): "):
        finished(spark, tmp_path)


class _FailedJoin:
    """A join that failed for a reason of Spark."""

    isActive = False

    def exception(self) -> Exception:
        return RuntimeError("no such source\n  at line 1")


@pytest.mark.campaign(1)
@pytest.mark.slow
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize(
    ("sent", "whole"), [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)], ids=str
)
def test_a_signal_ends_a_program_which_goes_on_with_the_next_start(
    tmp_path: Path, sent: signal.Signals, whole: bool
) -> None:
    add(tmp_path, 0)
    (tmp_path / "job.sql").write_text(PROGRAM.format(tmp_path))
    command = [sys.executable, "-m", "eddy", "run", "job.sql", "--checkpoint", "state", "--every", "100 milliseconds"]
    for hour in (0, 4):
        started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
        wanted, until = expected(range(0, hour + 1, 4)), time.monotonic() + 300
        try:
            while not (tmp_path / "sales").exists() or sum(sales(tmp_path).values()) < wanted.total():
                assert time.monotonic() < until
                assert started.poll() is None
                time.sleep(0.1)
            (os.killpg if whole else os.kill)(started.pid, sent)
            said = started.communicate(timeout=120)[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        assert started.returncode == 0, said
        assert whole or "Traceback" not in said  # threads of pyspark complain of a JVM that has gone
        assert sales(tmp_path) == wanted
        add(tmp_path, 4)


def test_the_queries_of_a_statement_set_read_each_input_once(spark: SparkSession, tmp_path: Path) -> None:
    """Through a restart with a changed query, one that is new, and one that is left out."""
    declared, inserted = PROGRAM.split("CREATE TABLE pairs")[0], PROGRAM.split("INSERT INTO sales")[1].split(";")[0]
    declared += "CREATE TABLE {2} WITH ('connector' = 'files', 'path' = '{0}/{2}');"
    declared += (
        "CREATE TABLE pages (page STRING, n BIGINT, PRIMARY KEY (page) NOT ENFORCED) WITH ('connector' = 'delta',"
    )
    declared += " 'path' = '{0}/pages', 'join.change' = 'immediate');"
    pages = "INSERT INTO pages SELECT page, COUNT(*) AS n FROM clicks c JOIN buys b ON c.k = b.k {1} GROUP BY page;"
    apart = "INSERT INTO {2} SELECT k, price FROM buys WHERE price > 2.5;"
    add(tmp_path, 0)

    def run(where: str, target: str) -> list[str]:
        text = f"{declared} EXECUTE STATEMENT SET BEGIN {pages} {apart} INSERT INTO sales{inserted}; END;"
        return finished(spark, tmp_path, text.replace("{1}", where).replace("{2}", target))

    assert run("", "dear") == ["statement set: 5 rows in 1 micro-batches", "pages: 1 results", "dear: 1 results",
                               "sales: 2 results"]  # fmt: skip
    add(tmp_path, 3)
    assert run("WHERE price > 0.5", "costly")[0] == "statement set: 5 rows in 1 micro-batches"
    assert sales(tmp_path) == expected(range(0, 4, 3))
    assert {entry.name for entry in (tmp_path / "state").iterdir()} == {"statement.set"}
    for name in ("dear", "costly"):
        files = [str(path) for path in (tmp_path / name).glob("batch=*/*.parquet")]
        assert pyarrow.dataset.dataset(files).to_table().to_pylist() == [{"k": 3, "price": 3.0}]
    # The changed query counts from its change on.
    counts = DeltaTable(str(tmp_path / "pages")).to_pyarrow_table().to_pylist()
    assert sorted((row["page"], row["n"]) for row in counts) == [("page 0", 2), ("page 3", 2)]
    with pytest.raises(SparkJoinError, match="--finish is for INSERT outside of a statement set"):
        RunningProgram.started(spark, check_program(SET), tmp_path / "state", {**NOW, "finish": True})
