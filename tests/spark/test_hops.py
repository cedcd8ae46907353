"""Joins in hops without Spark: drawn plans give the results of one engine; rounds, places and errors of plans."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy import PlanError, Query
from eddy.expressions.derived import Derived
from eddy.spark.batch.choice import WorkPrediction, predicted
from eddy.spark.batch.figures import StreamFigures, figures_of
from eddy.spark.batch.hop_tasks import DealRows, JoinRound
from eddy.spark.batch.measure import SampleRows, measured_job
from eddy.spark.hops.hops import Hops, own_hops
from eddy.spark.hops.measured import PlacementCosts
from eddy.spark.hops.saved import UNPLACED, restored, saved
from eddy.spark.hops.windows import Bounds, SortedWindow, together
from eddy.spark.partitioning.job import Job, make_job
from stairs.errors import CapacityError
from stairs.graph import FOREVER
from stairs.storage.json_form import FormError
from tests.bench.simulated.placement.test_simulation import drawn_plan
from tests.eddy.placement.chains import batches, chain, expected, results, rows, star


def shuffled(blobs: Iterator[pa.RecordBatch], partitions: int, draw: random.Random) -> dict[int, list[pa.RecordBatch]]:
    """Return the blobs of each partition ascending by `first`, else in any order, as Spark delivers them."""
    pieces = [batch.slice(k, 1) for batch in blobs for k in range(batch.num_rows)]
    draw.shuffle(pieces)
    pieces.sort(key=lambda piece: piece["first"][0].as_py())
    return {p: [piece for piece in pieces if piece["part"][0].as_py() == p] for p in range(partitions)}


def run(job: Job, hops: Hops, given: Mapping[str, pa.RecordBatch], draw: random.Random) -> list[pa.Table]:
    """Run all rounds of a join, each partition by itself."""
    sent: list[pa.RecordBatch] = []
    for number in range(hops.rounds):
        deal = DealRows(job, hops.dealt(number))
        for stream in deal.streams:
            batch = given[job.query.streams[stream].name]
            cut = draw.randrange(batch.num_rows + 1)
            sent += deal(stream, iter([batch.slice(0, cut), batch.slice(cut)]))
        parts = shuffled(iter(sent), hops.partitions, draw)
        sent = [made for part in parts.values() for made in JoinRound(job, hops, number)(iter(part))]
    return [pa.Table.from_batches([result]) for result in sent]


def with_computed_keys(query: Query) -> Query:
    """Return a query in which an expression stands for each column of an equality, with the same results."""
    on = [re.sub(r"(\S+) = (\S+)", r"\1 * 2 = \2 * 2", text) for text in query.on]
    select = {name: ".".join(place) for name, place in query.select.items()}
    computed = Query(query.streams, on, select=select)
    columns = [component for key_class in computed.classes for component in key_class.columns.values()]
    assert all(isinstance(name, Derived) for component in columns for names in component for name in names)
    return computed


@given(st.data(), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_drawn_plans_give_the_results_of_one_engine(data: st.DataObject, seed: int) -> None:
    draw = random.Random(seed)
    query = data.draw(st.sampled_from((chain, star)))(
        data.draw(st.integers(2, 5)), data.draw(st.sampled_from((6, 0, None)))
    )
    if data.draw(st.booleans()):
        query = with_computed_keys(query)
    (whole,) = rows(query, 1, 12, data.draw(st.integers(1, 4)), seed)
    job = make_job(query, partitions=data.draw(st.integers(1, 5)))
    hops = own_hops(job.query, drawn_plan(query, draw), job.shares.partitions, job.arrival == "time")
    assert results(run(job, hops, batches(query, whole), draw)) == expected(query, [whole])


def test_rounds_and_places_of_a_plan() -> None:
    query = chain(3)
    plan = {
        "S0": [("S1", "ship"), ("S2", "ship")],
        "S1": [("S0", "window"), ("S2", "window")],
        "S2": [("S1", "ship"), ("S0", "window")],
    }
    hops = own_hops(query, plan, 4, True)
    assert hops.rounds == 2
    # S0 S1 meet by the first key. In the second round S2 goes by its own key, and to all partitions for head S1.
    assert hops.dealt(0) == {0: (0,), 1: (0,)}
    assert hops.dealt(1) == {0: (0, 1), 1: (0, 1), 2: (0, 1)}
    assert [hops.bound(0, number) for number in range(2)] == [(0,), (0, 1)]
    assert (hops.beginning(0), hops.beginning(1)) == ([0], [1, 2])


def test_without_windows_the_plan_of_one_head_is_enough() -> None:
    plan = {"S1": [("S0", "ship"), ("S2", "ship")]}
    assert list(own_hops(chain(3, None), plan, 2, False).routes) == [1]
    with pytest.raises(PlanError, match="stream S0 has no plan"):
        own_hops(chain(3), plan, 2, True)


@pytest.mark.parametrize(
    ("hops", "said"),
    [
        ([("S2", "ship"), ("S1", "ship")], "no predicate connects S2 with S0"),
        ([("S1", "ship")], "each of the other streams once"),
        ([("S1", "fly"), ("S2", "ship")], "no pair"),
    ],
)
def test_plans_that_do_not_fit(hops: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        own_hops(chain(3, None), {"S0": hops}, 2, False)
    with pytest.raises(PlanError, match="one head stream at least"):
        own_hops(chain(3, None), {}, 2, False)


@given(st.integers(0, 10**6), st.sampled_from((0, 3, FOREVER)), st.sampled_from((None, 0, 2)))
@settings(max_examples=50, deadline=None)
def test_a_sorted_window_finds_the_rows_that_precede(seed: int, span: int, head: int | None) -> None:
    draw = np.random.default_rng(seed)
    n, m = draw.integers(0, 40, 2)
    keys, times = {c: draw.integers(0, 4, n) for c in (0, 1)}, draw.integers(-5, 10, n)
    wanted, at = {c: draw.integers(0, 5, m) for c in (1, 0)}, draw.integers(-5, 10, m)
    window = SortedWindow(1, pa.record_batch({"n": np.arange(n)}), keys, times, span)
    bounds = None if head is None else Bounds(at, at, np.full(m, FOREVER))
    matches = window.matches(wanted, bounds, head)
    pairs = Counter((a, b) for _, left, right in matches for a, b in zip(left, right, strict=True))
    assert pairs == Counter(
        (a, b)
        for a in range(m)
        for b in range(n)
        if all(wanted[c][a] == keys[c][b] for c in (0, 1))
        and (head is None or ((times[b], 1) < (at[a], head) and at[a] - times[b] <= span))
    )


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_stored_placement_is_the_same_on_any_number_of_nodes(seed: int, nodes: int, later: int) -> None:
    query = chain(4, 10)
    plan = drawn_plan(query, random.Random(seed))
    hops = own_hops(query, plan, nodes, timed=True)
    stored = json.loads(json.dumps(saved(query, plan, hops, PlacementCosts())))
    placement = restored(query, stored, "placement")
    assert placement.asked == plan
    assert placement.hops(query, nodes) == hops
    again = placement.hops(query, later)
    if nodes > 1:
        assert again == own_hops(query, plan, later, timed=True)
    assert again is not None
    restored(query, saved(query, "auto", again, PlacementCosts()), "placement")  # it is checked


def test_stored_hops_that_ship_tuples_by_a_key_that_they_have_not_are_refused() -> None:
    query = chain(3, 10)
    away = {**UNPLACED, "steps": [[[1, 0], [2, 1]], [[0, 1], [2, 0]], [[1, 1], [0, 0]]]}
    with pytest.raises(FormError, match=r"placement.steps\[1\] joins S2 by class 0, which has no key there"):
        restored(query, away, "placement")
    stay = {**UNPLACED, "steps": [[[1, 0], [2, 0]], [[0, 0], [2, 0]], [[1, 1], [0, 1]]]}
    assert restored(query, stay, "placement").steps is not None


def measured(query: Query, given: Mapping[str, pa.RecordBatch], partitions: int) -> tuple[Job, list[StreamFigures]]:
    job = make_job(query, partitions=partitions)
    sample = SampleRows(measured_job(job))
    samples = [sample(i, iter([given[stream.name]] * 2)) for i, stream in enumerate(job.query.streams)]
    rows_of = [row for batches_ in samples for batch in batches_ for row in batch.to_pylist()]
    streams = range(len(query.streams))
    return job, [figures_of(job, i, [row for row in rows_of if row["stream"] == i]) for i in streams]


def test_samples_tell_rows_times_and_keys() -> None:
    query = chain(3, 20)
    draw, n = np.random.default_rng(1), 100_000
    given = {
        stream.name: pa.record_batch({name: draw.integers(0, 1000, n) for name in stream.schema.names})
        for stream in query.streams
    }
    _, figures = measured(query, given, 4)
    assert [sampled.rows for sampled in figures] == [2 * n] * 3
    assert {(sampled.low, sampled.high) for sampled in figures} == {(0, 999)}
    assert [sorted(sampled.hashes) for sampled in figures] == [[0], [0, 1], [1]]
    assert all(len(np.unique(hashes)) > 990 for sampled in figures for hashes in sampled.hashes.values())
    assert all(1 << 14 <= len(hashes) <= 1 << 15 for sampled in figures for hashes in sampled.hashes.values())


def test_hops_are_chosen_where_the_grid_copies_too_much() -> None:
    """On many partitions the ends of a chain are copied many times; few rows are not worth further rounds."""
    query, draw = chain(6, None), np.random.default_rng(1)

    def of(n: int, partitions: int) -> WorkPrediction:
        given = {
            stream.name: pa.record_batch({name: draw.integers(0, 4 * n, n) for name in stream.schema.names})
            for stream in query.streams
        }
        return predicted(*measured(query, given, partitions))

    few, many = of(20_000, 2), of(400_000, 256)
    assert few.grid_s < few.hops_s
    assert many.hops_s < many.grid_s
    assert len(many.hops.routes) == 1


def test_rows_that_exceed_a_column_are_named() -> None:
    size = (1 << 30) + 1  # zeroed pages that nobody touches take no memory
    offsets, characters = np.array([0, size], np.int32), np.zeros(size, np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters)]
    rows = pa.record_batch({"name": pa.Array.from_buffers(pa.string(), 1, buffers)})
    with pytest.raises(CapacityError, match=r"2 rows of a join in hops .* 2 GiB \(columns name\): use shorter windows"):
        together([rows, rows], rows.schema)
