"""Cases of engines that once went wrong, each against the reference (`eddy.fuzz.changing`)."""

from __future__ import annotations

import pytest

from eddy.fuzz.case import PushStep
from eddy.fuzz.changing.case import ChangeStep, StartStep, StopStep
from eddy.fuzz.changing.play import play
from eddy.streams.windows import Range, Rows, Unbounded
from tests.eddy.engine_cases import arrivals, asked, case

WIDE, NARROW, NEWEST = asked(Range(9), Range(9)), asked(Range(1), Range(1)), asked(Rows(1), Rows(1))
BOTH = asked(Rows(2), Rows(2))

CASES = {
    "all rows of a stream in a push are late": case(StartStep("q", WIDE), arrivals("R5 S3"), arrivals("S5 R4", 2)),
    "rows that the filter rejects do not fill a draining window of rows": case(
        StartStep("q", asked(Rows(1), Rows(1), least=1)),
        arrivals("R0x1 S0"),
        StopStep("q", "drain"),
        arrivals("R1 S1", 2),
        arrivals("S2 R3x1 S4", 4),
    ),
    "a drain counts rows that came after it was given and before it took effect": case(
        StartStep("q", NARROW),
        arrivals("R0"),
        StopStep("q", "drain", 3),
        arrivals("R4", 1),
        arrivals("T4", 2),
        arrivals("T5", 3),
        arrivals("S5 S6", 4),
        streams=3,
    ),
    "a drain that is over as it begins is over there, in whatever pushes rows come": case(
        StartStep("q", NARROW),
        arrivals("R0 T9"),
        ChangeStep("q", WIDE, "delayed-drain"),
        arrivals("R9 S9", 2),
        streams=3,
    ),
    "of two drains the one at the earlier position counts": case(
        StartStep("q", WIDE),
        ChangeStep("q", NARROW, "graceful-drain", 0),
        ChangeStep("q", NEWEST, "delayed-drain", 6),
        arrivals("R0 S0 S1 R2 S3 R12 R13 S13 R14 S30 R30"),
    ),
    "a version that never began is dropped at the next change, though results of that come in the same push": case(
        StartStep("p", NEWEST),
        arrivals("R0 S0"),
        StartStep("q", NEWEST, warm=True),
        ChangeStep("q", asked(Rows(1), Range(0)), "delayed-drain"),
        ChangeStep("q", asked(Rows(1), Rows(1), least=2), "graceful-drain", 1),
        arrivals("R0 S0 R0 S0 R0 S0 R0x2 S0", 2),
        arrivals("R0x2 S0", 10),
    ),
    "a version that waited begins and ends at the position of an element that was given ahead": case(
        StartStep("q", asked(Rows(1), Rows(2))),
        arrivals("R0 S0"),
        ChangeStep("q", NEWEST, "delayed-drain"),
        arrivals("R0 S0", 2),
        ChangeStep("q", NEWEST, "delayed-drain", 3),
        arrivals("R0", 4),
        arrivals("R0 S0", 5),
    ),
    "results that are held come before those of the version after theirs": case(
        StartStep("q", NEWEST),
        ChangeStep("q", NEWEST, "drain-query"),
        ChangeStep("q", NEWEST, "immediate", 2),
        arrivals("R0 S0 R0 S0"),
    ),
    "results that are held come before the first one of a graceful change": case(
        StartStep("q", asked(Rows(1), Rows(2))),
        arrivals("R0 S0"),
        ChangeStep("q", NEWEST, "drain-query"),
        ChangeStep("q", NEWEST, "graceful", 1),
        arrivals("R0 S0 R0", 2),
    ),
    "a window of time of length 0 beside an unbounded one": case(
        StartStep("p", asked(Unbounded(), Range(0))), StartStep("q", asked(Range(0), Range(0))), arrivals("R0 S0 S1")
    ),
    "a version that is replaced before its start needs no join": case(
        StartStep("q", NEWEST),
        ChangeStep("q", BOTH, "delayed-drain"),
        ChangeStep("q", NEWEST, "immediate", 1),
        PushStep(()),
        arrivals("R0 S0 R1 S1"),
    ),
    "a window of rows goes by their arrival also after a warm start": case(
        StartStep("q", BOTH),
        arrivals("R0 S0 R0 S0 S-1"),
        ChangeStep("q", NEWEST, "handover"),
        arrivals("R0", 5),
        lateness=4,
    ),
    "windows of rows and of time after a warm start": case(
        StartStep("q", asked(Rows(2), Range(9))),
        arrivals("R4 S4 R3 S2"),
        StartStep("p", asked(Rows(1), Range(3)), warm=True),
        arrivals("S4 R4 S4", 4),
        lateness=4,
    ),
    "rows that the filter rejects do not push others out of what is kept": case(
        StartStep("p", asked(Rows(1), Rows(1), least=1)),
        arrivals("R0x1"),
        arrivals("R0 S0", 1),
        arrivals("R0 S0", 3),
        ChangeStep("p", asked(Rows(1), Rows(1), least=1), "handover"),
        arrivals("S1", 5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_that_was_found(name: str) -> None:
    assert play(CASES[name]).arrivals > 0
