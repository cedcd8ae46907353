"""The text of a program: what it declares, and errors with the place in the file. Nothing here starts Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from eddy import cli
from eddy.program.connectors import INPUTS, OUTPUTS, frame_schema, options_of, sink_of
from eddy.program.join_options import JOIN_OPTIONS, hub_options, join_options
from eddy.program.running import check_program, describe
from eddy.program.statement_set import common_keys
from eddy.program.text import read_program
from eddy.spark.options import StreamingKeywords
from stairs.errors import SqlError
from tests.documents import ROOT

CLICKS = "CREATE TABLE clicks (k BIGINT, page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
BUYS = "CREATE TABLE buys (k BIGINT, price DOUBLE, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
IN, OUT = "WITH ('connector' = 'files', 'path' = 'p')", "CREATE TABLE sales WITH ('connector' = 'print')"
SELECT = (
    "SELECT c.k, page, price FROM clicks c JOIN buys b ON c.k = b.k AND b.at BETWEEN c.at AND c.at + INTERVAL '1' HOUR"
)
WHOLE = f"{CLICKS}\n{IN};\n{BUYS}\n{IN};\n{OUT};\nINSERT INTO sales {SELECT};\n"


def test_a_program_has_its_queries_with_their_inputs_and_targets() -> None:
    (insertion,) = check_program(f"-- a comment; with a semicolon\n{WHOLE}\n;")
    assert (insertion.target.name, list(insertion.inputs)) == ("sales", ["clicks", "buys"])
    assert insertion.query.output_schema.names == ["k", "page", "price"]
    assert insertion.query.streams[0].schema.field("at").type == pa.timestamp("us")
    assert describe(insertion) == "sales: clicks (files p), buys (files p) -> print"


def test_several_queries_read_tables_that_stand_behind_them() -> None:
    more = f"INSERT INTO more WITH x AS (SELECT * FROM buys) {SELECT.replace('buys', 'x')}"
    text = f"{more}; INSERT INTO sales {SELECT}; {CLICKS} {IN}; {BUYS} {IN}; {OUT}; {OUT.replace('sales', 'more')}"
    assert [insertion.target.name for insertion in check_program(text)] == ["more", "sales"]


def test_groups_without_a_window_are_those_of_all_results() -> None:
    selects = {
        SELECT.replace("c.k, page, price", "page, COUNT(*) AS n") + " GROUP BY page": "final",
        SELECT.replace("c.k, page, price", "page, COUNT(*) AS n")
        + " GROUP BY page, TUMBLE(c.at, INTERVAL '1' MINUTE)": "retract",
        SELECT: "retract",
    }
    for select, expiry in selects.items():
        (insertion,) = check_program(WHOLE.replace(SELECT, select))
        assert insertion.query.expiry == expiry


@pytest.mark.parametrize("document", ["README.md", "docs/guide/run.md"])
def test_the_programs_of_the_documents_are_right(document: str) -> None:
    (text,) = re.findall(r"```sql\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert [describe(insertion) for insertion in check_program(text)] == [
        "sales: clicks (kafka clicks), buys (files in/buys) -> delta out/sales"
    ]
    assert document != "README.md" or len(text.splitlines()) <= 12


MORE = "CREATE TABLE pages WITH ('connector' = 'print')"
COUNTED = "SELECT page, COUNT(*) AS n FROM clicks c JOIN buys b ON c.k = b.k GROUP BY page"
SET = f"""{CLICKS}
{IN};
{BUYS} {IN};
{OUT};
{MORE};
SET 'join.key-groups' = '4';
EXECUTE STATEMENT SET BEGIN
INSERT INTO sales {SELECT};
INSERT INTO pages {COUNTED};
END;
"""


def test_the_queries_of_a_statement_set_are_one_job() -> None:
    program = check_program(SET)
    assert [(insertion.target.name, insertion.together) for insertion in program] == [("sales", True), ("pages", True)]
    assert common_keys(program) == {"clicks": "k", "buys": "k"}
    (changed,) = [text for text in [SET.replace("c.k = b.k GROUP", "c.at = b.at AND c.k = b.k GROUP")] if text != SET]
    for text in (changed, changed.replace("c JOIN buys b ON c.at", "c LEFT JOIN buys b ON c.at")):
        assert common_keys(check_program(text)) == {"clicks": "k", "buys": "k"}
    assert (hub_options(program[0]), join_options(program[1])) == ({"key_groups": 4}, {})
    alone = check_program(f"{SET}CREATE TABLE more WITH ('connector' = 'print'); INSERT INTO more {SELECT};")
    assert [insertion.together for insertion in alone] == [True, True, False]
    assert join_options(alone[2]) == {"key_groups": 4}


FAULTS = {
    SET.replace("END;", ""): "line 7, column 1: the statement set has no END",
    SET.replace("BEGIN\n", "BEGIN;\n"): "line 7, column 1: BEGIN has an INSERT after it",
    SET + SET[SET.index("EXECUTE") :].replace("sales", "x"): "line 11, column 1: a program has one statement set",
    SET.replace("END;", f"{MORE};\nEND;"): "line 10, column 1: CREATE TABLE is not supported in a statement set",
    SET.replace("'join.key-groups'", "'parallelism'"): "line 6, column 1: SET 'join.option' = 'value' is",
    SET.replace("'4'", "'many'"): "line 6, column 5: 'join.key-groups' is a whole number, not 'many'",
    SET.replace("key-groups' = '4'", "plan' = 'c b'"): "line 6, column 5: 'join.plan' has no meaning for a statement",
    SET.replace("= 'print')", "= 'print', 'join.keep' = '3')", 1): "'join.keep' belongs to all INSERT of a statement",
    SET.replace(COUNTED, COUNTED.replace("c.k = b.k", "c.at = b.at")): (
        "line 9, column 1: INSERT INTO pages: all INSERT of a statement set join their tables"
    ),
    SET.replace(COUNTED, "SELECT a.k FROM buys a JOIN buys b ON a.k = b.k"): "INTO pages: it reads 'buys' twice",
    SET.replace(COUNTED, "SELECT COUNT(*) AS n FROM buys"): "line 5, column 1: table 'pages': a streaming join has two",
    f"{WHOLE}CREATE TABLE db.x (a INT)": "line 7, column 14: a name of a table has no parts",
    WHOLE.replace("sales", '"../x"'): "line 6, column 13: table '../x': the name is that of a directory",
    WHOLE.replace("sales WITH", "sales (k BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH"): "no WATERMARK",
    WHOLE.replace("'print'", "'kafka', 'topic' = 't', 'servers' = 's', 'key' = 'nobody'"): "'key': the query gives no",
    WHOLE.replace("'print'", "'delta', 'path' = 'p', 'partition-by' = 'page, x'"): "'partition-by': the query gives no",
    WHOLE.replace(
        "'print'", "'kafka', 'topic' = 't', 'servers' = 's', 'kafka.bootstrap.servers' = 'x'"
    ): "is no setting",
    WHOLE.replace("'print'", "'print', 'rows' = '٣'"): "'rows' is a number from 1",
    WHOLE.replace("'p')", "'${EDDY_NO_SUCH}')", 1): "'path' needs the environment variable EDDY_NO_SUCH",
    WHOLE.replace("'p')", "'p', 'header' = 'true')", 1): "'header' is true or false, for the format csv",
    "": "the program has no INSERT, so it would do nothing; a program has CREATE TABLE",
    "SELECT 1": "line 1, column 1: SELECT 1 is not supported; a program has CREATE TABLE",
    f"{OUT};\n  DROP TABLE sales": "line 2, column 3: DROP TABLE is not supported",
    "INSERT INTO sales VALUES (1)": "line 1, column 19: INSERT INTO name SELECT … is the form",
    "INSERT INTO sales (k) SELECT 1": "line 1, column 19: INSERT INTO name SELECT … is the form",
    f"\nINSERT INTO sales {SELECT}": "line 2, column 13: there is no table 'sales'; the program declares none",
    f"{OUT};\nINSERT INTO sales {SELECT}": "line 2, column 48: there is no table 'clicks'; there are sales",
    f"{OUT};\n{OUT}": "line 2, column 1: two tables are named 'sales'",
    f"{WHOLE}INSERT INTO sales {SELECT}": "line 7, column 1: two INSERT go into 'sales'",
    WHOLE.replace("INTO sales", "INTO buys"): "line 6, column 13: table 'buys' is read and written by one query",
    WHOLE.replace("page, price", "page, prices"): "line 6, column 37: ",
    WHOLE.replace("INTERVAL '1' HOUR", "INTERVAL '1' MONTH"): "line 6, column ",
    WHOLE.replace("SELECT c.k", "EXPLAIN SELECT c.k"): "line 6, column 19: INSERT INTO name SELECT … is the form",
    WHOLE.replace(";\nINSERT", f";\nINSERT INTO sales {SELECT} UNION ALL").replace("ALL INTO sales", "ALL"): (
        "line 6, column 19: UNION ALL is not one job"
    ),
    WHOLE.replace("k BIGINT, page", "k BIGINT, k INT, page"): "line 1, column ",
    WHOLE.replace(CLICKS, "CREATE TABLE clicks"): "line 1, column 1: table 'clicks': it is read, and its columns are",
    WHOLE.replace("sales WITH", "sales (k BIGINT, page STRING) WITH"): (
        "line 6, column 13: table 'sales' has the columns k, page, and the query gives k, page, price"
    ),
    WHOLE.replace("sales WITH", "sales (k BIGINT, page STRING, price BIGINT) WITH"): (
        "line 6, column 13: table 'sales', 'price': declared as int64, but the query gives double: CAST it"
    ),
    WHOLE.replace("WITH ('connector' = 'print')", ""): "line 5, column 1: table 'sales': WITH ('connector' = …) is",
    WHOLE.replace("'print'", "'printer'"): "line 5, column 26: table 'sales': 'printer' is no connector of an output",
    WHOLE.replace(
        "'print'", "'kafka'"
    ): "line 5, column 26: table 'sales': an output of 'kafka' needs the option 'topic'",
    WHOLE.replace("'print'", "'print', 'rows' = '0'"): "line 5, column 49: table 'sales': 'rows' is a number from 1",
    WHOLE.replace(
        "'path' = 'p'", "'paths' = 'p'", 1
    ): "line 2, column 30: table 'clicks': option 'paths' has no meaning",
    WHOLE.replace("'path' = 'p'", "'path' = ''", 1): "line 2, column 7: table 'clicks': an input of 'files' needs",
    WHOLE.replace(
        "'p')", "'p', 'format' = 'avro')", 1
    ): "line 2, column 44: table 'clicks': 'format' is one of parquet",
    WHOLE.replace("'p')", "'p', 'path' = 'q')", 1): "line 2, column 44: option 'path' is given twice",
    WHOLE.replace(
        "'p')", "'p', 'ops' = 'column')", 1
    ): "line 2, column 44: table 'clicks': 'ops' is for a table with a PRIMARY KEY",
    WHOLE.replace("'p')", "'p', path = 'q')", 1): "is not supported; an option is 'name' = 'text'",
    WHOLE.replace("sales WITH", "sales (k BIGINT, page STRING, price DOUBLE, PRIMARY KEY (k) NOT ENFORCED) WITH"): (
        "line 5, column 1: table 'sales': rows replace each other by a PRIMARY KEY in 'delta' and 'kafka'"
    ),
    WHOLE.replace("'print'", "'print', 'join.plans' = 'x'"): "line 5, column 49: table 'sales': there is no option",
    WHOLE.replace("'print'", "'print', 'join.keep' = 'x'"): "line 5, column 49: table 'sales': 'join.keep' is a whole",
    WHOLE.replace("'print'", "'print', 'join.keep' = '1'"): "line 5, column 49: table 'sales': keep=1: give 2 or more",
    WHOLE.replace("'print'", "'print', 'join.output' = 'all'"): "column 49: table 'sales': output='all': pass 'append'",
    WHOLE.replace("'print'", "'print', 'join.partitions' = '0'"): "column 49: table 'sales': partitions=0: give 1 or",
    WHOLE.replace(
        "'print'", "'print', 'join.keep' = '3', 'join.policy' = 'best'"
    ): "column 68: table 'sales': there is no policy",
    WHOLE.replace(
        "'print'", "'print', 'join.output' = 'changelog', 'join.change' = 'handover'"
    ): "line 5, column 1: table 'sales': change= is for queries whose results are not taken back",
    WHOLE.replace("'print'", "'print', 'join.plan' = 'c d'"): "line 5, column 49: table 'sales': plan 'c d': there is",
    WHOLE.replace("'print'", "'print', 'join.policy' = 'best'"): "column 49: table 'sales': there is no policy 'best'",
    WHOLE.replace("'path' = 'p'", "'path' = 'p', 'join.plan' = 'c b'", 1): "option 'join.plan' has no meaning for an",
    WHOLE.replace("'print'", "'print', 'join.keep' = '3'").replace(SELECT, "SELECT page FROM clicks GROUP BY page"): (
        "line 5, column 1: table 'sales': a streaming join has two streams or more"
    ),
    WHOLE.replace("'p')", "'p') 'open", 1): "line 6, column 126: the text cannot be split into words",
    WHOLE.replace(
        "'p')", "'p', 'kafka.sasl.password' = hunter2)", 1
    ): "WITH (… kafka.sasl.password …) is not supported",
}


@pytest.mark.parametrize("text", FAULTS)
def test_an_error_has_its_place_in_the_file(text: str) -> None:
    with pytest.raises(SqlError) as fault:
        check_program(text)
    assert FAULTS[text] in str(fault.value)
    assert "hunter2" not in str(fault.value)


USERS = "CREATE TABLE users (id BIGINT, city STRING, lsn BIGINT, PRIMARY KEY (id) NOT ENFORCED)"


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ("'version' = 'lsn'", ["id", "city", "lsn"]),
        ("'ops' = 'column', 'version' = 'lsn'", ["id", "city", "lsn", "op"]),
        ("'version' = 'lsn', 'ops' = 'debezium'", ["op", "before", "after", "source"]),
    ],
)
def test_a_table_has_the_columns_of_its_changes(options: str, columns: list[str]) -> None:
    users = f"{USERS} WITH ('connector' = 'files', 'path' = 'p', {options})"
    orders = "CREATE TABLE orders (no BIGINT, buyer BIGINT, v BIGINT, PRIMARY KEY (no) NOT ENFORCED)"
    orders = f"{orders} WITH ('connector' = 'files', 'path' = 'q', 'version' = 'v')"
    insert = "INSERT INTO sales SELECT no, city FROM orders JOIN users ON buyer = id"
    (insertion,) = check_program(f"{users}; {orders}; {OUT}; {insert}")
    assert frame_schema(insertion.inputs["users"]).names == columns


def test_every_option_is_known_to_the_sink_or_the_source() -> None:
    text = WHOLE.replace("'print'", "'kafka', 'topic' = 't', 'servers' = 's', 'key' = 'k', 'kafka.linger.ms' = '5'")
    (insertion,) = read_program(text)
    wanted = {"kafka.bootstrap.servers": "s", "topic": "t", "key": "k", "kafka.linger.ms": "5"}
    assert sink_of(insertion.target) == ("kafka", wanted)
    keyed = "sales (k BIGINT, page STRING, price DOUBLE, PRIMARY KEY (k) NOT ENFORCED) WITH"
    delta = "'delta', 'path' = 'd', 'partition-by' = 'page'"
    (insertion,) = read_program(WHOLE.replace("sales WITH", keyed).replace("'print'", delta))
    assert sink_of(insertion.target) == ("delta", {"path": "d", "partitionBy": "page", "key": "k"})
    assert options_of(insertion.inputs["buys"], INPUTS, "an input") == ("files", {"path": "p", "format": "parquet"})
    assert set(OUTPUTS) == {"files", "results", "delta", "kafka", "print"}


def test_the_command_says_what_it_would_do_or_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text(WHOLE)
    done = CliRunner().invoke(cli.app, ["run", str(file), "--check"])
    assert (done.exit_code, done.output) == (0, "sales: clicks (files p), buys (files p) -> print\n")
    done = CliRunner().invoke(cli.app, ["run", str(file)])
    assert done.exit_code == 1
    wanted = "give the place of the job's state: --checkpoint PATH, or a URL such as s3://bucket/prefix\n"
    assert done.output.endswith(f"job.sql: {wanted}")
    done = CliRunner().invoke(cli.app, ["run", str(file), "--checkpoint", "s", "--once", "--every", "1 second"])
    assert done.exit_code == 1
    assert "leave them or --once out" in done.output
    file.write_text("INSERT")
    done = CliRunner().invoke(cli.app, ["run", str(file), "--check"])
    assert (done.exit_code, "job.sql: SQL, line 1, column 1: INSERT is not" in done.output) == (1, True)
    done = CliRunner().invoke(cli.app, ["run", str(tmp_path / "none.sql"), "--check"])
    assert (done.exit_code, "none.sql: it cannot be read: " in done.output) == (1, True)


def test_options_take_values_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDDY_TEST_PLACE", "out")
    (insertion,) = check_program(WHOLE.replace("'print'", "'files', 'path' = '${EDDY_TEST_PLACE}/sales'"))
    assert sink_of(insertion.target) == ("parquet", {"path": "out/sales"})
    assert describe(insertion).endswith("-> files out/sales")


def test_a_target_has_the_options_of_its_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDDY_TEST_GROUPS", "4")
    given = "'join.plan' = 'buys clicks', 'join.key-groups' = '${EDDY_TEST_GROUPS}', 'join.idle-after' = '2.5'"
    (insertion,) = check_program(
        WHOLE.replace(
            "'print'",
            f"'print', {given}, 'join.memory' = '1 GiB', 'join.output'='changelog', 'join.max-bytes'='99000000'",
        )
    )
    assert join_options(insertion) == {
        "plan": "buys clicks",
        "key_groups": 4,
        "idle_after": 2.5,
        "memory": "1 GiB",
        "output": "changelog",
        "max_bytes": 99_000_000,
    }
    known = {option.replace("-", "_") for option in JOIN_OPTIONS}
    assert known < StreamingKeywords.__annotations__.keys()
    # These are objects of Python, or follow from CREATE TABLE and from the command.
    left = StreamingKeywords.__annotations__.keys() - known
    assert left == {"checkpoint", "checkpoint_options", "lateness", "purge", "store", "watermark"}


def test_a_watermark_and_a_version_exclude_each_other() -> None:
    versions = USERS.replace("lsn BIGINT", "at TIMESTAMP(3), WATERMARK FOR at AS at")
    text = f"{versions} WITH ('connector' = 'files', 'path' = 'p', 'version' = 'at')"
    with pytest.raises(SqlError, match="the WATERMARK orders the rows of this table; leave 'version' out"):
        check_program(text)


def test_the_guide_names_every_connector_and_option_and_shows_a_real_error() -> None:
    page = (ROOT / "docs" / "guide" / "run.md").read_text()
    for heading, known in (("## Inputs", INPUTS), ("## Outputs", OUTPUTS)):
        part = page.split(heading)[1].split("\n## ")[0]
        rows = {row.split("`")[1]: row for row in part.splitlines() if row.startswith("| `")}
        assert set(rows) == set(known)
        for name, connector in known.items():
            several = {choice: values for choice, values in connector.choices.items() if len(values) > 1}
            named = {
                *connector.needed,
                *connector.more,
                *several,
                *(value for values in several.values() for value in values),
            }
            assert {option for option in named if f"`{option}`" not in rows[name]} == set()
    of_join = page.split("## Options of the join")[1]
    assert {option for option in JOIN_OPTIONS if f"`{option}`" not in of_join} == set()
    (text,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    with pytest.raises(SqlError) as fault:
        check_program(text.replace("'path' = 'in/buys'", "'paths' = 'in/buys'"))
    (shown,) = re.findall(r"job\.sql: (SQL, .*?) …", page)
    assert str(fault.value).startswith(shown)
