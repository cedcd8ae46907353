"""A push of a query with as-of joins happens in whole or not at all, whatever fails and whenever an exception comes."""

from __future__ import annotations

from random import Random

import pytest

import eddy
from tests.eddy.test_as_of import BIDS, ON, RATES, Output, bids, rates
from tests.eddy.test_branches_interrupted import ValiditySwitch
from tests.eddy.test_interrupts import Seen, pushed


def test_a_push_that_fails_leaves_versions_and_waiting_rows_as_they_were() -> None:
    switch = ValiditySwitch()
    query = eddy.Query([bids()], as_of=[eddy.AsOf(rates(), ON)], where=eddy.Predicate(switch, ["bid.cur"]))
    rt = eddy.Runtime(query)
    rt.push({"bid": [{"cur": "a", "t": 5}], "rate": [{"cur": "a", "t": 4, "rate": 1.0}]})
    before = rt.snapshot()
    switch.on = True
    with pytest.raises(eddy.InputError, match="the switch is on"):
        rt.push(
            {
                "bid": [{"cur": "b", "t": 8}],
                "rate": [{"cur": "a", "t": 5, "rate": 2.0}, {"cur": "b", "t": 9, "rate": 2.5}],
            }
        )
    assert rt.snapshot() == before
    rt.check()
    switch.on = False
    (row,) = rt.push({"bid": [{"cur": "a", "t": 8}], "rate": [{"cur": "a", "t": 8, "rate": 3.0}]}).to_pylist()
    assert (row["bid.t"], row["rate.rate"]) == (5, 1.0)


@pytest.mark.campaign(0)
@pytest.mark.parametrize("output", ["append", "changelog"])
def test_an_exception_at_each_line_of_a_push(output: Output) -> None:
    switch, draw, seen = ValiditySwitch(), Random(3), Seen()
    streams = [eddy.Stream(name, BIDS, eddy.Range(9), "t") for name in ("bid", "ask")]
    joins = [eddy.AsOf(rates(ops="column"), ON, at="bid.t"), eddy.AsOf(
        eddy.VersionedTable("fee", RATES, key="cur", time="t"), ["ask.cur = fee.cur"], at="ask.t", how="left"
    )]  # fmt: skip
    query = eddy.Query(streams, ["bid.cur = ask.cur"], as_of=joins, where=eddy.Predicate(switch, ["bid.cur"]))
    runtime, twin = (eddy.Runtime(query, output=output, strategy="jisc") for _ in range(2))
    quiet = clock = 0
    while quiet < 8:
        clock += 1
        batches = {
            name: [
                {"cur": draw.choice("ab"), "t": clock + draw.randrange(2)}
                | ({} if name in ("bid", "ask") else {"rate": draw.random()})
                | ({"op": draw.choice(("+I", "d"))} if name == "rate" else {})
                for _ in range(draw.randrange(4))
            ]
            for name in ("bid", "ask", "rate", "fee")
        }
        expected = twin.push(batches)
        results, tries = pushed(runtime, batches, seen)
        assert sorted(map(str, results.to_pylist())) == sorted(map(str, expected.to_pylist()))
        quiet = quiet + 1 if tries == 1 else 0
    assert len(seen) > 300
