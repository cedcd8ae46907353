"""The oracle against cases worked by hand from docs/guide/semantics.md."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eddy.fuzz.oracle import ArrivalOutcome, Oracle, OracleClock, OracleQuery, OracleStream

NAN = math.nan


def stream(name: str, window: str = "unbounded", size: int = 0, **more: Any) -> OracleStream:
    return OracleStream(name, window, size, **more)  # type: ignore[arg-type]


def feed(oracle: Oracle, arrivals: str) -> list[tuple[tuple[int, ...], ...]]:
    """Feed arrivals written as "R1 S1 R2@7": stream, key `k`, and the event time after the @."""
    outcomes = []
    for word in arrivals.split():
        key, _, time = word[1:].partition("@")
        outcomes.append(oracle.arrive(word[0], {"k": int(key), "t": int(time or 0)}).results)
    return outcomes


def pair(left: OracleStream, right: OracleStream, **more: Any) -> Oracle:
    """Return a join of two streams, which need not both have rows for time to pass."""
    more = {"watermark": "fastest", **more}
    return Oracle(OracleQuery([left, right], [((left.name, "k"), (right.name, "k"))], **more))


def test_a_result_is_given_once_when_its_last_component_arrives() -> None:
    oracle = pair(stream("R"), stream("S"))
    assert feed(oracle, "R1 S2 S1 R1 S1") == [(), (), ((0, 1),), ((1, 1),), ((0, 2), (1, 2))]


def test_rows_window_counts_the_arrivals_of_its_own_stream_only() -> None:
    oracle = pair(stream("R", "rows", 2), stream("S", "rows", 1))
    # R's newest two are 0 and 1 when the first S comes; R number 2 pushes 0 out, whatever its key is.
    assert feed(oracle, "R1 R1 S1 R5 S1 R1") == [(), (), ((0, 0), (1, 0)), (), ((1, 1),), ((3, 1),)]


def test_the_arriving_tuple_is_in_its_own_window_of_one_row() -> None:
    oracle = pair(stream("R", "rows", 1), stream("S", "rows", 1))
    assert feed(oracle, "R1 S1 R1 R1") == [(), ((0, 0),), ((1, 0),), ((2, 0),)]


def test_a_tuple_with_a_null_key_takes_its_place_in_the_window() -> None:
    oracle = pair(stream("R", "rows", 1), stream("S"))
    oracle.arrive("R", {"k": 1})
    assert oracle.arrive("R", {"k": None}) == ArrivalOutcome("arrived", 1)
    assert oracle.arrive("S", {"k": 1}).results == ()
    assert oracle.arrive("S", {"k": None}).results == ()


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (NAN, NAN, False),
        (0.0, -0.0, True),
        (None, None, False),
        ("a", "a", True),
        (b"a", b"b", False),
        (2**63, 2**63, True),
    ],
)
def test_equality_of_values(left: Any, right: Any, equal: bool) -> None:
    oracle = pair(stream("R"), stream("S"))
    oracle.arrive("R", {"k": left})
    assert oracle.arrive("S", {"k": right}).results == (((0, 0),) if equal else ())


def test_range_includes_its_bound_and_does_not_depend_on_the_arrival_order() -> None:
    def with_ranges(**more: Any) -> Oracle:
        return pair(stream("R", "range", 3, time="t"), stream("S", "range", 1, time="t"), **more)

    assert feed(with_ranges(), "R1@0 S1@3 S1@4") == [(), ((0, 0),), ()]
    # The same tuples in reverse order, admitted by the lateness: the same results.
    assert feed(with_ranges(lateness=9), "S1@4 S1@3 R1@0") == [(), (), ((0, 1),)]


def test_range_is_measured_from_the_newest_component_of_the_result() -> None:
    query = OracleQuery(
        [stream("R", "range", 5, time="t"), stream("S", time="t"), stream("T", time="t")],
        [(("R", "k"), ("S", "k")), (("S", "k"), ("T", "k"))],
    )
    # R and S are 5 apart, R and T 6; S is unbounded and may be any age.
    assert feed(Oracle(query), "S1@0 R1@10 T1@15 T1@16") == [(), (), ((0, 0, 0),), ()]


def test_a_late_tuple_has_no_place_in_a_window_and_no_number() -> None:
    oracle = pair(stream("R", "range", 100, time="t"), stream("S", "rows", 1, time="t"), lateness=2)
    fates = [
        oracle.arrive(s, {"k": 1, "t": t}) for s, t in [("R", 10), ("S", 8), ("S", 7), ("R", 8), ("R", 12), ("S", 9)]
    ]
    assert [outcome.fate for outcome in fates] == ["arrived", "arrived", "late", "arrived", "arrived", "late"]
    assert [outcome.number for outcome in fates] == [0, 0, None, 1, 2, None]
    assert [outcome.results for outcome in fates] == [(), ((0, 0),), (), ((1, 0),), ((2, 0),), ()]


def test_nothing_is_late_without_a_range_window() -> None:
    oracle = pair(stream("R", time="t"), stream("S", "rows", 3, time="t"))
    assert feed(oracle, "R1@10 S1@0") == [(), ((0, 0),)]


def test_a_rejected_row_never_arrives() -> None:
    oracle = pair(stream("R", "rows", 1, keep=lambda row: None if row["k"] is None else row["k"] < 5), stream("S"))
    oracle.arrive("R", {"k": 1})
    assert oracle.arrive("R", {"k": 7}) == ArrivalOutcome("rejected")
    assert oracle.arrive("R", {"k": None}) == ArrivalOutcome("rejected")
    assert oracle.arrive("S", {"k": 1}).results == ((0, 0),)


def test_a_rejected_row_does_not_move_the_watermark() -> None:
    ranged = stream("R", "range", 5, time="t", keep=lambda row: row["k"] < 5)
    oracle = pair(ranged, stream("S", time="t"))
    assert oracle.arrive("R", {"k": 9, "t": 99}).fate == "rejected"
    assert oracle.arrive("S", {"k": 1, "t": 0}).fate == "arrived"


def test_where_drops_false_and_null() -> None:
    def where(values: Any) -> bool | None:
        return None if values["R", "v"] is None else values["R", "v"] < values["S", "v"]

    oracle = pair(stream("R"), stream("S"), where=where)
    for v in (1, 2, None):
        oracle.arrive("R", {"k": 0, "v": v})
    assert oracle.arrive("S", {"k": 0, "v": 2}).results == ((0, 0),)


def test_two_columns_of_one_stream_in_one_class_must_be_equal() -> None:
    oracle = Oracle(OracleQuery([stream("R"), stream("S")], [(("R", "a"), ("S", "x")), (("R", "b"), ("S", "x"))]))
    oracle.arrive("R", {"a": 1, "b": 1})
    oracle.arrive("R", {"a": 1, "b": 2})
    assert oracle.arrive("S", {"x": 1}).results == ((0, 0),)


def test_several_columns_in_one_predicate() -> None:
    oracle = Oracle(OracleQuery([stream("R"), stream("S")], [(("R", "a"), ("S", "b")), (("R", "b"), ("S", "a"))]))
    oracle.arrive("R", {"a": 1, "b": 2})
    oracle.arrive("R", {"a": 1, "b": None})
    assert oracle.arrive("S", {"a": 2, "b": 1}).results == ((0, 0),)
    assert oracle.arrive("S", {"a": None, "b": 1}).results == ()


def test_a_cycle_checks_every_edge() -> None:
    query = OracleQuery(
        [stream("R"), stream("S"), stream("T")],
        [(("R", "a"), ("S", "a")), (("S", "b"), ("T", "b")), (("T", "c"), ("R", "c"))],
    )
    oracle = Oracle(query)
    oracle.arrive("R", {"a": 1, "c": 3})
    oracle.arrive("R", {"a": 1, "c": 4})
    oracle.arrive("S", {"a": 1, "b": 2})
    oracle.arrive("S", {"a": 9, "b": 2})
    assert oracle.arrive("T", {"b": 2, "c": 3}).results == ((0, 0, 0),)


def test_the_case_that_presence_of_a_key_is_not_completeness() -> None:
    # Plan ((S T) R) U after a transition: s_old and t are in their windows, s comes, then r must find both.
    streams = [stream(name) for name in "RSTU"]
    oracle = Oracle(OracleQuery(streams, [((a, "k"), (b, "k")) for a, b in ("RS", "ST", "TU")]))
    assert feed(oracle, "S1 T1 U1 S1 R1")[-1] == ((0, 0, 0, 0), (0, 1, 0, 0))


def test_unconnected_streams_are_refused() -> None:
    oracle = Oracle(OracleQuery([stream("R"), stream("S"), stream("T")], [(("R", "k"), ("S", "k"))]))
    with pytest.raises(ValueError, match="no predicate connects"):
        feed(oracle, "R1 S1")


# --- the changelog ----------------------------------------------------------------------------------------------------


def changes(oracle: Oracle, arrivals: str) -> list[str]:
    """Feed arrivals and return the changes of each: "-" for expired rows, "/" for displaced tuples, "+" for results."""
    told = []
    for word in arrivals.split():
        key, _, time = word[1:].partition("@")
        outcome = oracle.arrive(word[0], {"k": int(key), "t": int(time or 0)})
        marked = (("-", outcome.expired), ("/", outcome.displaced), ("+", outcome.results))
        told.append(" ".join(f"{mark}{''.join(map(str, result))}" for mark, changed in marked for result in changed))
        assert sorted(oracle.standing) == oracle.answer()
    return told


def test_a_row_leaves_a_window_of_n_rows_when_the_nth_row_after_it_arrives() -> None:
    oracle = pair(stream("R", "rows", 2), stream("S"))
    assert changes(oracle, "R1 S1 R2 S2 R3 R1 R1") == ["", "+00", "", "+11", "/00", "/11 +30", "+40"]
    assert oracle.answer() == [(3, 0), (4, 0)]


def test_a_row_displaces_the_one_before_it_before_it_joins() -> None:
    assert changes(pair(stream("R", "rows", 1), stream("S")), "S1 R1 R1 R2") == ["", "+00", "/00 +10", "/10"]


def test_rows_that_can_not_join_displace_others_and_rows_that_never_arrive_do_not() -> None:
    oracle = pair(stream("R", "rows", 1, keep=lambda row: row["k"] != 9), stream("S"))
    assert changes(oracle, "R1 S1 R9") == ["", "+00", ""]
    assert oracle.arrive("R", {"k": None}) == ArrivalOutcome("arrived", 1, displaced=((0, 0),))


def test_a_row_leaves_a_range_when_more_than_its_span_has_passed() -> None:
    oracle = pair(stream("R", "range", 3, time="t"), stream("S", time="t"))
    # At 4 the row of time 1 has age 3 and is in the window; at 5 it is not. Rows of any stream advance the time.
    assert changes(oracle, "R1@1 S1@2 S2@4 S2@5 S1@5") == ["", "+00", "", "-00", ""]


def test_time_stands_still_for_a_row_that_is_late() -> None:
    oracle = pair(stream("R", "range", 1, time="t"), stream("S", "rows", 1, time="t"))
    assert changes(oracle, "R1@5 S1@5 S1@3 R2@6 R2@7") == ["", "+00", "", "", "-00"]


def test_with_lateness_a_row_stays_as_much_longer() -> None:
    ranged = stream("R", "range", 3, time="t")
    oracle = pair(ranged, stream("S", time="t"), lateness=2)
    # The row of time 1 can still meet one of time 4 when the newest is 6, and leaves at 7.
    assert changes(oracle, "R1@1 S1@1 S2@6 S1@4 S2@7") == ["", "+00", "", "+02", "-00 -02"]


def test_with_lateness_a_row_waits_for_those_that_came_before_it() -> None:
    ranged = stream("R", "range", 2, time="t")
    oracle = pair(ranged, stream("S", time="t"), lateness=5)
    # R1 expires after 12, but R0 arrived before it and stays until 16; alone it would have left at 13.
    assert changes(oracle, "R7@9 R1@5 S1@5 S2@13 S2@16 S2@17") == ["", "", "+10", "", "", "-10"]
    alone = pair(ranged, stream("S", time="t"), lateness=5)
    assert changes(alone, "R1@5 S1@5 S2@12 S2@13") == ["", "+00", "", "-00"]


def test_a_result_ends_once_by_the_first_component_that_leaves() -> None:
    oracle = pair(stream("R", "range", 2, time="t"), stream("S", "rows", 1, time="t"))
    # The row of S at time 9 removes both components of 00: eviction by time comes first.
    assert changes(oracle, "R1@0 S1@0 S2@9 R2@9 S2@9 R2@20") == ["", "+00", "-00", "+11", "/11 +12", "-12 +22"]


def test_what_is_unbounded_never_leaves() -> None:
    assert changes(pair(stream("R"), stream("S")), "R1 S1 R2 S1 R1") == ["", "+00", "", "+01", "+20 +21"]


def test_only_results_that_the_filter_lets_through_end() -> None:
    oracle = pair(stream("R", "rows", 1), stream("S"), where=lambda values: values["S", "t"] > 0)
    assert changes(oracle, "S1@0 S1@1 R1 R1") == ["", "", "+01", "/01 +11"]


def test_the_watermark_follows_the_slowest_stream_that_is_not_idle() -> None:
    clock = OracleClock({"R": 1, "S": 0}, idle_after=10)
    seen = []
    for name, t in (("R", 5), ("R", 15), ("S", 3), ("R", 20), ("S", 30), ("R", 25), ("S", 35), ("S", 36), ("R", 30)):
        late = clock.tick(name, t)
        seen.append((clock.now, late))
    # S has its first row at 3. No stream is idle: time never rises by more than 10 between two rows of a stream.
    assert seen[:4] == [(None, False), (None, False), (3, False), (3, False)]
    assert seen[4:] == [(19, False), (24, False), (24, False), (24, False), (29, False)]


def test_a_stream_is_idle_when_time_has_risen_by_more_than_the_span_since_its_last_row() -> None:
    clock = OracleClock({"R": 0, "S": 0}, idle_after=10)
    assert [(clock.tick("R", t), clock.now)[1] for t in (100, 110, 111)] == [None, None, 111]
    assert clock.tick("S", 50), "it is late, and it makes S count again"
    assert not clock.tick("R", 115)
    assert clock.now == 111
