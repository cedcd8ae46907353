"""No-good marks: what they save, when they are cleared, and that no result depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import stairs.stems
from eddy import InputError, Predicate, Query, Rows, Runtime, Stream
from stairs.descriptors import A_HITS, A_LOST, A_PAUSE, A_REST, A_SUPPORT, A_WORTH, N_FIELDS
from stairs.graph import JoinGraph
from stairs.kernels.learning import EXAMINED, LONGEST, SERVED, VAIN
from stairs.kernels.marks import PAUSE, SAVED, TRIAL, clear_outwards
from tests.cases import assert_same
from tests.eddy.live_engines import SavedRuntime

CHAIN = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
CYCLE = {"R": "ab", "S": "bc", "T": "ca"}


def query(columns: dict[str, str], size: int = 1000, where: pc.Expression | None = None) -> Query:
    """Return a join of streams with these columns, on the columns of equal names."""
    schemas = {
        name: pa.schema([(column, pa.int64()) for column in stream_columns]) for name, stream_columns in columns.items()
    }
    streams = [Stream(name, schema, window=Rows(size)) for name, schema in schemas.items()]
    letters = dict.fromkeys("".join(columns.values()))
    pairs = [pair for letter in letters for pair in pairwise([(n, letter) for n in columns if letter in columns[n]])]
    return Query(streams, [f"{left}.{a} = {right}.{b}" for (left, a), (right, b) in pairs], where=where)


def push(runtime: Runtime, name: str, *rows: Sequence[int]) -> list[dict[str, Any]]:
    """Push rows of one stream and check all states; return the results."""
    schema = runtime.query.stream(name).schema
    batch = pa.record_batch([pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], schema=schema)
    table = runtime.push({name: batch})
    runtime.check()
    results: list[dict[str, Any]] = table.to_pylist()
    return results


def marks(runtime: Runtime) -> int:
    return sum(state["marks"] for state in runtime.metrics()["states"].values())


def dangling(**options: Any) -> Runtime:
    """Return a chain in which a row of R finds a row of S, and that one a row of T, which finds nothing."""
    runtime = Runtime(query(CHAIN, **options), "((R S) T) U", policy="fixed")
    push(runtime, "S", (1, 1))
    push(runtime, "T", (1, 1))
    push(runtime, "R", (1,))
    return runtime


def test_a_walk_in_vain_is_not_repeated_until_a_row_arrives_that_makes_it_succeed() -> None:
    runtime = dangling()
    assert marks(runtime) == 2
    assert "no-good marks 1" in runtime.explain()
    before = runtime.metrics()["matches"]
    assert push(runtime, "R", (1,), (1,)) == []
    assert runtime.metrics()["matches"] == before
    # A row of S that is blocked as well leaves the marks; one that is not clears that of its own list.
    push(runtime, "S", (1, 1))
    assert marks(runtime) == 2
    push(runtime, "U", (3,))
    push(runtime, "T", (2, 3))
    assert len(push(runtime, "S", (1, 2))) == 3
    assert marks(runtime) == 1
    assert len(push(runtime, "U", (1,))) == 6
    assert marks(runtime) == 0


def test_a_change_of_plan_keeps_marks_and_a_stored_state_clears_them() -> None:
    runtime = dangling()
    runtime.transition("((U T) S) R")
    assert marks(runtime) == 2
    runtime.transition("((U T) S) R", store=["T U"])
    assert marks(runtime) == 0
    assert len(push(runtime, "U", (1,))) == 1


def test_a_push_that_fails_clears_all_marks() -> None:
    def broken(batch: pa.RecordBatch) -> Any:
        assert 0 not in batch["U.c"].to_pylist(), "zero"
        return pc.is_valid(batch["U.c"])

    runtime = dangling(where=Predicate(broken, ["U.c"]))
    push(runtime, "R", (0,))
    push(runtime, "S", (0, 0))
    push(runtime, "T", (0, 0))
    assert marks(runtime) == 3
    with pytest.raises(InputError, match="AssertionError: zero"):
        push(runtime, "U", (0,))
    runtime.check()
    assert marks(runtime) == 0
    assert len(push(runtime, "U", (1,))) == 1


def test_an_engine_of_another_process_knows_the_marks(tmp_path: Path) -> None:
    runtime = dangling()
    again = SavedRuntime(tmp_path / "engine", runtime).again(runtime.query)
    again.check()
    assert marks(again) == 2
    assert len(push(again, "U", (1,))) == 1


def in_a_circle() -> list[int]:
    """Return the numbers of results of each step of a join in which each list could rest on the next, in a circle."""
    runtime = Runtime(query(CYCLE), "(R S) T", policy="fixed")
    steps = (
        *(("R", (1, 1)), ("S", (1, 1)), ("T", (8, 5)), ("S", (7, 9))),
        *(("R", (5, 1)), ("T", (9, 1))),  # walks in vain: the row of S is blocked by T, then that of R by S
        ("T", (1, 1)),
    )
    return [len(push(runtime, name, row)) for name, row in steps]


def test_marks_do_not_follow_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the restriction to a spanning tree, the last row would find its own mark at the end of the circle."""
    assert in_a_circle() == [0, 0, 0, 0, 0, 0, 1]
    monkeypatch.setattr(
        JoinGraph,
        "forest",
        lambda graph: frozenset((i, c) for i, attributes in enumerate(graph.attributes) for c in attributes),
    )
    assert in_a_circle() == [0, 0, 0, 0, 0, 0, 0]


def random_pushes(columns: dict[str, str], sizes: dict[str, int], n: int, seed: int) -> list[tuple[Any, np.ndarray]]:
    """Return pushes of 500 rows with uniform keys 0 .. sizes[column] - 1; in one stream, most keys of a column miss."""
    rng = np.random.default_rng(seed)
    last = [*columns.values()][-1][-1]
    sparse = next(
        name for name, stream_columns in columns.items() if last in stream_columns and len(stream_columns) > 1
    )
    made = []
    for _ in range(n // 500):
        order = rng.integers(0, len(columns), 500).astype(np.uint8)
        batches = {}
        for i, (name, stream_columns) in enumerate(columns.items()):
            count = int((order == i).sum())
            drawn = {column: rng.integers(0, sizes[column], count) for column in stream_columns}
            if name == sparse:
                drawn[last] = np.where(rng.random(count) < 0.01, drawn[last], drawn[last] + 10**6)
            batches[name] = pa.record_batch(drawn)
        made.append((batches, order))
    return made


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("output", ["append", "changelog"])
@pytest.mark.parametrize(
    "columns",
    [
        {"A": "a", "B": "ab", "C": "bc", "D": "cd", "E": "d"},
        {"A": "ab", "B": "acd", "C": "c", "D": "d", "E": "bef", "F": "e", "G": "f"},
        {"A": "ab", "B": "bc", "C": "cd", "D": "da"},
    ],
    ids=["chain", "snowflake", "cycle"],
)
def test_results_are_the_same_with_and_without_marks(
    columns: dict[str, str], output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows of a selective join, so that marks are learnt, kept and cleared by the thousand."""
    join, sizes = query(columns, 400), dict.fromkeys("abcdef", 130)
    options: dict[str, Any] = {"strategy": "mjoin", "ids_only": True, "output": output}
    with_marks = Runtime(join, **options)
    monkeypatch.setattr(
        stairs.stems, "links_of", lambda graph: (np.zeros((0, N_FIELDS), np.int64), np.zeros((1, 2), np.int64))
    )
    without = Runtime(join, **options)
    most = result_count = 0
    for batches, order in random_pushes(columns, sizes, 30_000, seed=1):
        mine, theirs = with_marks.push(batches, order), without.push(batches, order)
        assert_same(rows_of(mine), rows_of(theirs), "results")
        result_count += mine.num_rows
        most = max(most, marks(with_marks))
    assert result_count > 50
    assert most > 100
    assert marks(without) == 0
    probed = [runtime.metrics()["matches"] for runtime in (with_marks, without)]
    assert probed[0] < probed[1]


def test_marks_that_do_not_pay_are_cleared_and_learning_rests() -> None:
    runtime = dangling()
    attrs = runtime._pipeline.join.modules.attrs
    x = runtime._pipeline.join.modules.attribute_rows[2, 1]
    attrs[x, A_LOST] = TRIAL + 1
    push(runtime, "R", (2,))
    # That of S rested on that of T.
    assert marks(runtime) == 0
    assert attrs[x, [A_REST, A_PAUSE]].tolist() == [PAUSE, PAUSE]
    push(runtime, "R", (1,))
    assert marks(runtime) == 0
    assert attrs[x, A_REST] == PAUSE - 1
    attrs[x, [A_REST, A_LOST, A_HITS]] = 0, TRIAL + 1, TRIAL
    push(runtime, "R", (1,))
    assert attrs[x, [A_REST, A_PAUSE, A_LOST, A_HITS]].tolist() == [0, 0, 0, 0]
    assert marks(runtime) == 2


def test_learning_goes_on_where_the_marks_of_other_attributes_rest_on_marks() -> None:
    """The marks of an attribute may have few hits, and still be needed for the others that save most."""
    runtime = dangling()
    attrs, rows = runtime._pipeline.join.modules.attrs, runtime._pipeline.join.modules.attribute_rows
    x, y = rows[1, 0], rows[2, 1]
    # The mark of S rests on that of T, and that of T on the emptiness of U. Its worth is unknown yet.
    assert attrs[[x, y], A_SUPPORT].tolist() == [0, EXAMINED * SERVED * SAVED]
    attrs[y, [A_LOST, A_SUPPORT]] = TRIAL + 1
    push(runtime, "R", (1,))
    assert attrs[y, [A_REST, A_LOST, A_SUPPORT]].tolist() == [0, 0, 0]
    assert marks(runtime) == 2


def test_learning_goes_on_in_a_snowflake_that_few_of_its_marks_serve_directly() -> None:
    """Once, the marks of U were cleared under the first plan, and half of all marks with them."""
    columns = {"C": "abc", "S": "ax", "X": "x", "T": "by", "Y": "y", "U": "cz", "Z": "z"}
    plans = ("(((((C U) S) X) T) Y) Z", "(((((C S) X) U) T) Y) Z")
    runtimes = [Runtime(query(columns), plan, strategy="mjoin", count_only=True) for plan in plans]
    rng = np.random.default_rng(1)
    for _ in range(100):
        batches, order = {}, rng.integers(0, 7, 2000).astype(np.uint8)
        for count, (name, stream_columns) in zip(np.bincount(order, minlength=7), columns.items(), strict=True):
            drawn = {column: rng.integers(0, 83 if column in "abc" else 1000, count) for column in stream_columns}
            if name in "CU":
                drawn[stream_columns[-1]] += 10**6 * (rng.random(count) < 0.98)
            batches[name] = pa.record_batch(drawn)
        for runtime in runtimes:
            runtime.push(batches, order)
    matches = [runtime.metrics()["matches"] for runtime in runtimes]
    assert matches[0] < 0.8 * matches[1]


def test_matches_in_vain_shorten_a_rest() -> None:
    """An attribute that sleeps keeps those from learning whose marks would rest on its own."""
    runtime = Runtime(query(CHAIN), "((R S) T) U", policy="fixed")
    attrs, rows = runtime._pipeline.join.modules.attrs, runtime._pipeline.join.modules.attribute_rows
    x, y = rows[1, 0], rows[2, 1]
    push(runtime, "S", *[(1, 1)] * LONGEST)
    attrs[[x, y], A_REST] = PAUSE, 2
    push(runtime, "R", *[(1,)] * 32)
    # A rest ends after the next chunk at the earliest.
    assert attrs[[x, y], A_REST].tolist() == [PAUSE - 32 * LONGEST // VAIN - 1, 0]
    assert marks(runtime) == 0
    push(runtime, "R", (1,))
    assert attrs[x, A_REST] == PAUSE - 32 * LONGEST // VAIN - 2


def test_a_list_too_long_to_be_marked_does_not_count_for_what_a_mark_is_worth() -> None:
    """Else a hot key with results makes all marks of its column look worth their cost, and learning never rests."""
    runtime = Runtime(query(CHAIN), "((R S) T) U", policy="fixed")
    modules = runtime._pipeline.join.modules
    x = modules.attribute_rows[1, 0]
    push(runtime, "U", (0,))
    push(runtime, "T", (0, 0), (1, 1))
    push(runtime, "S", *[(0, 0)] * (LONGEST + 1), *[(1, 1)] * 3)
    assert len(push(runtime, "R", (0,), (1,))) == LONGEST + 1
    # The three rows of the list that was marked, but none of the hot key's.
    assert marks(runtime) == 2
    assert 3 <= modules.attrs[x, A_WORTH] < LONGEST // 2


def test_marks_are_cleared_if_the_memory_to_follow_them_does_not_suffice() -> None:
    """A stack of one list: the second list that rests on a cleared mark finds no room."""
    runtime = dangling()
    for k in range(2, 4):
        push(runtime, "S", (k, 1))
        push(runtime, "R", (k,))
    modules = runtime._pipeline.join.modules
    assert marks(runtime) == 4
    clear_outwards(modules.arena, np.zeros(2, np.int32), modules.attribute_rows[3, 2], 0)
    assert marks(runtime) == 4
    modules.scratch.chunk = modules.scratch.chunk._replace(partials=np.zeros(4, np.int32))
    assert len(push(runtime, "U", (1,))) == 3
    assert marks(runtime) == 0


def test_learning_rests_where_nothing_dangles() -> None:
    columns = {"A": "a", "B": "ab", "C": "bc", "D": "c"}
    runtime = Runtime(query(columns, 2000), strategy="mjoin", count_only=True)
    for seed in range(10):
        for batches, order in random_pushes({**columns, "D": "c"}, dict.fromkeys("abc", 2000), 5000, seed):
            runtime.push(batches, order)
    runtime.check()
    assert runtime._pipeline.join.modules.attrs[:, A_REST].any()
