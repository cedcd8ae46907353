"""STAIRs under an eddy: the probes, promotions and entries of the pipelined plan, and when keys are promoted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.cases import JoinCase
from tests.eddy.runtime_and_oracle import ONE_CLASS, A, B, C, Twins, query

GRAPHS = {
    name: query(columns, size=8)
    for name, columns in {
        "one class": ["a"] * 4,
        "chain": ["a", "ab", "bc", "c"],
        "cycle": ["ad", "ab", "bc", "cd"],
    }.items()
}
PAIRS = {"eddy-stairs": "stairs", "eddy-jisc": "jisc"}


def counts(twins: Twins) -> dict[str, Any]:
    """Return what modules and history count, without times."""
    figures, history = twins.runtime.metrics(), twins.runtime.history()
    counted = {name: figures[name] for name in ("probes", "matches", "results")}
    counted["states"] = [
        (stair["entries"], stair["stored"], stair["promoted"], stair["computed"]) for stair in figures["stairs"]
    ]
    names = ("kept", "complete", "incomplete", "dropped", "promoted", "computed", "intermediate", "ended")
    return {**counted, "history": history.select(names).to_pylist()}


@pytest.mark.parametrize("case", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("strategy", PAIRS)
def test_an_eddy_does_the_work_of_the_compiled_routes(strategy: str, case: JoinCase) -> None:
    runs = [Twins(case, A, name) for name in (strategy, PAIRS[strategy])]
    chance = random.Random(3)
    for plan in (B, C, A, "(R S) (T U)", A):
        for _ in range(3):
            words = []
            for _ in range(12):
                i = chance.randrange(4)
                keys = [str(chance.randrange(3)) for _ in case.streams[i].schema.names[:-2]]
                words.append("RSTU"[i] + ".".join(keys))
            for run in runs:
                run.push(" ".join(words))
        assert counts(runs[0]) == counts(runs[1])
        for run in runs:
            run.transition(plan)


def promotions(strategy: str) -> list[int]:
    """Return the keys promoted in S T: after the transition, after a probe of it, and after another one."""
    twins, promoted = Twins(ONE_CLASS, A, strategy), list[int]()
    twins.push("R1 S1 T1 U1 S2 T2 S3 T3")
    twins.transition(B)
    for text in ("", "R2", "R2"):
        twins.push(text)
        (state,) = (stair for stair in twins.runtime.stairs if stair.streams == (1, 2))
        promoted.append(state.counters()["promoted"])
    return promoted


def test_keys_are_promoted_at_the_transition_or_on_their_first_probe() -> None:
    assert promotions("eddy-stairs") == [3, 3, 3]
    assert promotions("eddy-jisc") == [0, 1, 1]
