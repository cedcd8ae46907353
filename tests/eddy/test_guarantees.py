"""The guarantees of each kind of change: every "yes" on random queries, every "no" by a counterexample with a name.

docs/guide/semantics.md, "What a change guarantees", defines the guarantees and the references; the results of the
references come from nested loops (`eddy.fuzz.changing.measures`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.fuzz.case import PushStep, Row
from eddy.fuzz.changing.case import (
    ChangeStep,
    EngineCase,
    EngineQuery,
    EngineStreams,
    StartStep,
    StopStep,
    StreamUse,
)
from eddy.fuzz.changing.draw import HOWS, EngineStepWriter, asked_of, sources_drawn
from eddy.fuzz.changing.given import given_rows
from eddy.fuzz.changing.measures import (
    NEW,
    OLD,
    Measures,
    all_results,
    handover_reference,
    measured,
    papers_reference,
)
from eddy.fuzz.changing.oracle import OracleResult
from eddy.fuzz.changing.play import EngineGame
from eddy.queries.changes import CHANGES, How
from eddy.streams.windows import Range, Rows, Unbounded, Window
from tests.documents import ROOT
from tests.eddy.engine_cases import arrivals, asked, case

NO_LOSS, QUERY_ORDER, STREAM_ORDER = "nothing lost", "old before new", "in stream order"
NO_DUPLICATES, PROGRESS, ENDS = "nothing twice", "progress", "ends"
GUARANTEES = (NO_LOSS, QUERY_ORDER, STREAM_ORDER, NO_DUPLICATES, PROGRESS, ENDS)

TABLE: dict[str, tuple[bool, ...]] = {
    "immediate": (False, True, True, True, True, True),
    "delayed-drain": (False, True, True, True, False, False),
    "drain-query": (True, True, False, True, True, False),
    "drain-stream": (True, False, True, True, True, False),
    "graceful": (False, True, True, True, True, False),
    "graceful-drain": (True, False, True, False, True, False),
    "handover": (True, True, True, True, True, True),
}
"""By kind of change, whether each of GUARANTEES holds: figure 10 of the paper, and our handover."""


def test_the_guide_has_this_table() -> None:
    text = (ROOT / "docs" / "guide" / "queries.md").read_text()
    rows = [[cell.strip(" `") for cell in line[1:-1].split("|")] for line in text.splitlines() if line[:1] == "|"]
    (heads,) = (row for row in rows if row[0] == "how")
    assert heads[3:] == list(GUARANTEES)
    documented = {
        row[0]: tuple({"yes": True, "–": False}[cell] for cell in row[3:]) for row in rows if row[0] in CHANGES
    }
    assert documented == TABLE
    assert TABLE.keys() == CHANGES.keys()


# Observing a change


@dataclass(frozen=True)
class ObservedChange:
    """A change at a position: what it did, where the new version started, and where the old one ended."""

    measures: Measures
    at: int
    start: int | None
    ended: int | None
    given: list[OracleResult]
    reached: bool

    def holds(self, guarantee: str) -> bool:
        """Return whether a guarantee holds here."""
        lost, query_disorder, stream_disorder, duplicates = self.measures
        return {
            NO_LOSS: not lost,
            QUERY_ORDER: not query_disorder,
            STREAM_ORDER: not stream_disorder,
            NO_DUPLICATES: not duplicates,
            PROGRESS: self.start == self.at,
            ENDS: self.ended == self.at or not self.reached,
        }[guarantee]


def observe(case: EngineCase, paper: bool = False) -> ObservedChange:
    """Play a case with one change of one query; `paper`: measure loss by the paper's reference in any case."""
    game, at = EngineGame(case), -1
    for step in case.steps:
        if isinstance(step, ChangeStep):
            at, change = game.engine.position + (step.ahead or 0), step
        if isinstance(step, StartStep):
            start = step
        game.take(step)
    arrived = game.model.oracle.arrived
    first, second = game.engine["q"].versions
    began, ended = second.start, first.ended
    last = game.engine.finish().get("q")
    places = {arrival.row["n"]: place for place, arrival in enumerate(arrived)}
    came, waited = (
        [OracleResult(version, tuple(places[n] for n in numbers)) for version, numbers in given]
        for given in (game.given.get("q", []), [] if last is None else given_rows(last))
    )
    queries = [element.asked.oracle(case.sources) for element in (start, change)]
    old, new = (all_results(query, number, arrived) for number, query in zip((OLD, NEW), queries, strict=True))
    if change.how == "handover" and not paper:
        reference = handover_reference(old, new, at, game.engine["q"].complete_from)
    else:
        reference = papers_reference(old, new, at)
    streams = [[stream.name for stream in query.streams] for query in queries]
    # What waits for the end of the old version is not lost.
    measures = measured(came, reference - set(waited), streams)
    return ObservedChange(measures, at, began, ended, came, at <= len(arrived))


# What holds


def bounded(window: Window) -> Window:
    """Return a window that a drain can leave."""
    return Rows(3) if isinstance(window, Unbounded) else window


def wider(window: Window, by: int) -> Window:
    """Return a window that is wider by a number, at least the narrowest one."""
    return Rows(max(window.n + by, 1)) if isinstance(window, Rows) else Range(max(int(window.d) + by, 0))  # type: ignore[union-attr,arg-type]


def joined(query: EngineQuery, more: list[int], window: Window) -> EngineQuery:
    """Return a query with streams joined to its first one."""
    owns = tuple(StreamUse(i, window) for i in more)
    return replace(
        query,
        streams=query.streams + owns,
        equalities=query.equalities + tuple((query.streams[0].stream, i, "k0") for i in more),
    )


def left_out(query: EngineQuery) -> EngineQuery:
    """Return a query without its last stream, if two are left."""
    last = query.streams[-1].stream
    pairs, comparisons = (
        [predicate for predicate in predicates if last not in predicate[:2]]
        for predicates in (query.equalities, query.comparisons)
    )
    if len(query.streams) < 3 or len(pairs) != len(query.equalities) - 1:
        return query
    return EngineQuery(query.streams[:-1], tuple(pairs), tuple(comparisons))


@st.composite
def changes(draw: st.DrawFn, how: How) -> EngineCase:
    """Draw a case with one change: any old query, and a new one with other windows, filters or streams."""
    sources, picks = draw(sources_drawn()), st.binary(min_size=16, max_size=16)
    drawn = asked_of(sources, draw(picks))
    old = replace(drawn, streams=tuple(replace(stream, window=bounded(stream.window)) for stream in drawn.streams))
    by = draw(st.sampled_from((0, 3, -2)))
    new = replace(old, streams=tuple(replace(stream, window=wider(stream.window, by)) for stream in old.streams))
    others = [i for i in range(len(sources.windows)) if i not in [stream.stream for stream in old.streams]]
    kind = draw(st.sampled_from(("windows", "windows", "filter", "streams", "fewer streams")))
    if kind == "filter":
        first = new.streams[0]
        new = replace(new, streams=(replace(first, least=None if first.least else 1), *new.streams[1:]))
    elif kind == "streams":
        new = joined(new, others[:1], bounded(old.streams[0].window))
    elif kind == "fewer streams":
        new = left_out(new)
    writer = EngineStepWriter(EngineCase(sources, "eddy"))
    pushes = st.lists(st.binary(max_size=75), min_size=1, max_size=3)
    steps = [writer.element(StartStep("q", old))]
    steps += [step for rows in draw(pushes) for step in writer.steps(("push", b"\0" * 16, rows))]
    steps.append(writer.element(ChangeStep("q", new, how, draw(st.sampled_from((None, 0, 4))))))
    steps += [step for rows in draw(pushes) for step in writer.steps(("push", b"\0" * 16, rows))]
    return replace(writer.case, steps=tuple(steps))


@pytest.mark.campaign(1)
@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_what_a_kind_guarantees_holds(how: How, data: st.DataObject) -> None:
    observed = observe(data.draw(changes(how)))
    for guarantee, promised in zip(GUARANTEES, TABLE[how], strict=True):
        assert observed.holds(guarantee) or not promised, f"{how}: not {guarantee!r}: {observed}"


def test_results_that_wait_are_not_lost() -> None:
    """The rows end before the old version of a drain-query change does."""
    asked = EngineQuery((StreamUse(0, Rows(1), None), StreamUse(1, Rows(2), None)), ((0, 1, "k0"),))
    r, s, later = (Row(i, {"k0": 0, "k1": 0}, 0, n) for n, i in enumerate((1, 0, 1)))
    change = ChangeStep("q", asked, "drain-query", None)
    steps = StartStep("q", asked, None), PushStep((r,)), change, PushStep((s, later))
    observed = observe(EngineCase(EngineStreams((None, None), False), "eddy", steps))
    assert (observed.ended, observed.measures.lost, len(observed.given)) == (None, 0, 1)


# What does not hold

SHOWN: dict[tuple[str, str], str] = {}
"""By kind of change and guarantee that it does not give, the test that shows so."""


def shows(how: str, guarantee: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Mark a test as the counterexample of a cell of the table."""

    def mark(test: Callable[[], None]) -> Callable[[], None]:
        SHOWN[how, guarantee] = test.__name__
        return test

    return mark


def test_each_no_has_a_counterexample() -> None:
    cells = {
        (how, guarantee)
        for how, promises in TABLE.items()
        for guarantee, promised in zip(GUARANTEES, promises, strict=True)
        if not promised
    }
    assert SHOWN.keys() == cells


OLD_QUERY, WIDER, NARROWER = asked(Range(4), Range(4)), asked(Range(9), Range(9)), asked(Range(1), Range(1))


def change(
    how: How, before: str, after: str, new: EngineQuery = OLD_QUERY, old: EngineQuery = OLD_QUERY
) -> ObservedChange:
    """Change a query between arrivals, and observe what comes of it."""
    first = arrivals(before)
    return observe(
        case(StartStep("q", old), first, ChangeStep("q", new, how), arrivals(after, len(first.rows)), streams=3)
    )


@shows("immediate", NO_LOSS)
def test_immediate_loses_results_of_rows_on_both_sides() -> None:
    assert change("immediate", "R0", "S1 R1").measures == Measures(lost=1)


@shows("delayed-drain", NO_LOSS)
def test_delayed_drain_loses_results_of_the_new_version_while_the_old_one_drains() -> None:
    assert change("delayed-drain", "R0", "R1k1 S1k1 T9 R9 S9").measures == Measures(lost=1)


@shows("delayed-drain", PROGRESS)
def test_delayed_drain_does_not_begin_while_time_stands_still() -> None:
    observed = change("delayed-drain", "R0", "R1 S1 " * 20)
    assert observed.start is None
    assert {result.version for result in observed.given} == {OLD}


@shows("delayed-drain", ENDS)
def test_delayed_drain_does_not_end_while_time_stands_still() -> None:
    assert change("delayed-drain", "R0", "R1 S1 " * 20).ended is None


@shows("drain-query", STREAM_ORDER)
def test_drain_query_disorders_results_of_the_stream() -> None:
    # The new result of R1 and S1 waits for the old one of R0 and S3, which has a later last component.
    observed = change("drain-query", "R0k1", "R1 S1 S3k1 T9")
    assert observed.measures == Measures(stream_disorder=1)
    assert [result.version for result in observed.given] == [OLD, NEW]


@shows("drain-query", ENDS)
def test_drain_query_does_not_end_while_time_stands_still() -> None:
    observed = change("drain-query", "R0", "S1 R1 " * 20)
    assert observed.ended is None
    assert observed.start == observed.at
    assert {result.version for result in observed.given} == {OLD}


@shows("drain-stream", QUERY_ORDER)
def test_drain_stream_disorders_results_of_the_query() -> None:
    observed = change("drain-stream", "R0k1", "R1 S1 S3k1 T9")
    assert observed.measures == Measures(query_disorder=1)
    assert [result.version for result in observed.given] == [NEW, OLD]


@shows("drain-stream", ENDS)
def test_drain_stream_does_not_end_while_time_stands_still() -> None:
    observed = change("drain-stream", "R0", "S1 " * 20)
    assert observed.ended is None
    assert observed.given[-1].version == OLD


@shows("graceful", NO_LOSS)
def test_graceful_loses_results_of_old_rows_after_the_first_new_one() -> None:
    assert change("graceful", "R0k1", "R1 S1 S3k1").measures == Measures(lost=1)


@shows("graceful", ENDS)
def test_graceful_does_not_end_while_the_new_version_has_no_result() -> None:
    observed = change("graceful", "R0", "S1 T9 S9 T19 S19 T30", NARROWER)
    assert observed.ended is None
    assert observed.start == observed.at


@shows("graceful-drain", QUERY_ORDER)
def test_graceful_drain_disorders_results_of_the_query() -> None:
    # The filter keeps the first new result, that of R1 and S1, out of the old version.
    filtered = asked(Range(4), Range(4), least=1)
    observed = change("graceful-drain", "R0k1x1", "R1 S1 S3k1 T9", old=filtered)
    assert observed.measures == Measures(query_disorder=1)


@shows("graceful-drain", NO_DUPLICATES)
def test_graceful_drain_gives_results_of_both_versions_twice() -> None:
    # The old version runs until the first result of the new one, so both have that of R1 and S1, and of R1 and S2.
    observed = change("graceful-drain", "", "R1 S1 S2 T9")
    assert observed.measures.duplicates == 2
    assert observed.measures.lost == 0


@shows("graceful-drain", ENDS)
def test_graceful_drain_does_not_end_while_the_new_version_has_no_result() -> None:
    assert change("graceful-drain", "R0", "S1 T9 S9 T19 S19 T30", NARROWER).ended is None


# The rules of section 3.5


@pytest.mark.parametrize("new", [NARROWER, OLD_QUERY, WIDER], ids=["narrower", "equal", "wider"])
def test_rule_ld_does_not_carry_over_to_joins(new: EngineQuery) -> None:
    """With a wider new window the paper's sums are in order, because a sum waits for a whole window; joins do not."""
    assert change("drain-stream", "R0k1", "R1 S1 S3k1 T9", new).measures == Measures(query_disorder=1)
    assert change("drain-query", "R0k1", "R1 S1 S3k1 T9", new).measures == Measures(stream_disorder=1)


def test_rule_lt_and_a_handover_speak_of_different_references() -> None:
    """A handover ends the old version at once; what the paper's reference has of it, the new version gives or drops."""
    rows = "R0", "S1 S3 S5 R5 T19"
    observed = change("handover", *rows, NARROWER)
    assert observed.ended == observed.at
    assert observed.measures == Measures()
    first = arrivals(rows[0])
    steps = StartStep("q", OLD_QUERY), first, ChangeStep("q", NARROWER, "handover"), arrivals(rows[1], len(first.rows))
    assert observe(case(*steps, streams=3), paper=True).measures == Measures(lost=2)


def test_an_immediate_stop_gives_out_what_was_held() -> None:
    """The new version of "drain-query" makes progress although its results wait."""
    steps = [StartStep("q", OLD_QUERY), arrivals("R0"), ChangeStep("q", OLD_QUERY, "drain-query"), arrivals("R1 S1", 1)]
    held = observe(case(*steps))
    stopped = observe(case(*steps, StopStep("q", "immediate"), arrivals("S1", 3)))
    assert {result.version for result in held.given} == {OLD}
    assert stopped.given[-1] == OracleResult(NEW, (1, 2))
