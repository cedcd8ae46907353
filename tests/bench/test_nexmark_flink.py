"""NEXMark in Flink SQL: forms of the queries, the comparison of results, rows of the figure with and without Flink."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow.csv as pc
import pytest

from bench import nexmark
from bench.harness.figure import Point
from bench.harness.turns import Mismatch
from bench.nexmark import measure
from bench.peers import nexmark_flink
from bench.peers.apart import flink_runs
from bench.peers.environment import Unavailable
from bench.peers.nexmark_flink import PARALLEL, FlinkJob, compare, flink_form, run_jobs, write_events
from bench.workloads.nexmark import QUERIES, events, references, side_input

COUNT = 2_000
TABLES = events(COUNT, seed=1)
Change = tuple[str, Sequence[object]]


def quiet(what: str) -> None:
    assert what


def point(name: str) -> Point:
    return {"query": name, "peers": "Flink SQL", "events": COUNT, "rounds": 2, "seed": 1}


def wanted(name: str) -> list[tuple[object, ...]]:
    """Return the rows of DuckDB, with times as Flink writes them."""
    with duckdb.connect() as connection:
        for table_name, table in {**TABLES, "side_input": side_input()}.items():
            connection.register(table_name, table)
        rows = connection.execute(references(QUERIES[name])).fetchall()
    return [tuple(f"{value}Z" if hasattr(value, "year") else value for value in row) for row in rows]


def write_changes(folder: Path, changes: Iterable[Change]) -> None:
    """Write changes as the format maxwell-json of Flink does, in two files."""
    folder.mkdir()
    lines = [
        json.dumps({"data": {f"c{i}": value for i, value in enumerate(row)}, "type": kind}) for kind, row in changes
    ]
    for i in range(2):
        (folder / f"part-{i}-0").write_text("".join(f"{line}\n" for line in lines[i::2]))


@pytest.mark.parametrize("name", QUERIES)
def test_a_form_quotes_the_keyword_and_has_no_processing_time(name: str) -> None:
    form = flink_form(QUERIES[name])
    assert "`dateTime`" in form or "dateTime" not in QUERIES[name]
    assert "dateTime" not in form.replace("`dateTime`", "").replace("bid_dateTime", "").replace("auction_dateTime", "")
    assert "PROCTIME" not in form


def test_every_replaced_text_stands_in_a_query() -> None:
    assert all(any(text in query for query in QUERIES.values()) for text in nexmark_flink.REPLACED)


def test_files_have_every_row_and_times_in_milliseconds(tmp_path: Path) -> None:
    write_events(TABLES, tmp_path / "events")
    for name, table in {**TABLES, "side_input": side_input()}.items():
        read = pc.read_csv(tmp_path / "events" / f"{name}.csv", pc.ReadOptions(column_names=table.schema.names))
        assert read.num_rows == table.num_rows
        if name != "side_input":
            assert read["dateTime"].to_pylist()[1] == TABLES[name]["dateTime"].cast("int64").to_pylist()[1]


@pytest.mark.parametrize("name", ["q3", "q4", "q7", "q9", "q20"])
def test_changes_fold_into_the_rows_of_duckdb(name: str, tmp_path: Path) -> None:
    rows = wanted(name)
    # A row that comes, goes and comes again, and one that goes before it came: another file may hold what came.
    again = [("insert", rows[0]), ("delete", rows[0])]
    write_changes(tmp_path / "good", [*reversed(again), *(("insert", row) for row in rows)])
    assert compare(name, TABLES, tmp_path / "good") == len(rows)
    for label, changes in (
        ("fewer", [("insert", row) for row in rows[1:]]),
        ("twice", [("insert", row) for row in [*rows, rows[0]]]),
        ("stale", [*again, ("delete", rows[0]), *(("insert", row) for row in rows)]),
        ("none", []),
    ):
        write_changes(tmp_path / label, changes)
        with pytest.raises(Mismatch, match=f"{name}: rows of Flink differ"):
            compare(name, TABLES, tmp_path / label)


def test_a_value_that_differs_is_told(tmp_path: Path) -> None:
    first, *others = wanted("q3")
    write_changes(tmp_path / "out", [("insert", row) for row in [(*first[:-1], -1), *others]])
    with pytest.raises(Mismatch, match="q3: rows of Flink differ"):
        compare("q3", TABLES, tmp_path / "out")


class Recorded:
    """Answers as Flink would: writes the rows of DuckDB and states run times."""

    def __init__(self, name: str, seconds: Sequence[float]) -> None:
        self.rows = wanted(name)
        self.seconds = seconds
        self.jobs: list[FlinkJob] = []

    def __call__(self, script: str, arguments: Sequence[str]) -> list[dict[str, object]]:
        assert script == "flink_nexmark.py"
        self.jobs = [FlinkJob(**json.loads(line)) for line in Path(arguments[0]).read_text().splitlines()]
        for job in self.jobs:
            if job.results is not None:
                write_changes(Path(job.results), [("insert", row) for row in self.rows])
        return [{"seconds": seconds, "version": "9"} for seconds in self.seconds]


def test_rows_of_both_parallelisms(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two jobs are compared, then two rounds of: a quarter and all, with each parallelism.
    flink = Recorded("q9", [7, 7, 1, 3, 1, 2, 2, 4, 1, 2])
    monkeypatch.setattr(nexmark_flink, "flink_runs", lambda timeout: flink)
    first, two = measure(point("q9"), quiet)
    assert [(job.parallelism, job.results is None) for job in flink.jobs] == [
        *[(parallelism, False) for parallelism in PARALLEL],
        *[(parallelism, True) for parallelism in (1, 1, 2, 2)] * 2,
    ]
    assert (first["peer"], two["peer"]) == ("Flink SQL, parallelism 1", "Flink SQL, parallelism 2")
    assert first["results"] == two["results"] == len(flink.rows)
    assert two["events_per_s"] == two["events_per_s_low"] == 1_500
    assert (first["events_per_s_low"], first["events_per_s_high"]) == (1_500 / 2.5, 1_500 / 1.5)
    assert (first["version"], first["clock"]) == ("9", "wall")


def test_jobs_that_take_no_longer_give_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark_flink, "flink_runs", lambda timeout: Recorded("q3", [1] * 10))
    (row,) = measure(point("q3"), quiet)
    assert str(row["skipped"]).startswith("flink: four times the events took no longer")


def test_other_rows_than_those_of_duckdb_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    flink = Recorded("q3", [7, 7, 1, 2, 1, 2, 1, 2, 1, 2])
    flink.rows.pop()
    monkeypatch.setattr(nexmark_flink, "flink_runs", lambda timeout: flink)
    with pytest.raises(Mismatch, match="rows of Flink differ"):
        measure(point("q3"), quiet)


@pytest.mark.parametrize("name", QUERIES)
def test_without_flink_each_query_has_a_row_with_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (row,) = measure(point(name), quiet)
    assert row == {"peer": "Flink SQL", "skipped": "flink: not installed (eddy bench peers --install flink)"}


def test_without_duckdb_flink_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark_flink, "flink_runs", lambda timeout: pytest.fail)
    monkeypatch.setattr(nexmark_flink, "find_spec", lambda name: None)
    (row,) = measure(point("q3"), quiet)
    assert str(row["skipped"]).startswith("flink: its rows are compared with those of DuckDB")


def test_spark_refuses_what_flink_gives_as_changes() -> None:
    rows = measure({**point("q9"), "peers": "Spark"}, quiet)
    assert rows == [{"peer": "Spark", "skipped": nexmark.REFUSED["q9"]}]


@pytest.mark.slow
def test_flink_has_the_rows_of_duckdb(tmp_path: Path) -> None:
    """Run every query in Flink with each parallelism, in one JVM."""
    try:
        runs = flink_runs()
    except Unavailable as reason:
        pytest.skip(str(reason))
    write_events(TABLES, tmp_path / "events")
    places = {(name, n): tmp_path / f"{name}-{n}" for name in QUERIES for n in PARALLEL}
    made = [
        FlinkJob(flink_form(QUERIES[name]), n, str(tmp_path / "events"), str(out)) for (name, n), out in places.items()
    ]
    assert len(run_jobs(runs, made)) == len(made)
    for (name, _), out in places.items():
        assert compare(name, TABLES, out) > 0
