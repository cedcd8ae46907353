"""Left, semi, anti and full outer joins against their oracle: random trees of branches, windows, plans and pushes."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.branch_oracle import BranchOracle, Numbers
from eddy.live.engine_file import EngineFile
from jisc.plan.tree import connected_order, left_deep
from jisc.strategies import STRATEGIES
from tests.draws import fewer
from tests.eddy.drawn_branches import COLUMNS, SCHEMA, DrawnBranches, drawn, steps
from tests.eddy.opened_files import closed, opened

Form = Literal["ids", "rows", "count"]


def comparable(table: pa.Table, sign: str | None) -> list[str]:
    """Return the rows of a result that have this sign, as sorted text."""
    rows = [row for row in table.to_pylist() if sign is None or row.pop("op") == sign]
    return sorted(str(list(row.values())) for row in rows)


def wanted(oracle: BranchOracle, rows: list[Numbers], query: eddy.Query, form: Form) -> list[str]:
    """Return rows of an oracle as `comparable` returns those of eddy."""
    row_values, shown = [], [stream.name for stream in query.shown]
    for row in rows:
        numbers = dict(zip(oracle.names, row, strict=True))
        if form == "ids":
            row_values.append([numbers[name] for name in shown])
        else:
            parts = [oracle.rows[name][n] if (n := numbers[name]) is not None else {} for name in shown]
            row_values.append([part.get(column) for part in parts for column in COLUMNS])
    return sorted(map(str, row_values))


@fewer(2)
@given(
    drawn(),
    st.sampled_from(sorted(STRATEGIES)),
    st.sampled_from(("append", "changelog")),
    st.sampled_from(("ids", "rows")),
    st.data(),
)
def test_rows_are_those_of_the_oracle(
    case: DrawnBranches, strategy: str, output: str, form: Form, data: st.DataObject
) -> None:
    """Every push begins and ends the rows that the definition says, also with transitions and restarts between."""
    with engine_file() as live:
        changelog = output == "changelog"
        oracles = case.oracles(changelog)
        names = oracles[0].names
        rt = eddy.Runtime(case.query, strategy=strategy, output=output, ids_only=form == "ids", bounded=True)
        for arrivals in steps(data.draw, names):
            expected = [(oracle, oracle.push(arrivals)) for oracle in oracles]
            batches = {
                name: pa.RecordBatch.from_pylist([row for stream, row in arrivals if stream == name], schema=SCHEMA)
                for name in names
            }
            table = rt.push(batches, order=[names.index(name) for name, _ in arrivals])
            for sign, part in (("-D", 0), ("+I", 1)):
                if changelog or part:
                    want = sorted(
                        row for oracle, got in expected for row in wanted(oracle, got[part], case.query, form)
                    )
                    assert comparable(table, sign if changelog else None) == want, rt.explain()
            if STRATEGIES[rt.strategy].changes and data.draw(st.integers(0, 3)) == 3:
                move(rt, data.draw)
            if data.draw(st.integers(0, 3)) == 3:
                rt = in_another_process(rt, live)
            if data.draw(st.integers(0, 3)) == 3:
                plan, strategy = (
                    data.draw(st.sampled_from((None, rt.plan))),
                    data.draw(st.sampled_from((None, *sorted(STRATEGIES)))),
                )
                saved = rt.snapshot()
                rt = eddy.Runtime.restore(saved, case.query, plan, strategy)
                assert rt.snapshot() == saved or strategy or plan
        want = sorted(row for oracle in oracles for row in wanted(oracle, oracle.finish(), case.query, form))
        assert comparable(rt.finish(), None) == want
        rt.check()


@contextmanager
def engine_file() -> Iterator[EngineFile]:
    """Give a file through which a runtime can go to another process."""
    with tempfile.TemporaryDirectory() as folder, EngineFile(Path(folder, "engine"), b"a key of 16 bytes") as live:
        yield live


def in_another_process(rt: eddy.Runtime, live: EngineFile) -> eddy.Runtime:
    """Save a runtime, and return it as another process would load it."""
    query = rt.query
    live.save(rt, b"token")
    loaded = live.load(b"token", query)
    assert loaded is not None
    loaded.check()
    return loaded


WITHOUT_COUNTS = (("range",), ("range", "derived"), ("range", "unbounded"), ("unbounded",))


@fewer(2)
@given(drawn(WITHOUT_COUNTS), st.sampled_from(sorted(STRATEGIES)), st.sampled_from(("append", "changelog")), st.data())
def test_loading_the_rows_that_matter_continues_exactly(
    case: DrawnBranches, strategy: str, output: str, data: st.DataObject
) -> None:
    """A runtime that loads the rows within `Query.spans` gives what the one that took all rows gives from then on."""
    names = case.oracles(False)[0].names
    rt, again = (eddy.Runtime(case.query, strategy=strategy, output=output, bounded=True) for _ in range(2))
    kept, watermark, newest = dict[str, list[dict[str, Any]]](), None, 0
    timed = rt.query.graph.timed
    query = rt._pipeline.query  # type: ignore[attr-defined]
    for given_rows in steps(data.draw, names, data.draw(st.sampled_from((1, 2, 4)))):
        arrivals = []
        for name, row in given_rows:
            # Rows are loaded in order of event time, which a changelog shows: there they also arrive in it.
            if row["t"] >= (newest if output == "changelog" else watermark or 0):
                arrivals.append((name, row))
                newest = max(newest, row["t"])
        batches = {
            name: pa.RecordBatch.from_pylist([row for stream, row in arrivals if stream == name], schema=SCHEMA)
            for name in names
        }
        watermark = max(watermark or 0, newest - data.draw(st.integers(0, 6))) if timed else None
        order = [names.index(name) for name, _ in arrivals]
        one_table, other = (each.push(batches, order, watermark=watermark) for each in (rt, again))
        for sign in ("-D", "+I") if output == "changelog" else (None,):
            assert comparable(one_table, sign) == comparable(other, sign)
        assert rt.due == again.due
        for name, row in arrivals:
            kept.setdefault(name, []).append(row)
        if data.draw(st.booleans()):
            again = eddy.Runtime(case.query, strategy=strategy, output=output, bounded=True)
            for name, span in zip(names, query.spans, strict=True):
                if watermark is not None and span is not None:
                    kept[name] = [row for row in kept.get(name, ()) if row["t"] >= watermark - span]
            again.load(
                {name: pa.Table.from_pylist(stream_rows, schema=SCHEMA) for name, stream_rows in kept.items()},
                watermark=watermark,
            )
    assert comparable(rt.finish(), None) == comparable(again.finish(), None)
    again.check()


def move(rt: eddy.Runtime, draw: st.DrawFn) -> None:
    """Change the plan of one inner join to another one, if it has one."""
    join = draw(st.sampled_from(sorted(rt._pipeline.joins)))
    graph = rt._pipeline.joins[join].query.graph
    order = draw(st.permutations(range(graph.n_streams)))
    rt.transition(left_deep(connected_order(order, graph.class_bits)).text(graph.names))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_set_differences_in_any_order(strategy: str) -> None:
    """((A - B) - C) - D and ((A - D) - B) - C say the same at every push (JISC, section 4.7), and what a set says."""
    schema, draw, live = pa.schema([("k", pa.int64())]), random.Random(3), dict[str, list[int]]()
    streams = {name: eddy.Stream(name, schema, window=eddy.Rows(20 if name == "A" else 4)) for name in "ABCD"}
    runtimes = []
    for order in ("BCD", "DBC"):
        branches = [eddy.Branch([streams[name]], [f"A.k = {name}.k"], "anti") for name in order]
        query = eddy.Query([streams["A"]], branches=branches)
        runtimes.append(eddy.Runtime(query, strategy=strategy, output="changelog"))
    answers: list[list[int]] = [[], []]
    for _ in range(80):
        name = draw.choice("AABCD")
        key = draw.randrange(12)
        live[name] = [*live.get(name, []), key][-(20 if name == "A" else 4) :]
        for answer, runtime in zip(answers, runtimes, strict=True):
            for row in runtime.push({name: [{"k": key}]}).to_pylist():
                (answer.append if row["op"] == "+I" else answer.remove)(row["A.k"])
            rest = {k for other in "BCD" for k in live.get(other, ())}
            assert sorted(answer) == sorted(k for k in live.get("A", ()) if k not in rest)


def test_one_row_with_many_partners_in_pushes_of_one_row() -> None:
    """The log of a ledger and its rows grow apart: closing one entry frees all its options."""
    rows = pa.schema([("a", pa.int64())])
    r, s, t = (eddy.Stream(name, rows, window=eddy.Rows(1 if name == "R" else 1000)) for name in "RST")
    query = eddy.Query([r], branches=[eddy.Branch([stream], [f"R.a = {stream.name}.a"], "left") for stream in (s, t)])
    for count in (1, 300):
        rt = eddy.Runtime(query)
        rt.push({"R": [{"a": 0}]})
        for _ in range(count):
            rt.push({"S": [{"a": 0}]})
        rt = eddy.Runtime.restore(rt.snapshot(), query)
        assert rt.push({"R": [{"a": 7}]}).num_rows == count
        rt.check()


def test_room_of_a_large_push_is_given_back() -> None:
    rows = pa.schema([("a", pa.int64())])
    r, s, t = (eddy.Stream(name, rows, window=eddy.Rows(1 if name == "R" else 500)) for name in "RST")
    query = eddy.Query([r], branches=[eddy.Branch([stream], [f"R.a = {stream.name}.a"], "left") for stream in (s, t)])
    rt = eddy.Runtime(query, count_only=True, max_bytes=3_000_000)
    rt.push({"S": [{"a": 0}] * 500}), rt.push({"T": [{"a": 0}] * 500})
    assert rt.push({"R": [{"a": 0}]}).to_pylist() == [{"count": 250_000}]
    rt.max_bytes = None
    for k in range(12):
        rt.push({"R": [{"a": k + 1}]})
    assert rt.nbytes < 3_000_000
    rt.max_bytes = 3_000_000
    rt.push({"R": [{"a": 0}]})
    rt.max_bytes = 3_000
    with pytest.raises(eddy.CapacityError, match="max_bytes is 3,000"):
        rt.push({"R": [{"a": 1}]})


WRONG = {
    "max_bytes": ({"max_bytes": 0}, "1 or more, not 0"),
    "plan": ({"plan": 5}, "plan is text"),
    "plan of no join": ({"plan": "R T"}, "plan of none of the joins|there is no stream"),
    "no plan": ({"plan": "R S;"}, "a plan is missing beside a ';'"),
    "two plans": ({"plan": "R S; S R"}, "two plans of one join"),
    "store": ({"store": ["R Typo"]}, "state of no join"),
    "strategy": ({"strategy": "jsic"}, "there is no strategy"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    query = eddy.Query(
        [eddy.Stream("R", SCHEMA)], branches=[eddy.Branch([eddy.Stream("S", SCHEMA)], ["R.a = S.a"], "left")]
    )
    with pytest.raises(eddy.EddyError, match=message):
        eddy.Runtime(query, bounded=True, **options)


def test_what_never_ends_is_refused_unless_the_input_does() -> None:
    query = eddy.Query(
        [eddy.Stream("R", SCHEMA)], branches=[eddy.Branch([eddy.Stream("S", SCHEMA)], ["R.a = S.a"], "anti")]
    )
    with pytest.raises(eddy.InputError, match="a row of R without a partner in S would never be known"):
        eddy.Runtime(query)
    eddy.Runtime(query, output="changelog")


BRANCH = eddy.Stream("S", SCHEMA)
WRONG_BRANCHES = {
    "how": (lambda: eddy.Branch([BRANCH], ["R.a = S.a"], "inner"), "how is one of 'left'"),  # type: ignore[arg-type]
    "no stream": (lambda: eddy.Branch([], [], "left"), "a branch has no stream"),
    "no predicate": (lambda: eddy.Branch([BRANCH], [], "left"), "no predicate connects S with R"),
    "another stream": (lambda: eddy.Branch([BRANCH], ["Q.a = S.a"], "left"), "there is no stream 'Q'"),
    "its own name": (
        lambda: eddy.Branch([eddy.Stream("R", SCHEMA)], ["R.a = R.b"], "left"),
        "two streams are named 'R'",
    ),
    "full of two": (
        lambda: eddy.Branch([BRANCH, eddy.Stream("T", SCHEMA)], ["R.a = S.a", "S.a = T.a"], "full"),
        "full outer",
    ),
    "no branch": (lambda: "S", "must be eddy.Branch objects"),
}


@pytest.mark.parametrize(("make", "message"), WRONG_BRANCHES.values(), ids=WRONG_BRANCHES.keys())
def test_a_wrong_branch_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(eddy.QueryError, match=message):
        eddy.Query([eddy.Stream("R", SCHEMA)], branches=[make()])


def test_a_column_of_a_semi_branch_cannot_be_selected() -> None:
    with pytest.raises(eddy.QueryError, match="adds no columns"):
        eddy.Query([eddy.Stream("R", SCHEMA)], branches=[eddy.Branch([BRANCH], ["R.a = S.a"], "semi")], select=["S.a"])


def test_a_branch_without_any_partner_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    r, s = (eddy.Stream(name, SCHEMA, window=eddy.Range(1), time="t") for name in "RS")
    eddy.Query([r], branches=[eddy.Branch([s], ["R.a = S.a", "S.t >= R.t + 5"], "left")])
    (warning,) = recwarn
    assert "the join with branch S never has a result" in str(warning.message)
    assert warning.filename == __file__


def test_a_forged_ledger_is_refused() -> None:
    """Altered counts and components, under a new digest, neither crash nor change results."""
    stream = {name: eddy.Stream(name, SCHEMA, window=eddy.Rows(5)) for name in "RST"}
    branches = [eddy.Branch([stream[name]], [f"R.a = {name}.a"], "left") for name in "ST"]
    query = eddy.Query([stream["R"]], branches=branches)
    rt = eddy.Runtime(query, ids_only=True)
    rows = [{"a": k, "b": 0, "t": 0, "v": 0, "p": ""} for k in range(3)]
    rt.push(dict.fromkeys("RST", rows), order=[0, 1, 2] * 3)
    values, contents = opened(rt.snapshot())
    refused = 0
    for name in ("partners ledger 0 entries", "partners ledger 0 options"):
        numbers = np.frombuffer(contents[name], np.int64)
        for at in range(len(numbers)):
            for value in (2**63 - 1, -(2**63), 2**40, 7, -1, 1):
                if numbers[at] == value:
                    continue
                forged = numbers.copy()
                forged[at] = value
                data = closed(values, {**contents, name: forged.tobytes()})
                try:
                    other = eddy.Runtime.restore(data, query)
                except eddy.SnapshotError:
                    refused += 1
                else:
                    other.push({"R": rows})
                    other.finish()
    assert refused > 100


def test_a_push_after_the_end_is_refused() -> None:
    query = eddy.Query(
        [eddy.Stream("R", SCHEMA)], branches=[eddy.Branch([eddy.Stream("S", SCHEMA)], ["R.a = S.a"], "left")]
    )
    rt = eddy.Runtime(query, bounded=True)
    rt.finish()
    with pytest.raises(eddy.InputError, match="the input has ended"):
        rt.push({"R": [{"a": 1, "b": 1, "t": 1, "v": 1}]})


def timed(name: str) -> eddy.Stream:
    return eddy.Stream(name, pa.schema([("a", pa.int64()), ("t", pa.int64())]), time="t")


def test_a_row_waits_for_the_longest_of_the_branches_of_its_branch() -> None:
    """S may come until 4, and T of S until 9; that U may come until 3 only decides nothing about R."""
    r, s, t, u = map(timed, "RSTU")
    below = [
        eddy.Branch([t], ["S.a = T.a", "T.t between R.t and R.t + 9"], "left"),
        eddy.Branch([u], ["S.a = U.a", "U.t between R.t and R.t + 3"], "left"),
    ]
    on = ["R.a = S.a", "S.t between R.t and R.t + 4"]
    query = eddy.Query([r], branches=[eddy.Branch([s], on, "left", below)], watermark="fastest")
    rt = eddy.Runtime(query, ids_only=True)
    rt.push({"R": [{"a": 1, "t": 0}, {"a": 2, "t": 0}]})
    assert rt.push({"S": [{"a": 1, "t": 4}]}).num_rows == 0
    assert rt.push({"T": [{"a": 1, "t": 9}]}).to_pylist() == [{"R": 0, "S": 0, "T": 0, "U": None}]
    assert rt.push({"R": [{"a": 3, "t": 10}]}).to_pylist() == [{"R": 1, "S": None, "T": None, "U": None}]


def test_a_match_waits_no_longer_than_for_its_first_component_to_leave() -> None:
    r, q, s = map(timed, "RQS")
    on = ["R.a = S.a", "S.t between R.t and R.t + 2", "S.t between Q.t and Q.t + 50"]
    core = ["R.a = Q.a", "Q.t between R.t and R.t + 5"]
    query = eddy.Query([r, q], core, branches=[eddy.Branch([s], on, "anti")], watermark="fastest")
    rt = eddy.Runtime(query, ids_only=True)
    rt.push({"R": [{"a": 1, "t": 0}]})
    assert rt.push({"Q": [{"a": 1, "t": 2}]}).num_rows == 0
    assert rt.push({"Q": [{"a": 5, "t": 3}]}).to_pylist() == [{"R": 0, "Q": 0}]


def within(least: int) -> eddy.Query:
    """Return a left join whose partners have a value of `least` or more, or one of 7, which is an error."""

    def accepts(batch: pa.RecordBatch) -> np.ndarray:
        values = batch["S.v"].to_numpy()
        if (values == 7).any():
            raise ValueError("seven")
        return values >= least

    streams = [eddy.Stream(name, SCHEMA, window=eddy.Rows(2)) for name in "RS"]
    where = eddy.Predicate(accepts, columns=["S.v"], name=f"{least} or more")
    return eddy.Query(streams[:1], branches=[eddy.Branch(streams[1:], ["R.a = S.a"], "left", where=where)])


def test_a_function_decides_on_partners_and_a_push_in_which_it_fails_has_not_happened() -> None:
    rt = eddy.Runtime(within(5), ids_only=True)
    row = dict.fromkeys(COLUMNS[:-1], 1) | {"p": ""}
    rt.push({"R": [row]})
    assert rt.push({"S": [row | {"v": v} for v in (4, 5)]}).to_pylist() == [{"R": 0, "S": 1}]
    before = rt.snapshot()
    with pytest.raises(eddy.InputError, match=r"where of the join with branch S, predicate '5 or more'.*seven"):
        rt.push({"S": [row | {"v": 7}]})
    assert rt.snapshot() == before
    assert rt.push({"S": [row | {"v": 9}]}).to_pylist() == [{"R": 0, "S": 2}]
    assert "join of R S" in rt.filters()["where"].to_pylist()
    with pytest.raises(eddy.SnapshotError, match="where of a branch: 5 or more in the snapshot, 6 or more"):
        eddy.Runtime.restore(before, within(6))


def test_a_condition_of_a_branch_reads_the_columns_of_its_path() -> None:
    r, s, t = (eddy.Stream(name, SCHEMA) for name in "RST")
    other = eddy.Branch([t], ["R.a = T.a"], "semi")
    with pytest.raises(eddy.QueryError, match=r"T\.v"):
        eddy.Query([r], branches=[other, eddy.Branch([s], ["R.a = S.a"], "left", where=pc.field("T.v") > 0)])


def test_rows_matter_as_long_as_a_match_waits_for_their_branch() -> None:
    """R waits for 5, D is kept forever; T may be 7 older than an R or an S that waits; S alone is a partner of R."""
    r, d = timed("R"), eddy.Stream("D", timed("D").schema, window=eddy.Unbounded(), time="t")
    window = {
        name: eddy.Stream(name, r.schema, window=eddy.Range(size), time="t")
        for name, size in zip("RST", (5, 3, 7), strict=True)
    }
    simple = eddy.Query([window["R"]], branches=[eddy.Branch([d], ["R.a = D.a"], "left")])
    assert simple.spans == [5, None]
    below = eddy.Branch([window["T"]], ["S.a = T.a"], "anti")
    two = eddy.Query([window["R"]], branches=[eddy.Branch([window["S"]], ["R.a = S.a"], "left", [below])])
    assert two.spans == [5, 3 + 5, 7 + 5]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("how", ["left", "anti", "semi"])
def test_a_row_of_a_branch_stays_as_long_as_rows_that_never_leave(how: Any, unit: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp(unit))])
    core = eddy.Stream("R", pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms"))]), eddy.Unbounded(), "t")
    on = ["R.k = S.k", "S.t >= R.t", "S.t <= R.t + INTERVAL '3' SECOND"]
    query = eddy.Query(
        [core], branches=[eddy.Branch([eddy.Stream("S", schema, time="t")], on, how)], select={"k": "R.k"}
    )
    runtime = eddy.Runtime(query, output="changelog", bounded=True)
    times = [pa.scalar(second, pa.timestamp("s")).as_py() for second in (0, 2, 1_000_000)]
    changes = [
        runtime.push({"R": [{"k": 1, "t": times[0]}], "S": [{"k": 1, "t": times[1]}]}),
        runtime.push({name: [{"k": 2, "t": times[2]}] for name in "RS"}),
    ]
    ops = [row["op"] for table in changes for row in table.to_pylist() if row["k"] == 1]
    assert ops.count("+I") - ops.count("-D") == (how != "anti")
