"""The ratios of the choice between one round and hops."""

from __future__ import annotations

from bench.chains import auto_ratios, in_turns


def test_ratios_are_those_of_a_turn() -> None:
    seconds = {"grid": [1.0, 2.0, 4.0], "hops": [5.0, 6.0, 50.0], "auto": [1.1, 2.4, 4.0]}
    better, worse = auto_ratios("one", seconds)
    assert (better["figure"], worse["figure"]) == ("one.auto_vs_better", "one.auto_vs_worse")
    assert [round(float(str(better[name])), 6) for name in ("value", "value_low", "value_high")] == [1.1, 1.0, 1.2]
    assert auto_ratios("one", {"grid": [2.0], "hops": [3.0], "auto": [2.0]}) == [
        {"figure": "one.auto_vs_better", "value": 1.0}
    ]


def test_each_way_comes_first_in_some_turn() -> None:
    ran: list[str] = []

    def run(way: str) -> dict[str, float]:
        ran.append(way)
        return {"seconds": 1.0, "wall_s": 1.0, "results": 1}

    in_turns("one", 3, ["grid"], run, lambda said: None)
    assert ran[0] == "grid"
    turns = [ran[k : k + 3] for k in (1, 4, 7)]
    assert sorted(turn[0] for turn in turns) == sorted(turns[0]) == ["auto", "grid", "hops"]
